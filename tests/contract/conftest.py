from __future__ import annotations

import pytest
import torch

from ascend.simulated import UnreadableError
from sglang_gdn.errors import GdnNoKernelError, GdnUnsupportedError


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """A device may serve fewer dtypes, head sizes and options; the CPU must serve all that the tests ask for."""
    try:
        return (yield)
    except GdnNoKernelError as error:
        device = item.config.getoption("--device")
        if device == "cpu":
            raise
        pytest.skip(f"{device}: {error}")
    except GdnUnsupportedError as error:
        if "on npu" not in str(error):
            raise
        pytest.skip(str(error))
    except UnreadableError:
        pytest.skip("the simulated NPU is called without the binding, which refuses this on every device")


@pytest.fixture(autouse=True, scope="session")
def fast_oracle(one_torch_thread):
    pass


@pytest.fixture(autouse=True)
def uninitialised_memory_is_nan():
    """Outputs and scratch that an operator allocates start as NaN, so an element nobody writes is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def uncommitted_memory():
    """Lets a test allocate far more than it touches: ``torch.empty`` leaves pages uncommitted again."""
    torch.utils.deterministic.fill_uninitialized_memory = False
    yield
    torch.utils.deterministic.fill_uninitialized_memory = True
