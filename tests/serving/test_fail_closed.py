"""A server that cannot serve with ``gdn_tile`` does not start, and says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers

from serving.checkpoints import Checkpoint
from serving.server import Server

pytestmark = pytest.mark.serving

# A plugin that runs before ours and makes SGLang fail to apply our hook, in the processes for which CONDITION holds.
HOOK_BREAKER = """
import multiprocessing

def register():
    if not ({condition}):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry
    stock = HookRegistry._apply_target.__func__

    def apply_target(cls, target, hooks):
        if target.endswith(".attn_backend_wrapper"):
            raise RuntimeError("broken on purpose")
        stock(cls, target, hooks)

    HookRegistry._apply_target = classmethod(apply_target)
"""


def ended_server(model: Path, tmp_path: Path, *flags: str, **environment: str) -> str:
    """The log of a server that must end by itself."""
    server = Server(model, tmp_path / "log", *flags, **environment)
    try:
        assert server.wait_until_ended() != 0
        return server.log.read_text(errors="replace")
    finally:
        server.stop()


def fake_distribution(site: Path, name: str, version: str, entry_points: str = "") -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(entry_points)


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param("multiprocessing.parent_process() is None", id="main-process"),
        pytest.param("multiprocessing.parent_process() is not None", id="worker"),
    ],
)
def test_broken_hook(condition: str, tmp_path: Path, checkpoint_of: Callable[[str], Checkpoint]) -> None:
    site = tmp_path / "site"
    fake_distribution(site, "hook_breaker", "1.0", "[sglang.srt.plugins]\nhook_breaker = hook_breaker:register\n")
    (site / "hook_breaker.py").write_text(HOOK_BREAKER.format(condition=condition))
    log = ended_server(checkpoint_of("qwen3_5").folder, tmp_path, PYTHONPATH=str(site))
    assert "broken on purpose" in log
    assert "GdnServingError: the hook of gdn_tile on" in log
    assert "fired up" not in log


def test_untested_sglang(tmp_path: Path, checkpoint_of: Callable[[str], Checkpoint]) -> None:
    site = tmp_path / "site"
    fake_distribution(site, "sglang", "99.0")
    log = ended_server(checkpoint_of("qwen3_5").folder, tmp_path, PYTHONPATH=str(site))
    assert "GdnServingError: gdn_tile was tested with SGLang 0.5.17, 0.5.23; got SGLang 99.0" in log
    assert "SGLANG_GDN_ALLOW_UNTESTED_SGLANG=1" in log


def test_model_without_gdn_layers(tmp_path: Path) -> None:
    config = transformers.Qwen3Config(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
    )
    model = tmp_path / "model"
    transformers.Qwen3ForCausalLM(config).save_pretrained(model)
    assert json.loads((model / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]
    log = ended_server(model, tmp_path)
    assert "GdnServingError: gdn_tile serves models with Gated DeltaNet layers" in log
    assert "['Qwen3ForCausalLM']" in log


def test_other_linear_kernels(tmp_path: Path, checkpoint_of: Callable[[str], Checkpoint]) -> None:
    log = ended_server(checkpoint_of("qwen3_5").folder, tmp_path, "--linear-attn-decode-backend", "cutedsl")
    assert "GdnServingError: --linear-attn-decode-backend must be left alone with gdn_tile; got 'cutedsl'" in log


def test_unknown_backend(tmp_path: Path, checkpoint_of: Callable[[str], Checkpoint]) -> None:
    log = ended_server(checkpoint_of("qwen3_5").folder, tmp_path, "--attention-backend", "gdn_tiles")
    assert "invalid choice: 'gdn_tiles'" in log
    assert "gdn_tile" in log.replace("gdn_tiles", "")
