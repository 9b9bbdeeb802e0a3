"""lm-evaluation-harness against a running server, on a task of this repository."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import pytest
import torch
import transformers

from distribution import ROOT, run
from serving.server import Server
from sglang_gdn.evaluate import on_our_operators

pytestmark = pytest.mark.serving

MODEL = ROOT / "examples/model"
PARAGRAPHS = 10


@torch.no_grad()
def byte_perplexity(texts: list[str]) -> float:
    """As the harness defines it: every text after a token that begins one, by the bytes of all."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    total = 0.0
    with on_our_operators(model):
        for text in texts:
            tokens = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text).input_ids]])
            chances = model(input_ids=tokens, use_cache=False).logits[0, :-1].double().log_softmax(-1)
            total += chances.gather(1, tokens[0, 1:, None]).sum().item()
    return math.exp(-total / sum(len(text.encode()) for text in texts))


def test_perplexity_of_a_local_task(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'lm-eval[api]'")
    datasets = pytest.importorskip("datasets")
    server = Server(MODEL, tmp_path / "log", tokenizer=True)
    try:
        server.wait_until_ready()
        api = f"model={MODEL},base_url={server.url}/v1/completions,tokenizer={MODEL},num_concurrent=2,max_length=2048"
        run(
            sys.executable, "-P", "-m", "lm_eval", "--model", "local-completions", "--model_args", api,
            "--include_path", "examples/model/lm_eval", "--tasks", "held_out", "--limit", str(PARAGRAPHS),
            "--output_path", str(tmp_path / "results"), cwd=ROOT, timeout=600,
            env=os.environ | {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")},
        )  # fmt: skip
    finally:
        server.stop()
    (results,) = (tmp_path / "results").rglob("results_*.json")
    measured = json.loads(results.read_text())["results"]["held_out"]["byte_perplexity,none"]
    texts = datasets.load_dataset(
        "text", data_files={"test": str(MODEL / "held_out.txt")}, sample_by="paragraph", split="test",
        cache_dir=str(tmp_path / "hf"),
    )["text"][:PARAGRAPHS]  # fmt: skip
    assert measured == pytest.approx(byte_perplexity(texts), rel=1e-4)
