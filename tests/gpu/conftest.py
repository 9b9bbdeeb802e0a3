from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch


@pytest.fixture(autouse=True)
def needs_hopper(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--device") != "cuda":
        pytest.skip("runs with --device cuda")
    assert torch.cuda.get_device_capability() == (9, 0), "the SM90 kernels need a Hopper GPU"


@pytest.fixture
def no_wait_for_the_device() -> Callable[[], AbstractContextManager[None]]:
    """A call that waits for the device, or reads from it, raises inside."""

    @contextmanager
    def context() -> Iterator[None]:
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return context
