"""The examples that serve a model, run as they stand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distribution import ROOT, python_blocks, run

pytestmark = pytest.mark.serving


def test_demo(tmp_path: Path) -> None:
    """It fails itself if an output depends on the prefix cache, or if the cache was never used."""
    run(sys.executable, str(ROOT / "examples/demo.py"), cwd=tmp_path, timeout=800)


def test_offline_engine(tmp_path: Path) -> None:
    (block,) = python_blocks(ROOT / "docs/serving.md")
    program = tmp_path / "program.py"
    program.write_text(block.replace('"MODEL"', repr(str(ROOT / "examples/model"))))
    assert run(sys.executable, "-P", str(program), cwd=tmp_path, timeout=600).stdout.strip()
