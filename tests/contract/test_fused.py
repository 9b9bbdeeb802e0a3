"""Fused operators equal their composition, which is counted, logged once and forbidden under SGLANG_GDN_STRICT=1."""

from __future__ import annotations

import logging

import pytest
import torch

from cases import ACTIVATIONS, ASYMMETRIC, BF16, F32, SMALL, TRIPLE, name_of
from compare import assert_bit_equal, assert_close, assert_zero
from problems import fused_layer, gate_of, norm_of, offsets, projections
from sglang_gdn import ops
from sglang_gdn.errors import GdnFallbackError, GdnNoKernelError
from sglang_gdn.stats import reset, stats
from tolerances import limit

PHASES = ["gdn_prefill", "gdn_decode", "gdn_verify"]
REASON = "no kernel of this operator is built"

fused_kernels = pytest.mark.needs("fused_kernels")


@pytest.fixture(autouse=True)
def fresh_counters():
    reset()
    yield
    reset()


@pytest.fixture
def without_fused_kernels(monkeypatch):
    """The fused operators find no kernel, as on a device that has none."""
    for op in PHASES:

        def refuse(*args, op=op):
            raise GdnNoKernelError(REASON, op, "specialization")

        monkeypatch.setattr(ops._C, op, refuse)


def problem_of(op, device, heads=SMALL, **options):
    ids = [0, -1, 8]
    match op:
        case "gdn_prefill":
            return fused_layer(device, heads, lens=[66, 5, 1], ids=ids, initial=[True, True, False], **options)
        case "gdn_decode":
            return fused_layer(device, heads, batch=3, ids=ids, **options)
        case _:
            return fused_layer(device, heads, batch=3, drafts=4, ids=ids, **options)


def run(problem, op, **changes):
    if op == "gdn_verify":
        return problem.verify(4, [3, 1, 0], **changes)
    return getattr(problem, op.removeprefix("gdn_"))(**changes)


def assert_same(actual, expected) -> None:
    assert_bit_equal(actual.o, expected.o, "o")
    assert_bit_equal(actual.ssm.storage, expected.ssm.storage, "ssm_pool")
    assert_bit_equal(actual.conv.storage, expected.conv.storage, "conv_pool")
    for name in ("h", "intermediate_conv"):
        if getattr(expected, name) is not None:
            assert_bit_equal(getattr(actual, name), getattr(expected, name), name)
    if expected.intermediate_ssm is not None:
        assert_bit_equal(actual.intermediate_ssm[[3, 0]], expected.intermediate_ssm[[3, 0]], "intermediate_ssm")


@fused_kernels
@pytest.mark.parametrize("op", PHASES)
@pytest.mark.parametrize("heads", [SMALL, TRIPLE, *ASYMMETRIC], ids=str)
@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
def test_composition_is_the_same_bit_for_bit(device, op, heads, act, request):
    problem = problem_of(op, device, heads, act=act, conv=act)
    fused = run(problem, op)
    if device != "cpu" and stats()["fallbacks"]:
        pytest.skip(f"{device} has no {op} for these heads")
    assert stats()["fallbacks"] == {}
    request.getfixturevalue("without_fused_kernels")
    composed = run(problem, op)
    assert_same(composed, fused)
    assert stats()["fallbacks"] == {f"{op}: {REASON}": 1}


@fused_kernels
@pytest.mark.parametrize("state", [F32, BF16], ids=name_of)
def test_composed_prefill_passes_every_option_on(device, state, request):
    problem = fused_layer(
        device, SMALL, lens=[130, 5], ids=[0, 3], initial=[True, False], state=state, activation=None, bias=False,
        index_dtype=torch.int64,
    )  # fmt: skip

    def options():
        return {
            "track_state": torch.full((2, *problem.ssm.shape[1:]), torch.nan, device=device),
            "track_chunk_idx": torch.tensor([2, -1], device=device),
            "track_slots": torch.tensor([7, 6], device=device), "track_lens": torch.tensor([128, 4], device=device),
            "output_h": True, "scale": 0.3,
        }  # fmt: skip

    first, second = options(), options()
    fused = problem.prefill(**first)
    request.getfixturevalue("without_fused_kernels")
    composed = problem.prefill(**second)
    assert_same(composed, fused)
    assert_bit_equal(second["track_state"], first["track_state"], "track_state")


@fused_kernels
@pytest.mark.parametrize("layout", ["contiguous", "interleaved"])
@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
def test_composed_decode_passes_every_option_on(device, layout, activation, act, request):
    problem = problem_of("gdn_decode", device, TRIPLE, act=act, conv=act)
    options = projections(problem, gate_of(problem), layout) | norm_of(problem, activation=activation, eps=0.1)
    options |= {"scale": 0.3, "track_slots": torch.tensor([3, 4, -1], device=device)}
    fused = problem.decode(**options)
    request.getfixturevalue("without_fused_kernels")
    composed = problem.decode(**options)
    assert_bit_equal(composed.ssm.storage, fused.ssm.storage, "ssm_pool")
    assert_bit_equal(composed.conv.storage, fused.conv.storage, "conv_pool")
    assert_close(composed.o, fused.o.double(), limit(device, "decode_o", act), "o")
    assert_zero(composed.o[1], "o of padding")


@fused_kernels
def test_composed_verify_of_a_tree(device, request):
    problem = problem_of("gdn_verify", device)
    parents = torch.tensor([[-1, 0, 0, 1]] * 3, device=device)
    fused = run(problem, "gdn_verify", parents=parents)
    request.getfixturevalue("without_fused_kernels")
    assert_same(run(problem, "gdn_verify", parents=parents), fused)


@fused_kernels
@pytest.mark.parametrize("op", PHASES)
def test_calls_are_counted(device, op):
    problem = problem_of(op, device)
    for _ in range(3):
        run(problem, op)
    assert stats()["calls"] == {f"{op}/{device}": 3}


@pytest.mark.parametrize("op", PHASES)
def test_composition_is_counted_and_logged_once(device, op, without_fused_kernels, caplog):
    problem = problem_of(op, device)
    with caplog.at_level(logging.WARNING, logger="sglang_gdn"):
        for _ in range(3):
            run(problem, op)
    counters = stats()
    assert counters["fallbacks"] == {f"{op}: {REASON}": 3}
    parts = {
        "gdn_prefill": {"causal_conv1d", "gdn_gating", "chunk_gated_delta_rule"},
        "gdn_decode": {"causal_conv1d_update", "fused_sigmoid_gating_delta_rule_update"},
        "gdn_verify": {"causal_conv1d_update", "fused_sigmoid_gating_delta_rule_update"},
    }[op]
    assert counters["calls"] == {f"{part}/{device}": 3 for part in parts}
    assert [record.getMessage() for record in caplog.records] == [f"fallback of {op}: {REASON}"]


@pytest.mark.parametrize("op", PHASES)
def test_strict_forbids_composition_and_touches_nothing(device, op, without_fused_kernels, monkeypatch):
    monkeypatch.setenv("SGLANG_GDN_STRICT", "1")
    problem = problem_of(op, device)
    conv, ssm = problem.pools()
    problem.pools = lambda extra_pitch=0: (conv, ssm)
    with pytest.raises(GdnFallbackError, match=f"SGLANG_GDN_STRICT=1 forbids a fallback of {op}: {REASON}"):
        run(problem, op)
    conv.assert_untouched("conv_pool")
    ssm.assert_untouched("ssm_pool")
    assert stats() == {"calls": {}, "fallbacks": {}, "phases": {}}


@pytest.mark.parametrize("op", PHASES)
def test_a_part_that_refuses_leaves_no_state_half_done(device, op, without_fused_kernels, monkeypatch):
    part = "chunk_gated_delta_rule" if op == "gdn_prefill" else "fused_sigmoid_gating_delta_rule_update"

    def refuse(*args):
        raise GdnNoKernelError(REASON, part, "specialization")

    monkeypatch.setattr(ops._C, part, refuse)
    problem = problem_of(op, device)
    conv, ssm = problem.pools()
    problem.pools = lambda extra_pitch=0: (conv, ssm)
    with pytest.raises(GdnNoKernelError) as refused:
        run(problem, op)
    assert refused.value.op == part
    conv.assert_untouched("conv_pool")
    ssm.assert_untouched("ssm_pool")
    assert stats() == {"calls": {}, "fallbacks": {}, "phases": {}}


@fused_kernels
@pytest.mark.parametrize("op", PHASES)
def test_strict_allows_the_fused_kernel(device, op, monkeypatch):
    monkeypatch.setenv("SGLANG_GDN_STRICT", "1")
    run(problem_of(op, device), op)


def test_an_error_of_the_caller_is_no_reason_to_compose(device):
    problem = problem_of("gdn_prefill", device)
    with pytest.raises(ValueError, match="gdn_prefill: a must be"):
        problem.prefill(a=problem.tokens["a"][:, :-1])
    assert stats() == {"calls": {}, "fallbacks": {}, "phases": {}}


def test_prefill_is_the_composition_of_public_operators(device):
    """The three calls written out by hand give the bits of the one."""
    problem = fused_layer(device, TRIPLE, lens=[66, 5], ids=[0, 3], act=BF16, conv=BF16)
    fused = problem.prefill()
    conv, ssm = problem.pools()
    rows = {"query_start_loc": offsets([66, 5]).to(device), "cache_indices": problem.rows["cache_indices"]}
    layer, tokens = problem.layer, problem.tokens
    y = ops.causal_conv1d(tokens["mixed_qkv"], layer.conv_weight, layer.conv_bias, conv_pool=conv.tensor, **rows)
    g, beta = ops.gdn_gating(layer.A_log, tokens["a"], tokens["b"], layer.dt_bias)
    q, k, v = y.split([layer.H * layer.K, layer.H * layer.K, layer.HV * layer.V], dim=-1)
    o, _ = ops.chunk_gated_delta_rule(
        q.unflatten(-1, (layer.H, layer.K))[None], k.unflatten(-1, (layer.H, layer.K))[None],
        v.unflatten(-1, (layer.HV, layer.V))[None], g, beta, cu_seqlens=rows["query_start_loc"],
        use_qk_l2norm_in_kernel=True, ssm_pool=ssm.tensor, cache_indices=rows["cache_indices"],
    )  # fmt: skip
    assert_bit_equal(o[0], fused.o, "o")
    assert_bit_equal(ssm.storage, fused.ssm.storage, "ssm_pool")
    assert_bit_equal(conv.storage, fused.conv.storage, "conv_pool")
