"""The build on a host with CANN, as far as it goes without: BiSheng is a script that defines the launch functions."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from ascend import simulated
from ascend.test_aot import GENERATED
from gdn_aot.compile import CompileError, build_device_library

BISHENG = """#!/usr/bin/env bash
set -euo pipefail
printf '%s\\n' "$@" >> "$CALLS"
objects=()
while [ $# -gt 0 ]; do
  case $1 in
    -o) out=$2; shift ;;
    -c) source=$2; shift ;;
    *.o) objects+=("$1") ;;
  esac
  shift
done
if [ -z "${source:-}" ]; then exec g++ -shared -o "$out" "${objects[@]}"; fi
function=gdn_ascend_$(basename "$source" .cpp)
grep -q "extern \\"C\\" void $function(" "$source"
echo "extern \\"C\\" void of_cann(); extern \\"C\\" void $function() { of_cann(); }" | g++ -fPIC -xc++ -c - -o "$out"
"""


@pytest.fixture
def cann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records what it is called with in ``calls``."""
    (tmp_path / "bin").mkdir()
    compiler = tmp_path / "bin/bisheng"
    compiler.write_text(BISHENG)
    compiler.chmod(0o755)
    headers = tmp_path / "site/tilelang/src/tl_templates/ascend"
    headers.mkdir(parents=True)
    for file in (headers / "common.h", tmp_path / "site/tilelang/__init__.py"):
        file.touch()
    monkeypatch.setenv("PATH", f"{compiler.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "cann"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.chdir(simulated.ROOT)
    return tmp_path


def test_a_library_of_its_own_has_every_variant(cann):
    library = build_device_library(cann / "build")
    symbols = subprocess.run(["nm", "-D", library], check=True, capture_output=True, text=True).stdout
    kernels = json.loads((GENERATED / "manifest.json").read_text())["kernels"]
    variants = {f"gdn_ascend_{variant}" for kernel in kernels.values() for variant in kernel["variants"]}
    assert {line.split()[-1] for line in symbols.splitlines() if " T gdn_ascend_" in line} == variants
    calls = (cann / "calls").read_text().splitlines()
    ours = {Path(call[2:]) for call in calls if call.startswith(f"-I{simulated.ROOT}/")}
    assert ours and all(folder.is_dir() for folder in ours)


def test_a_failure_is_shown(cann):
    (cann / "bin/bisheng").write_text("#!/bin/sh\necho no such intrinsic >&2\nexit 1\n")
    with pytest.raises(CompileError, match="no such intrinsic"):
        build_device_library(cann / "build")


def test_without_bisheng_there_is_nothing_to_build(tmp_path):
    assert build_device_library(tmp_path) is None
