"""The device the contract suite runs on, and marks that skip what a device lacks."""

from __future__ import annotations

import pytest
import torch

import cases
import tolerances

SIMULATED_NPU = "simulated-npu"  # tensors of the CPU that the Ascend kernels' simulator works on
DEVICES = ("cpu", "cuda", "npu", SIMULATED_NPU)

# What a device cannot do, with the reason that the skipped test shows.
CPU_ONLY = {
    "cpu_threads": "set_num_threads only concerns the CPU kernels",
    "cpu_isas": "only the CPU kernels are built for several instruction sets",
}
NPU_LACKS = CPU_ONLY | {
    "fused_kernels": "fused operators are composed of the Ascend kernels",
    "frontend": "gdn_frontend has no Ascend kernel",
    "draft_trees": "the Ascend kernels take chains of drafts",
    "draft_records": "the Ascend kernels store the state after every draft",
}
SIMULATED_LACKS = NPU_LACKS | {"cpu_kernels": "tensors of the CPU are those of the simulated NPU"}
LACKS = {"cpu": {}, "cuda": CPU_ONLY, "npu": NPU_LACKS, SIMULATED_NPU: SIMULATED_LACKS}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=DEVICES, default="cpu", help="device of every tensor in the contract suite")
    parser.addoption("--wheels", metavar="FOLDER", help="what the packaging tests look at, in place of dist")


def pytest_configure(config: pytest.Config) -> None:
    cases.for_device(config.getoption("--device"))
    if config.getoption("--device") == SIMULATED_NPU:
        tolerances.LIMITS["cpu"] = tolerances.LIMITS["npu"]
    config.addinivalue_line("markers", "needs(feature): skip on devices that lack a feature")
    config.addinivalue_line("markers", "mutation: rebuilds the CPU kernels with faults and expects the suite to fail")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    device = config.getoption("--device")
    for item in items:
        for mark in item.iter_markers("needs"):
            (feature,) = mark.args
            if feature in LACKS[device]:
                item.add_marker(pytest.mark.skip(reason=f"{device}: {LACKS[device][feature]}"))


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    name = request.config.getoption("--device")
    if name == SIMULATED_NPU:
        return "cpu"
    if name == "npu":
        pytest.importorskip("torch_npu")
    if name != "cpu" and not getattr(torch, name).is_available():
        pytest.fail(f"--device {name}: torch.{name} finds no device")
    return name


@pytest.fixture(scope="session", autouse=True)
def simulated_npu(request: pytest.FixtureRequest):
    """With ``--device simulated-npu`` the operators run the Ascend kernels on their simulator."""
    if request.config.getoption("--device") != SIMULATED_NPU:
        yield
        return
    from ascend import simulated
    from sglang_gdn import ops

    module, ops._C = ops._C, simulated.SimulatedModule(simulated.build(simulated.ROOT / "build/ascend/simulator"))
    yield
    ops._C = module


@pytest.fixture(scope="session")
def one_torch_thread():
    """The oracle works on one token's states at a time, which is too little to share between threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
