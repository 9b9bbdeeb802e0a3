from __future__ import annotations

import pytest

from ascend import simulated
from gdn_aot.generator.run import GeneratorUnreachableError, set_up
from sglang_gdn import ops


@pytest.fixture(scope="session")
def generator() -> None:
    """Installs the generator of the Ascend kernels if it is not there."""
    try:
        set_up()
    except GeneratorUnreachableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def simulator() -> simulated.SimulatedModule:
    return simulated.SimulatedModule(simulated.build(simulated.ROOT / "build/ascend/simulator"))


@pytest.fixture
def npu(simulator: simulated.SimulatedModule, monkeypatch: pytest.MonkeyPatch) -> simulated.SimulatedModule:
    """The operators of ``sglang_gdn.ops`` run on the simulated NPU."""
    monkeypatch.setattr(ops, "_C", simulator)
    simulator.set_cores(2)
    return simulator
