"""Two ranks over gloo on one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.checkpoints import Checkpoint
from serving.server import Service, serving

pytestmark = pytest.mark.serving

SCRIPT = Path(__file__).parents[1] / "gpu" / "multi" / "tensor_parallel.py"


@pytest.fixture(scope="module")
def two_ranks(
    checkpoint_of: Callable[[str], Checkpoint], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    checkpoint = checkpoint_of("qwen3_5")
    cores = sorted(os.sched_getaffinity(0))
    flags = ("--tp", "2", "--mamba-radix-cache-strategy", "extra_buffer", "--chunked-prefill-size", "128")
    log, bind = tmp_path_factory.mktemp("two_ranks") / "log", f"{cores[0]}|{cores[-1]}"
    with serving(checkpoint, log, *flags, grid=64, SGLANG_CPU_OMP_THREADS_BIND=bind) as service:
        yield service


def test_outputs_and_hits_are_those_of_one_rank(two_ranks: Service) -> None:
    sample = two_ranks.checkpoint.sample(200, seed=10)
    answers = [two_ranks.server.generate(sample.prompt) for _ in range(2)]
    assert [answer.output for answer in answers] == [sample.output] * 2
    assert [answer.cached_tokens for answer in answers] == [0, 192]
    samples = [two_ranks.checkpoint.sample(length, seed=100 + length) for length in (3, 64, 130)]
    together = two_ranks.server.generate_batch([sample.prompt for sample in samples])
    assert [answer.output for answer in together] == [sample.output for sample in samples]
    log = two_ranks.server.log.read_text()
    assert all(f"TP{rank}] gdn_tile: prefill cpu_gdn_prefill" in log for rank in range(2))
    assert "1/3 heads of 64/64" in log


def test_states_move_between_one_rank_and_several(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--only-states", "--output", str(tmp_path)]
    ran = subprocess.run([*command, "--ranks", "4"], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    found = json.loads((tmp_path / "tensor_parallel.json").read_text())["states"]
    assert [one["heads"] for one in found] == [[16, 32], [16, 48]]
    assert all(one["ranks"] == 4 and one["round trip"] for one in found)
