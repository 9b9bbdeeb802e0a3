"""The committed files are, byte for byte, what the kernels lower to now."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ascend import simulated
from ascend.test_aot import GENERATED
from gdn_aot.generator.run import lower_all
from gdn_aot.lowering import PLATFORMS

pytestmark = [pytest.mark.generator, pytest.mark.usefixtures("generator"), pytest.mark.timeout(1800)]

ONE_OF_EACH_KIND = ("chunk_cumsum", "wy_fast", "scaled_dot_kkt")  # vector cores, cube cores, both


def check(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gdn_aot", "compile-kernels", "--target", "ascend", "--check", *arguments]
    environment = os.environ | {"PYTHONPATH": "python"}
    return subprocess.run(command, cwd=simulated.ROOT, env=environment, capture_output=True, text=True)


def test_every_kernel():
    done = check("--device", "a2")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("device", sorted(PLATFORMS.keys() - {"a2"}))
def test_devices_share_the_text(device):
    """Of these kernels; `make ascend-check` compares all."""
    done = check("--device", device, "--kernels", *ONE_OF_EACH_KIND)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_difference_is_found(tmp_path):
    folder = shutil.copytree(GENERATED, tmp_path / "generated")
    edited = folder / "wy_fast_act_f16.cpp"
    edited.write_text(edited.read_text() + "\n")
    done = check("--device", "a2", "--kernels", "wy_fast", "--output", folder)
    assert done.returncode == 1
    assert done.stderr.strip() == "gdn_aot: differ from what is generated: wy_fast_act_f16.cpp"


def test_lowering_has_a_limit(tmp_path):
    job = {"kernel": "chunk_gated_delta_rule", "specialization": {"act": "bfloat16"}, "output": str(tmp_path / "x.cpp")}
    (outcome,) = lower_all([job], "a2", 1)
    assert "the limit is 1 s of processor time" in outcome["error"]
    assert not list(tmp_path.iterdir())
