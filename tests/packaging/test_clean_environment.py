"""The wheel in a fresh virtual environment, with nothing of this one but torch."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import venv
from importlib import metadata
from pathlib import Path

import pytest

from distribution import README, python_blocks, run


def link_with_requirements(name: str, folder: Path, seen: set[str]) -> None:
    """Links an installed distribution and all that it requires into ``folder``."""
    if name in seen:
        return
    seen.add(name)
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return  # for another platform
    for part in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
        if not (folder / part).exists():
            (folder / part).symlink_to(Path(str(distribution.locate_file(part))))
    for requirement in distribution.requires or []:
        if "extra ==" not in requirement:
            link_with_requirements(re.split(r"[^A-Za-z0-9._-]", requirement)[0], folder, seen)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Its ``bin``. torch and what torch requires are links, because they are too large to install for a test."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    link_with_requirements("torch", packages, set())
    python = str(folder / "bin/python")
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    return folder / "bin"


def call(environment: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": f"{environment}:/usr/bin:/bin", "HOME": str(folder), "LANG": os.environ.get("LANG", "C.UTF-8")}
    return run(str(environment / "python"), *arguments, cwd=folder, env=clean, timeout=300)


def test_check_explains_the_machine(environment: Path, tmp_path: Path) -> None:
    """And tests every operator on it."""
    report = json.loads(call(environment, "-m", "sglang_gdn", "check", "--json", folder=tmp_path).stdout)
    assert report["versions"]["python"] == platform.python_version()
    assert report["build"]["kernels"]
    assert report["versions"]["sglang"] is None
    assert report["selftest"]
    assert report["passed"], report["problems"]


def test_example_runs(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text("import sglang_gdn\nprint(sglang_gdn.__file__)\n" + python_blocks(README)[0])
    installed = call(environment, "example.py", folder=tmp_path).stdout
    assert Path(installed.strip()).is_relative_to(environment.parent)
