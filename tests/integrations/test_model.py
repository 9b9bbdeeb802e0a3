"""The trained checkpoint of ``examples/model``: its record holds, and it is the same model on our operators."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

from distribution import ROOT
from sglang_gdn import evaluate

MODEL = ROOT / "examples/model"
RECORD = json.loads((MODEL / "training.json").read_text())


def test_sizes() -> None:
    config = json.loads((MODEL / "config.json").read_text())
    assert (config["linear_key_head_dim"], config["linear_value_head_dim"]) == (128, 128)
    assert (MODEL / "model.safetensors").stat().st_size < 25e6
    assert (MODEL / "held_out.txt").stat().st_size == RECORD["held_out_bytes"] == 200_000


def test_it_learnt() -> None:
    losses = [entry["loss"] for entry in RECORD["log"]]
    assert losses[-1] < 0.5 * losses[0]
    assert {source["licence"] for source in RECORD["sources"] if not source["licence"]} == set()


@torch.no_grad()
def test_recorded_perplexity() -> None:
    """On our operators, over all of the held-out text, in the windows of the training script."""
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    text = torch.frombuffer(bytearray((MODEL / "held_out.txt").read_bytes()), dtype=torch.uint8).long()
    windows = text[: (len(text) - 1) // 512 * 512 + 1].unfold(0, 513, 512)
    used = len(text) // 512 // 8 * 8
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(0))[:used]
    losses = []
    with evaluate.on_our_operators(model):
        for rows in windows[order].split(8):
            logits = model(input_ids=rows[:, :-1], use_cache=False).logits
            losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))
    assert torch.stack(losses).mean().exp().item() == pytest.approx(RECORD["held_out_perplexity_per_byte"], rel=1e-5)


def test_a_part_of_the_evaluation(tmp_path: Path) -> None:
    """The thresholds of the whole, on a tenth of the text and of the prompts."""
    text = tmp_path / "text.txt"
    text.write_bytes((MODEL / "held_out.txt").read_bytes()[:20_000])
    options = ["--window", "1024", "--prompts", "10", "--new-tokens", "64", "--drift-tokens", "0"]
    assert evaluate.main([str(MODEL), "--text", str(text), "--output", str(tmp_path), *options]) == 0


@pytest.mark.parametrize(
    ("folder", "names"),
    [("evaluation", ["float32", "bfloat16"]), ("evaluation/sglang", ["float16", "float16, against SGLang"])],
)
def test_recorded_evaluation_met_the_thresholds_of_today(folder: str, names: list[str]) -> None:
    report = json.loads((MODEL / folder / "report.json").read_text())
    assert report["facts"]["text"] == "held_out.txt, 200000 tokens"
    checks = {check["name"]: evaluate.Check(**check) for check in report["checks"]}
    assert [name for name, check in checks.items() if not check.holds] == []
    for name in names:
        dtype = name.partition(",")[0]
        assert checks[f"{name}: perplexity apart"].limit == evaluate.PERPLEXITY_LIMITS[dtype]
        assert checks[f"{name}: largest error of a layer"].limit == evaluate.LAYER_LIMITS[dtype]
