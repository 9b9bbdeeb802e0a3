"""The three steps of examples/ascend_kernel, followed literally in a copy of the repository."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ascend import simulated
from gdn_aot.generator.run import FOLDER

EXAMPLE = simulated.ROOT / "examples/ascend_kernel"


@pytest.fixture(scope="module")
def repository(generator, tmp_path_factory) -> Path:
    copy = tmp_path_factory.mktemp("repository")
    for folder in ("cmake", "csrc", "python", "tests/ascend", "examples/ascend_kernel"):
        shutil.copytree(
            simulated.ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "cuda", "cpu")
        )
    # Only the toy kernel is built here.
    lines = (copy / "csrc/ascend/CMakeLists.txt").read_text().splitlines()
    kept = [line for line in lines if "WRAPPER_SRCS" not in line and "register_runtime_kernel" not in line]
    (copy / "csrc/ascend/CMakeLists.txt").write_text("\n".join(kept).replace("register.cpp", "variant.hpp") + "\n")
    return copy


def commands() -> list[str]:
    blocks = re.findall(r"```\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    return blocks[0].strip().splitlines()


@pytest.mark.generator
def test_three_steps(repository, monkeypatch):
    shutil.copy(EXAMPLE / "scaled_add.py", repository / "python/gdn_aot/kernels/ascend")
    environment = os.environ | {
        "GDN_ASCEND_GENERATOR": str((simulated.ROOT / FOLDER).resolve()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    for command in commands():
        subprocess.run(["bash", "-c", command], cwd=repository, env=environment, check=True)
    shutil.copy(EXAMPLE / "scaled_add.cpp", repository / "csrc/ascend")
    line = re.search(r"^tilelang_register_runtime_kernel.*$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    with (repository / "csrc/ascend/CMakeLists.txt").open("a") as file:
        file.write(line[0] + "\n")
    (repository / "tests/ascend/simulated.cpp").write_text(
        '#include "ascend/device.hpp"\nint32_t gdn::ascend::cube_cores(int32_t) { return 2; }\n'
    )
    monkeypatch.setattr(simulated, "SOURCES", repository / "tests/ascend")
    library = ctypes.CDLL(str(simulated.build(repository / "build")))

    x, y = torch.randn(2, 5000).to(torch.bfloat16)
    out = torch.full_like(x, torch.nan)
    library.simulator_reset()
    for name, tensor in (("x", x), ("y", y), ("out", out)):
        library.simulator_register(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(10000), name.encode())
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y, out)]
    library.gdn_example_scaled_add(*pointers, ctypes.c_int64(5000), ctypes.c_float(0.5), None)
    reports = ctypes.create_string_buffer(1 << 16)
    library.simulator_reports(reports, ctypes.c_size_t(len(reports)))
    assert not reports.value, reports.value.decode()
    torch.testing.assert_close(out, (x.double() + 0.5 * y.double()).to(torch.bfloat16), rtol=0, atol=0)
