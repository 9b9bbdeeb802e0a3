"""Layers that are computed whole: split, norm and gate in the launch that decodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from serving.rig import LAYER, Rig, whole_layer
from sglang_gdn.cpu_engine.torch_functions import gated_rms_norm
from sglang_gdn.serving import compat
from sglang_gdn.serving.layers import WholeLayer

pytestmark = [pytest.mark.serving, pytest.mark.usefixtures("sglang_on_cpu"), pytest.mark.filterwarnings("ignore")]

SLOTS = [4, -1, 9]
STOCK = torch.tensor([7.0])


@pytest.fixture(params=["swish", "sigmoid"])
def norm(request: pytest.FixtureRequest) -> SimpleNamespace:
    return SimpleNamespace(weight=torch.rand(32) + 0.5, eps=1e-6, activation=request.param)


def run(rig: Rig, layer: Any, hidden_states: Any, layout: str = "contiguous", **modes: bool) -> Tensor:
    batch = rig.plan_decode(SLOTS)
    rig.backend.forward_metadata = batch._metadata
    asked = {"is_decode": True, "is_extend_without_speculative": False, **modes}
    mode = SimpleNamespace(**{name: lambda answer=answer: answer for name, answer in asked.items()})
    hook = WholeLayer(compat.select()[0], layout)
    return hook(lambda *_: STOCK, layer, hidden_states, SimpleNamespace(extends=False, forward_mode=mode))


def test_decode(norm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    split, whole = Rig(), Rig()
    projections, inputs, gate = split.raw_projections(3)
    expected = gated_rms_norm(split.decode(inputs, SLOTS)[0], gate, norm.weight, norm.eps, norm.activation)
    layer = whole_layer(whole, projections, norm, monkeypatch)
    out = run(whole, layer, torch.zeros(3, 8))
    torch.testing.assert_close(out, expected.flatten(1), rtol=1e-5, atol=1e-5)
    assert torch.equal(whole.ssm_pool, split.ssm_pool) and torch.equal(whole.conv_pool, split.conv_pool)
    assert whole.tracked_decodes == [LAYER]


@pytest.mark.parametrize("reason", ["verify", "fp8", "no tokens", "ReplaySSM", "other backend", "compiled"])
def test_what_is_left_to_sglang(reason: str, norm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    layer = whole_layer(rig, rig.raw_projections(3)[0], norm, monkeypatch)
    hidden_states: Any = torch.zeros(0 if reason == "no tokens" else 3, 8)
    if reason == "fp8":
        hidden_states = (hidden_states, hidden_states)
    elif reason == "ReplaySSM":
        rig.backend.decodes_whole_layers = False
    elif reason == "other backend":
        monkeypatch.setattr("sglang.srt.model_executor.forward_context.get_attn_backend", object)
    elif reason == "compiled":
        monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    before = rig.ssm_pool.clone()
    assert run(rig, layer, hidden_states, is_decode=reason != "verify") is STOCK
    assert torch.equal(rig.ssm_pool, before)


def test_a_layer_class_without_the_hook_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry

    from sglang_gdn.serving.errors import GdnServingError

    line = type(compat.select()[0])()
    monkeypatch.setattr(HookRegistry, "register", lambda *_: None)
    monkeypatch.setattr(HookRegistry, "apply_hooks", lambda: None)
    with pytest.raises(GdnServingError, match=r"GatedDeltaNet\.forward is not applied"):
        line._hook_worker()
