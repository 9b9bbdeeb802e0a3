"""The CPU kernels are built for several instruction sets: each keeps the contract, and an unknown name is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_gdn import _C

pytestmark = pytest.mark.needs("cpu_isas")

CONTRACT = Path(__file__).parent
REPRESENTATIVE = (
    "test_gating.py::test_against_the_oracle",
    "test_conv1d.py::test_dtypes_and_widths",
    "test_conv1d.py::test_channel_counts",
    "test_conv1d.py::test_update_dtypes_and_widths",
    "test_decode.py::test_update_ratios_head_sizes_and_state_dtypes",
    "test_decode.py::test_update_dtypes_and_token_counts",
    "test_decode.py::test_slots",
    "test_prefill.py::test_lengths_around_a_chunk",
    "test_prefill.py::test_activation_and_state_dtypes",
    "test_prefill.py::test_ratios_head_sizes_and_state_dtypes",
    "test_prefill.py::test_gates",
    "test_prefill.py::test_nearly_identical_keys",
    "test_prefill.py::test_fused_layer",
    "test_prefill.py::test_calls_split_between_chunks_equal_one_bit_for_bit",
    "test_verify.py::test_dtypes",
    "test_determinism.py::test_thread_count",
    "test_determinism.py::test_a_packed_row_equals_the_row_alone",
)


def run_with(isa: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SGLANG_GDN_CPU_ISA": isa}
    return subprocess.run(
        [sys.executable, "-P", *arguments], env=environment, text=True, capture_output=True, check=False
    )


NAME_ISA = ("-c", "from sglang_gdn import _C; print(_C.cpu_isa())")


@pytest.mark.parametrize("isa", _C.build_info()["cpu_isas"])
def test_every_build(isa):
    if isa == _C.cpu_isa():
        pytest.skip(f"{isa} is what the rest of the suite runs with")
    named = run_with(isa, *NAME_ISA)
    if named.returncode != 0:
        pytest.skip(f"this machine does not run {isa}")
    assert named.stdout.strip() == isa
    tests = [str(CONTRACT / test) for test in REPRESENTATIVE]
    done = run_with(isa, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_unknown_name_is_refused():
    done = run_with("sse9", *NAME_ISA)
    assert done.returncode != 0
    assert "SGLANG_GDN_CPU_ISA must be one of" in done.stderr and "got sse9" in done.stderr
