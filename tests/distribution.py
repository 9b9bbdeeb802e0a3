"""Builds distributions and runs commands for the packaging tests."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
BUILD_LIMIT_S = 1500
README = ROOT / "README.md"


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; a failure shows what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done


def python_blocks(document: Path) -> list[str]:
    """The Python code of a Markdown file."""
    return re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)


def build_wheel(source: Path, folder: Path, *settings: str, **options: Any) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    run(*command, "--wheel-dir", str(folder), *settings, str(source), timeout=BUILD_LIMIT_S, **options)
    (wheel,) = folder.glob("*.whl")
    return wheel
