from contract.conftest import one_torch_thread, pytest_runtest_call

__all__ = ["one_torch_thread", "pytest_runtest_call"]
