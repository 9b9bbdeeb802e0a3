from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def needs_hopper(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--device") != "cuda":
        pytest.skip("runs with --device cuda")
    assert torch.cuda.get_device_capability() == (9, 0), "the SM90 kernels need a Hopper GPU"
