"""The machine code of the SM90 kernels in the wheel, which needs a compiler but no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distribution import ROOT, run

SOURCES = ROOT / "csrc/cuda"
REPORT = str(SOURCES / "resources.py")
KERNEL = re.compile(r"__global__ [^;{]*?\b(sm90_\w+)\(")

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc: no SM90 kernels are built")


def rows_of(report: str) -> dict[str, dict[str, int]]:
    """Kernel -> column -> number."""
    titles, *lines = report.splitlines()
    columns = titles.split()[1:]
    rows = {}
    for line in lines:
        name, *numbers = line.rsplit(maxsplit=len(columns))
        rows[name.strip()] = dict(zip(columns, map(int, numbers), strict=True))
    return rows


@pytest.fixture(scope="module")
def kernels(extension: Path) -> dict[str, dict[str, int]]:
    return rows_of(run(sys.executable, REPORT, str(extension)).stdout)


@needs_nvcc
def test_every_kernel_of_the_sources_is_in_the_wheel(kernels: dict[str, dict[str, int]]) -> None:
    written = {name for path in SOURCES.glob("*.cu*") for name in KERNEL.findall(path.read_text())}
    assert "sm90_gdn_decode" in written
    assert {name.split("<")[0] for name in kernels} == written


@needs_nvcc
def test_no_kernel_uses_local_memory(kernels: dict[str, dict[str, int]]) -> None:
    assert {name: (row["stack"], row["local"]) for name, row in kernels.items() if row["stack"] or row["local"]} == {}


@needs_nvcc
def test_float32_states_cross_16_bytes_a_lane(kernels: dict[str, dict[str, int]]) -> None:
    states = {name: row for name, row in kernels.items() if name.startswith(("sm90_gdn_decode<float", "sm90_delta"))}
    states = {name: row for name, row in states.items() if "<float" in name}
    assert states
    assert [name for name, row in states.items() if row["ld128"] == 0 or row["st128"] == 0] == []


@needs_nvcc
def test_the_report_fails_on_a_kernel_that_spills(tmp_path: Path) -> None:
    source, compiled = tmp_path / "spill.cu", tmp_path / "spill.cu.o"
    source.write_text(
        "__global__ void spill(float* x, int i) {\n"
        "  float values[256];\n"
        "  for (int j = 0; j < 256; ++j) values[j * i % 256] = x[j];\n"
        "  x[0] = values[i];\n"
        "}\n"
    )
    run("nvcc", "-gencode=arch=compute_90a,code=sm_90a", "-c", str(source), "-o", str(compiled))
    report = subprocess.run([sys.executable, REPORT, str(compiled)], capture_output=True, text=True, check=False)
    assert report.returncode == 1
    assert "kernels that use local memory: spill" in report.stderr
    (row,) = rows_of(report.stdout).values()
    assert row["stack"] > 0
