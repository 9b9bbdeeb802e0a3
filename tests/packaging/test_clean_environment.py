"""The wheel in a fresh virtual environment, with nothing of this one but torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from distribution import README, ROOT, python_blocks, run

# Pythons other than this one, each with torch: environments that `make manylinux` makes.
OTHERS = ROOT / "build/manylinux"


def link_with_requirements(name: str, source: str, folder: Path, seen: set[str]) -> None:
    """Links a distribution that is installed in ``source``, and all that it requires, into ``folder``."""
    if name in seen:
        return
    seen.add(name)
    distribution = next(iter(metadata.distributions(name=name, path=[source])), None)
    if distribution is None:
        return  # for another platform
    for part in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
        if not (folder / part).exists():
            (folder / part).symlink_to(Path(str(distribution.locate_file(part))))
    for requirement in distribution.requires or []:
        if "extra ==" not in requirement:
            link_with_requirements(re.split(r"[^A-Za-z0-9._-]", requirement)[0], source, folder, seen)


def python_for(version: str) -> str:
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    python = OTHERS / f"python{version}/bin/python"
    if not python.exists():
        pytest.skip(f"no Python {version} with torch in {OTHERS.relative_to(ROOT)}: make manylinux puts it there")
    return str(python)


@pytest.fixture(scope="module", params=["3.11", "3.12"])
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path, version: str) -> Path:
    """Its ``bin``. torch and what torch requires are links, because they are too large to install for a test."""
    if f"-cp{version.replace('.', '')}-" not in wheel.name:
        pytest.skip(f"{wheel.name} is not for Python {version}")
    python = python_for(version)
    folder = tmp_path_factory.mktemp("environment")
    run(python, "-m", "venv", str(folder))
    (packages,) = (folder / "lib").glob("python*/site-packages")
    source = run(python, "-P", "-c", "import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])").stdout
    link_with_requirements("torch", source.strip(), packages, set())
    run(str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    return folder / "bin"


def call(environment: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": f"{environment}:/usr/bin:/bin", "HOME": str(folder), "LANG": os.environ.get("LANG", "C.UTF-8")}
    return run(str(environment / "python"), *arguments, cwd=folder, env=clean, timeout=300)


def test_check_explains_the_machine(environment: Path, version: str, tmp_path: Path) -> None:
    """And tests every operator on it."""
    report = json.loads(call(environment, "-m", "sglang_gdn", "check", "--json", folder=tmp_path).stdout)
    assert report["versions"]["python"].startswith(f"{version}.")
    assert report["build"]["kernels"]
    assert report["versions"]["sglang"] is None
    assert report["selftest"]
    assert report["passed"], report["problems"]


def test_example_runs(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text("import sglang_gdn\nprint(sglang_gdn.__file__)\n" + python_blocks(README)[0])
    installed = call(environment, "example.py", folder=tmp_path).stdout
    assert Path(installed.strip()).is_relative_to(environment.parent)
