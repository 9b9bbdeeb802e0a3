"""``sglang.Engine`` in a Python program, without a server and without the launcher."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.checkpoints import OUTPUT_TOKENS, Checkpoint

pytestmark = pytest.mark.serving

PROGRAM = """
import json, os, sys
from sglang_gdn import cpu_engine

os.environ["SGLANG_MAMBA_CONV_DTYPE"] = "float32"
cpu_engine.enable()
import sglang

if __name__ == "__main__":
    model, prompt, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    engine = sglang.Engine(
        model_path=model, device="cpu", dtype="float32", attention_backend="gdn_tile", skip_tokenizer_init=True,
        max_mamba_cache_size=32, max_running_requests=4, max_total_tokens=2048, mem_fraction_static=0.3,
    )
    sampling = {"max_new_tokens": count, "temperature": 0, "ignore_eos": True}
    answer = engine.generate(input_ids=prompt, sampling_params=sampling)
    print("ANSWER", json.dumps(answer["output_ids"]))
    engine.shutdown()
"""


def test_engine(checkpoint_of: Callable[[str], Checkpoint], tmp_path: Path) -> None:
    checkpoint = checkpoint_of("qwen3_5")
    sample = checkpoint.sample(100, seed=90)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = [str(checkpoint.folder), json.dumps(sample.prompt), str(OUTPUT_TOKENS)]
    ran = subprocess.run(
        [sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    answers = [line for line in ran.stdout.splitlines() if line.startswith("ANSWER")]
    assert answers == [f"ANSWER {json.dumps(sample.output)}"], ran.stderr[-4000:]
