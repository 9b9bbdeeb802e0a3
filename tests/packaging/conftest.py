"""The distributions under test, and Python processes that see only the installed package."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from distribution import ROOT, build_wheel, run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.packaging)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of the wheel is one of each wheel in dist/ (``make wheel``) or in the folder of ``--wheels``."""
    if "wheel" in metafunc.fixturenames:
        folder = ROOT / (metafunc.config.getoption("--wheels") or "dist")
        found = sorted(folder.glob("*.whl")) or [None]
        metafunc.parametrize("wheel", found, indirect=True, scope="session", ids=lambda file: file and file.stem)


@pytest.fixture(scope="session")
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of those that are there, or else one built now."""
    return request.param or build_wheel(ROOT, tmp_path_factory.mktemp("wheel"), "-Cbuild-dir=build/wheel")


@pytest.fixture(scope="session")
def members(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


@pytest.fixture(scope="session")
def extension(wheel: Path, members: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    (name,) = [member for member in members if member.endswith(".so")]
    return Path(zipfile.ZipFile(wheel).extract(name, tmp_path_factory.mktemp("extension")))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-P", "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., str]:
    """Runs code away from the checkout and returns what it printed. Variables set to None are removed."""

    def run_python(code: str, *arguments: str, **variables: str | None) -> str:
        environment = {name: value for name, value in {**os.environ, **variables}.items() if value is not None}
        command = [sys.executable, "-P", "-B", "-c", code, *arguments]
        return run(*command, cwd=tmp_path, env=environment, timeout=300).stdout

    return run_python
