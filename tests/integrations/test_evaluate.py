"""``python -m sglang_gdn eval``: the report, its thresholds and its exit code, on a small random model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from make_checkpoint import write_checkpoint

from distribution import run
from sglang_gdn import evaluate, ops

TEXT = "Every slot has a window and a state; a hit continues from both. " * 40
QUICK = ["--window", "256", "--prompts", "4", "--prompt-tokens", "32", "--new-tokens", "16", "--drift-tokens", "2048"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_checkpoint(folder)
    (folder / "text.txt").write_text(TEXT)
    return folder


def evaluated(folder: Path, output: Path, *options: str) -> tuple[int, dict]:
    code = evaluate.main([str(folder), "--text", str(folder / "text.txt"), "--output", str(output), *QUICK, *options])
    return code, json.loads((output / "report.json").read_text())


def test_a_model_that_agrees(folder: Path, tmp_path: Path) -> None:
    code, report = evaluated(folder, tmp_path, "--dtypes", "float32")
    assert (code, len(report["checks"])) == (0, 3), report["checks"]
    layers = report["tables"]["Layers, float32"]
    assert [row["layer"] for row in layers[:-1]] == [f"model.layers.{i}.linear_attn" for i in range(3)]
    assert all(0 < row["error of the layer"] < 1e-5 for row in layers[:-1])
    lengths = report["tables"]["Error over length, float32"]
    assert [row["tokens"] for row in lengths] == [1024, 2048]
    assert all(0 < row["float32 state"] < row["bfloat16 state"] for row in lengths[1:])
    markdown = (tmp_path / "report.md").read_text()
    assert "| float32: perplexity apart |" in markdown and "fails" not in markdown
    assert (tmp_path / "error-over-length-float32.svg").read_text().count("<polyline") >= 3


def test_an_operator_that_is_wrong_fails(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill = ops.gdn_prefill
    monkeypatch.setattr(ops, "gdn_prefill", lambda *args, **kwargs: prefill(*args, **kwargs) * 1.01)
    code, report = evaluated(folder, tmp_path, "--dtypes", "float32")
    failed = {check["name"] for check in report["checks"] if check["value"] > check["limit"]}
    assert code == 1
    assert "float32: largest error of a layer" in failed
    assert "**fails**" in (tmp_path / "report.md").read_text()


def test_sglangs_own_kernels(folder: Path, tmp_path: Path) -> None:
    """In Triton's interpreter, which a process has to choose before it imports Triton."""
    sizes = ["--window", "70", "--perplexity-tokens", "70", "--prompts", "1", "--prompt-tokens", "8"]
    run(
        sys.executable, "-P", "-W", "ignore", "-m", "sglang_gdn", "eval", str(folder), "--text",
        str(folder / "text.txt"), "--output", str(tmp_path), *sizes, "--new-tokens", "2", "--drift-tokens", "0",
        "--dtypes", "float16", "--sglang", cwd=tmp_path, timeout=600,
    )  # fmt: skip
    report = json.loads((tmp_path / "report.json").read_text())
    assert len(report["checks"]) == 6
    stock, theirs = (report["tables"][f"Layers, float16{about}"] for about in (", against SGLang", ""))
    assert all(0 < row["error of the layer"] < 2e-3 for row in stock[:-1])
    assert [row["error of the layer"] for row in stock] != [row["error of the layer"] for row in theirs]
    assert set(report["tables"]["Perplexity, float16, against SGLang"][0]) == {"ours", "SGLang", "tokens read"}


def test_dtypes_that_sglangs_kernels_do_not_have(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit, match="2"):
        evaluated(folder, tmp_path, "--sglang", "--dtypes", "float32", "float16", "bfloat16")
    assert "SGLang's kernels do not compute in bfloat16, float32 on cpu" in capsys.readouterr().err


def test_a_text_that_is_too_short(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("too short")
    with pytest.raises(SystemExit, match=r"too short for these windows and prompts; got 9 tokens"):
        evaluate.main([str(folder), "--text", str(tmp_path / "short.txt"), "--output", str(tmp_path)])


def test_patching_is_undone(folder: Path) -> None:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with pytest.raises(RuntimeError, match="stop"), evaluate.on_our_operators(model):
        raise RuntimeError("stop")
    assert all("forward" not in vars(layer) for layer in model.modules())
    assert torch.is_grad_enabled()
