"""The source distribution, and the wheel that is built from nothing else."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from distribution import VERSION, build_wheel, run

QUICK = tuple(f"-Ccmake.define.SGLANG_GDN_{option}" for option in ("CUDA=OFF", "ASCEND=OFF", "CPU_BASELINE_ONLY=ON"))


@pytest.fixture(scope="module")
def small_wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels of one instruction set only."""
    return build_wheel(sdist, tmp_path_factory.mktemp("small_wheel"), *QUICK)


def test_holds_what_a_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"sglang_gdn-{VERSION}/") for name in archive.getnames()}
    assert {"CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= names
    assert not [name for name in names if name.startswith((".venv", ".demo", "build/", "dist/")) or ".so" in name]


@pytest.mark.timeout(1800)
def test_wheel_from_sdist_works(small_wheel: Path, tmp_path: Path, python: Callable[..., str]) -> None:
    """With both accelerators off it is the CPU build, and it passes its own check."""
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(small_wheel))
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


@pytest.mark.timeout(1800)
def test_another_build_gives_the_same_bytes(sdist: Path, small_wheel: Path, tmp_path: Path) -> None:
    """In another folder, at another time, by somebody whose new files are theirs alone."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    again = build_wheel(source, tmp_path / "wheel", *QUICK, umask=0o077)
    assert again.name == small_wheel.name
    members = [
        {member.filename: (member.CRC, member.external_attr, member.date_time) for member in archive.infolist()}
        for archive in map(zipfile.ZipFile, (again, small_wheel))
    ]
    assert members[0] == members[1]
    assert again.read_bytes() == small_wheel.read_bytes()
