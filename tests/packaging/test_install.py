"""Installing the wheel where SGLang is installed changes no other package."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from distribution import VERSION, run

NEWER = f"{VERSION}.post1"


def with_version(wheel: Path, version: str, folder: Path, *requirements: str) -> Path:
    """The same wheel under another version, which pip would install in place of the one that is there."""
    platform_tags = wheel.name.removeprefix(f"sglang_gdn-{VERSION}")
    changed = folder / f"sglang_gdn-{version}{platform_tags}"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith(".dist-info/METADATA"):
                head = f"Version: {version}\n" + "".join(f"Requires-Dist: {entry}\n" for entry in requirements)
                content = content.replace(f"Version: {VERSION}\n".encode(), head.encode(), 1)
            target.writestr(name.replace(f"-{VERSION}.dist-info/", f"-{version}.dist-info/"), content)
    return changed


def would_install(wheel: Path, extra: str = "") -> dict[str, str]:
    """What pip would install, without any source of packages: nothing that is missing here could be found."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-index", "--report", "-"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = run(*pip, f"{wheel}{extra}", env={**environment, "PIP_CONFIG_FILE": os.devnull})
    report = json.loads(done.stdout)
    return {item["metadata"]["name"]: item["metadata"]["version"] for item in report["install"]}


@pytest.mark.parametrize("extra", ["", "[sglang]"])
def test_changes_no_other_package(wheel: Path, tmp_path: Path, extra: str) -> None:
    assert metadata.version("sglang")
    assert would_install(with_version(wheel, NEWER, tmp_path), extra) == {"sglang-gdn": NEWER}


def test_a_stricter_requirement_would_be_noticed(wheel: Path, tmp_path: Path) -> None:
    strict = with_version(wheel, NEWER, tmp_path, f"torch!={metadata.version('torch')}")
    with pytest.raises(AssertionError, match="torch"):
        would_install(strict)
