from contract.conftest import pytest_runtest_call

__all__ = ["pytest_runtest_call"]
