"""vLLM's layer on our operators, through modules with the recorded names of vLLM 0.33.0, which is not installed."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import cases
from cases import Heads
from problems import FusedLayer, Run, fused_layer
from sglang_gdn.errors import GdnFallbackError, GdnUnsupportedError
from sglang_gdn.integrations import vllm
from sglang_gdn.stats import reset, stats

RECORD = json.loads((Path(__file__).parent / f"vllm-{vllm.INTERFACE_OF}.json").read_text())
NULL_BLOCK = RECORD["null_block_id"]
PREFIX = "model.layers.0.linear_attn"
HEADS = Heads(H=2, HV=4, K=32, V=32)

pytestmark = pytest.mark.skipif("vllm" in sys.modules, reason="the real vLLM is loaded")


def function_of(parameters: list[str]) -> Any:
    namespace: dict[str, Any] = {}
    exec(f"def stock({', '.join(parameters)}): raise AssertionError('vLLM kernels were called')", namespace)
    return namespace["stock"]


@pytest.fixture
def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Modules with the recorded classes, fields and parameters, in place of vLLM's."""
    for path, parameters in RECORD["symbols"].items():
        module_name, _, attributes = path.partition(":")
        parts = module_name.split(".")
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            if name not in sys.modules:
                monkeypatch.setitem(sys.modules, name, ModuleType(name))
        owner: Any = sys.modules[module_name]
        *classes, symbol = attributes.split(".")
        for name in classes:
            if not hasattr(owner, name):
                setattr(owner, name, type(name, (), {}))
            owner = getattr(owner, name)
        setattr(owner, symbol, None if parameters is None else function_of(parameters))
    fake = SimpleNamespace(
        context=SimpleNamespace(attn_metadata=None),
        layers=sys.modules["vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"],
        metadata=sys.modules["vllm.v1.attention.backends.gdn_attn"].GDNAttentionMetadata,
        mamba_utils=sys.modules["vllm.model_executor.layers.mamba.mamba_utils"],
        platforms=sys.modules["vllm.platforms"],
    )
    sys.modules["vllm.forward_context"].get_forward_context = lambda: fake.context
    sys.modules["vllm.v1.attention.backends.utils"].NULL_BLOCK_ID = NULL_BLOCK
    fake.mamba_utils.is_conv_state_dim_first = lambda: True
    fake.platforms.current_platform = SimpleNamespace(is_cuda=lambda: True)
    monkeypatch.setattr(vllm, "version", lambda name: {"vllm": f"{vllm.INTERFACE_OF}+cu130"}[name])
    monkeypatch.setenv(vllm.SWITCH, "1")
    return fake


@pytest.fixture
def core(fake_vllm: SimpleNamespace) -> Any:
    vllm.register()
    return fake_vllm.layers.QwenGatedDeltaNetAttention._forward_core


def forward(fake: SimpleNamespace, core: Any, problem: FusedLayer, decodes: int, tokens: int, **changes: object) -> Run:
    """The first ``decodes`` rows are decoded, the others are prompts; ``tokens`` of those given are in the batch."""
    layer, rows = problem.layer, problem.rows
    conv, ssm = problem.pools(extra_pitch=192)
    blocks, starts = rows["cache_indices"], rows["query_start_loc"]
    prompts = len(blocks) - decodes
    metadata = fake.metadata()
    for field, value in {
        "num_prefills": prompts, "num_decodes": decodes, "num_decode_tokens": decodes, "num_actual_tokens": tokens,
        "non_spec_state_indices_tensor": blocks,
        "prefill_query_start_loc": starts[decodes:] - decodes if prompts else None,
        "prefill_state_indices": blocks[decodes:] if prompts else None,
        "prefill_has_initial_state": rows["has_initial_state"][decodes:] if prompts else None,
    }.items():  # fmt: skip
        setattr(metadata, field, changes.get(field, value))
    for field in ("spec_sequence_masks", "flashinfer_checkpoint_plan"):
        setattr(metadata, field, changes.get(field))
    fake.context.attn_metadata = {PREFIX: metadata}
    ranks = 2
    vllm_layer = SimpleNamespace(
        prefix=PREFIX, kv_cache=(conv.tensor, ssm.tensor), A_log=torch.nn.Parameter(layer.A_log),
        dt_bias=layer.dt_bias, conv1d=SimpleNamespace(weight=layer.conv_weight.unsqueeze(1), bias=layer.conv_bias),
        num_k_heads=ranks * layer.H, num_v_heads=ranks * layer.HV, tp_size=ranks, head_k_dim=layer.K,
        head_v_dim=layer.V, activation="silu",
    )  # fmt: skip
    inputs = problem.tokens
    out = torch.zeros((len(inputs["a"]), layer.HV, layer.V), dtype=problem.activation, device=problem.device)
    with torch.no_grad():
        core(vllm_layer, mixed_qkv=inputs["mixed_qkv"], b=inputs["b"], a=inputs["a"], core_attn_out=out)
    return Run(out, ssm=ssm, conv=conv)


BATCHES = {
    "prompts": (0, [70, 5, 1], [0, 1, 1]),
    "decodes": (3, [1, 1, 1], [1, 1, 1]),
    "both": (2, [1, 1, 130, 3], [1, 1, 1, 0]),
}


@pytest.mark.parametrize("act", [torch.bfloat16, torch.float32], ids=cases.name_of)
@pytest.mark.parametrize("batch", BATCHES)
def test_batches_against_the_oracle(
    device: str, fake_vllm: SimpleNamespace, core: Any, batch: str, act: torch.dtype
) -> None:
    """Blocks are pages with other data between them; tokens past the batch are NaN and their rows stay zero."""
    decodes, lens, initial = BATCHES[batch]
    ids = [5, 1, 3, 6][: len(lens)]
    problem = fused_layer(
        device, HEADS, lens=lens, ids=ids, initial=initial, act=act, conv=act, bias=False, pad_tokens=4
    )
    reset()
    run = forward(fake_vllm, core, problem, decodes, sum(lens))
    problem.check_prefill(run, problem.expected_prefill())
    called = {name.split("/")[0] for name in stats()["calls"]}
    assert called >= ({"gdn_decode"} if decodes else set()) | ({"gdn_prefill"} if decodes < len(lens) else set())


def test_the_null_block_is_left_alone(device: str, fake_vllm: SimpleNamespace, core: Any) -> None:
    """Two rows of padding, as a CUDA graph of a larger batch has them."""
    problem = fused_layer(device, HEADS, lens=[1, 1, 1, 1], ids=[4, -1, 2, -1], initial=[1] * 4, bias=False)
    expected = problem.expected_prefill()
    blocks = problem.rows["cache_indices"]
    run = forward(
        fake_vllm, core, problem, 4, 4,
        non_spec_state_indices_tensor=torch.where(blocks < 0, NULL_BLOCK, blocks),
    )  # fmt: skip
    problem.check_prefill(run, expected)


def test_without_metadata_nothing_runs(fake_vllm: SimpleNamespace, core: Any) -> None:
    for attn_metadata in (None, {}, [{}, {}]):
        fake_vllm.context.attn_metadata = attn_metadata
        out = torch.zeros(1)
        assert core(SimpleNamespace(prefix=PREFIX), None, None, None, out) is None
        assert out == 0


@pytest.mark.parametrize("field", ["spec_sequence_masks", "flashinfer_checkpoint_plan"])
def test_what_is_not_replaced_falls_back(
    fake_vllm: SimpleNamespace, core: Any, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = fused_layer("cpu", HEADS, lens=[1], ids=[1], initial=[1], bias=False)
    reset()
    with pytest.raises(AssertionError, match="vLLM kernels were called"):
        forward(fake_vllm, core, problem, 1, 1, **{field: object()})
    assert any(key.startswith("integrations.vllm: ") for key in stats()["fallbacks"])
    monkeypatch.setenv("SGLANG_GDN_STRICT", "1")
    with pytest.raises(GdnFallbackError):
        forward(fake_vllm, core, problem, 1, 1, **{field: object()})


@pytest.mark.parametrize("value", [None, "0", ""])
def test_off_by_default(fake_vllm: SimpleNamespace, value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "version", lambda name: "0.0")
    monkeypatch.delenv(vllm.SWITCH)
    if value is not None:
        monkeypatch.setenv(vllm.SWITCH, value)
    stock = fake_vllm.layers.QwenGatedDeltaNetAttention._forward_core
    vllm.register()
    assert fake_vllm.layers.QwenGatedDeltaNetAttention._forward_core is stock


def test_registering_twice_replaces_once(core: Any, fake_vllm: SimpleNamespace) -> None:
    vllm.register()
    assert fake_vllm.layers.QwenGatedDeltaNetAttention._forward_core is core


def refusal() -> str:
    with pytest.raises(GdnUnsupportedError) as refused:
        vllm.register()
    return str(refused.value)


@pytest.mark.parametrize("installed", ["0.32.0", "0.33.1", "1.0"])
def test_other_versions_are_refused(
    fake_vllm: SimpleNamespace, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "version", lambda name: installed)
    assert f"vllm must be {vllm.INTERFACE_OF}" in refusal()
    assert f"got {installed}" in refusal()


def test_another_interface_is_refused_by_name(fake_vllm: SimpleNamespace) -> None:
    fake_vllm.layers.QwenGatedDeltaNetAttention._forward_core = function_of(["self", "mixed_qkv", "ba", "out"])
    del fake_vllm.metadata.prefill_state_indices
    assert "GDNAttentionMetadata.prefill_state_indices" in refusal()
    assert "got (self, mixed_qkv, ba, out)" in refusal()


def test_another_order_of_conv_states_is_refused(fake_vllm: SimpleNamespace) -> None:
    fake_vllm.mamba_utils.is_conv_state_dim_first = lambda: False
    assert "VLLM_SSM_CONV_STATE_LAYOUT must be DS" in refusal()


def test_another_platform_is_refused(fake_vllm: SimpleNamespace) -> None:
    fake_vllm.platforms.current_platform = SimpleNamespace(is_cuda=lambda: False)
    assert "must be a CUDA GPU" in refusal()


def test_the_record_is_that_of_the_release_and_names_all_that_is_read() -> None:
    assert RECORD["vllm"] == vllm.INTERFACE_OF
    mismatches = [seam.mismatch(RECORD["symbols"][seam.path]) for seam in vllm.SEAMS]
    assert [mismatch for mismatch in mismatches if mismatch] == []
    read: dict[str, set[str]] = {"self": set(), "metadata": set()}
    for node in ast.walk(ast.parse(inspect.getsource(vllm))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in read:
            read[node.value.id].add(node.attr)
    assert len(read["self"]) > 5
    assert read["self"] <= set(RECORD["layer_attributes"])
    assert {f"{vllm._METADATA}.{field}" for field in read["metadata"]} <= set(RECORD["symbols"])
