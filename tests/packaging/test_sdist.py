"""The source distribution, and the wheel that is built from nothing else."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from distribution import VERSION, build_wheel, run

CPU_ONLY = ("-Ccmake.define.SGLANG_GDN_CUDA=OFF", "-Ccmake.define.SGLANG_GDN_ASCEND=OFF")


def test_holds_what_a_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"sglang_gdn-{VERSION}/") for name in archive.getnames()}
    assert {"CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= names
    assert not [name for name in names if name.startswith((".venv", ".demo", "build/", "dist/")) or ".so" in name]


@pytest.mark.timeout(1800)
def test_wheel_from_sdist_works(sdist: Path, tmp_path: Path, python: Callable[..., str]) -> None:
    """With both accelerators off it is the CPU build, and it passes its own check."""
    wheel = build_wheel(sdist, tmp_path / "wheel", *CPU_ONLY)
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel))
    code = """
import sglang_gdn, sglang_gdn.check
from sglang_gdn import _C
report = sglang_gdn.check.collect("cpu")
assert sglang_gdn.__file__.startswith(SITE), sglang_gdn.__file__
assert not report.build["cuda"] and not report.build["ascend"], report.build
failed = [row for row in report.selftest if row["failure"]]
print(len(report.selftest), len(failed))
""".replace("SITE", repr(str(site)))
    tested, failed = map(int, python(code, PYTHONPATH=str(site)).split())
    assert tested > 0
    assert failed == 0
