"""Strides, slot pitch and index dtype never change a bit of the result."""

from __future__ import annotations

import pytest
import torch

import cases
from cases import ACTIVATIONS, BF16, F16, SMALL, TRIPLE, Heads, name_of, small
from compare import assert_bit_equal
from problems import delta_rule, fused_layer, update
from sglang_gdn import ops


def assert_same_run(actual, expected) -> None:
    assert_bit_equal(actual.o, expected.o, "o")
    for name in ("ssm", "conv"):
        pool, reference = getattr(actual, name), getattr(expected, name)
        if pool is not None:
            assert_bit_equal(pool.tensor, reference.tensor, f"{name}_pool")
            pool.assert_only_wrote(range(len(pool.tensor)), f"{name}_pool")


def columns_of(x: torch.Tensor, before: int, after: int) -> torch.Tensor:
    """``x`` as columns of a wider NaN buffer: a larger row pitch and an offset, unit stride inside."""
    wide = torch.full((*x.shape[:-1], before + x.shape[-1] + after), torch.nan, dtype=x.dtype, device=x.device)
    view = wide[..., before : before + x.shape[-1]]
    view.copy_(x)
    return view


def packed_heads(q, k, v) -> list[torch.Tensor]:
    """q, k, v as slices of one [..., 2*H*K + HV*V] buffer."""
    packed = torch.cat([x.flatten(-2) for x in (q, k, v)], dim=-1)
    parts = packed.split([x.shape[-2] * x.shape[-1] for x in (q, k, v)], dim=-1)
    return [part.unflatten(-1, x.shape[-2:]) for part, x in zip(parts, (q, k, v), strict=True)]


def head_major(x: torch.Tensor) -> torch.Tensor:
    """The same tensor with heads outermost in memory."""
    return x.movedim(-2, 0).contiguous().movedim(0, -2)


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("heads", [TRIPLE, Heads(1, 3), Heads(2, 6, 64, 128)], ids=str)
def test_heads_sliced_from_a_packed_projection(device, heads, act):
    for problem in (delta_rule(device, heads, [70, 5], act=act), update(device, heads, 3, 2, act=act)):
        q, k, v = packed_heads(*(problem.args[name] for name in ("q", "k", "v")))
        assert not q.is_contiguous()
        assert_same_run(problem.run(q=q, k=k, v=v), problem.run())


@pytest.mark.parametrize("layout", [head_major, lambda x: columns_of(x, 3, 5)], ids=["head-major", "padded-heads"])
def test_free_strides_of_heads(device, layout):
    for problem in (delta_rule(device, TRIPLE, [70, 5]), update(device, TRIPLE, 3, 2)):
        strided = {name: layout(problem.args[name]) for name in ("q", "k", "v")}
        assert not strided["q"].is_contiguous()
        assert_same_run(problem.run(**strided), problem.run())


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_views_of_the_fused_projections(device, phase, act):
    """mixed_qkv, a and b as column ranges of wider projections, surrounded by NaN."""
    size = {"lens": [66, 5, 1]} if phase == "prefill" else {"batch": 3}
    problem = fused_layer(device, SMALL, act=act, **size)
    value_dim = SMALL.HV * SMALL.V
    views = {
        "mixed_qkv": columns_of(problem.tokens["mixed_qkv"], 0, value_dim),
        "a": columns_of(problem.tokens["a"], SMALL.HV, 1),
        "b": columns_of(problem.tokens["b"], 1, SMALL.HV),
    }
    run = getattr(problem, phase)
    assert_same_run(run(**views), run())


def test_gates_as_views(device):
    problem = delta_rule(device, SMALL, [70, 5])
    views = {name: columns_of(problem.args[name], 3, 2) for name in ("g", "beta")}
    assert_same_run(problem.run(**views), problem.run())
    problem = update(device, SMALL, 3, 2)
    views = {name: columns_of(problem.args[name], 3, 2) for name in ("a", "b")}
    assert_same_run(problem.run(**views), problem.run())


@pytest.mark.parametrize("rows_apart", [True, False])
def test_verify_of_views(device, rows_apart):
    problem = fused_layer(device, SMALL, batch=3, drafts=4, act=BF16)
    expected = problem.verify(3, [2, 0, 1])
    problem.tokens = {
        name: columns_of(x, 8, 8) if rows_apart else columns_of(x.flatten(1), 0, 24).unflatten(1, (4, -1))
        for name, x in problem.tokens.items()
    }
    assert not problem.tokens["mixed_qkv"].is_contiguous()
    run = problem.verify(3, [2, 0, 1])
    assert_bit_equal(run.o, expected.o, "o")
    assert_bit_equal(run.intermediate_ssm, expected.intermediate_ssm, "intermediate_ssm")
    assert_bit_equal(run.intermediate_conv, expected.intermediate_conv, "windows")


@pytest.mark.parametrize("extra_pitch", cases.EXTRA_PITCH)
@pytest.mark.parametrize("state", cases.STATES, ids=name_of)
def test_slot_pitch(device, extra_pitch, state):
    for problem in (
        delta_rule(device, SMALL, [70, 5], state=state), update(device, SMALL, 3, 2, state=state)
    ):  # fmt: skip
        assert_same_run(problem.run(extra_pitch), problem.run())
    for phase, size in (("prefill", {"lens": [66, 5]}), ("decode", {"batch": 3})):
        run = getattr(fused_layer(device, SMALL, state=state, conv=state, **size), phase)
        assert_same_run(run(extra_pitch), run())


def test_pools_that_span_layers(device):
    """The pool of one layer is a slice of [slots, layers, ...]: its pitch covers every layer of a slot."""
    problem = fused_layer(device, SMALL, lens=[66, 5], ids=[3, 0])
    expected = problem.prefill()
    layers = 3
    conv, ssm = (
        torch.full((pool.shape[0], layers, *pool.shape[1:]), torch.nan, device=device)
        for pool in (problem.conv.mT if cases.WINDOWS_BY_TOKEN else problem.conv, problem.ssm)
    )
    conv = conv.mT if cases.WINDOWS_BY_TOKEN else conv
    conv[:, 1], ssm[:, 1] = problem.conv, problem.ssm
    o = ops.gdn_prefill(
        **problem.tokens, **problem.rows, **problem.layer.kwargs(), conv_pool=conv[:, 1], ssm_pool=ssm[:, 1]
    )
    assert_bit_equal(o[0], expected.o, "o")
    assert_bit_equal(ssm[:, 1], expected.ssm.tensor, "ssm_pool")
    assert_bit_equal(conv[:, 1], expected.conv.tensor, "conv_pool")
    assert ssm[:, [0, 2]].isnan().all() and conv[:, [0, 2]].isnan().all(), "the other layers"


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_index_dtype(device, phase):
    size = {"lens": [66, 0, 5, 1]} if phase == "prefill" else {"batch": 4}
    runs = [
        getattr(fused_layer(device, SMALL, ids=[8, 2, -1, 0], index_dtype=dtype, **size), phase)()
        for dtype in cases.INDEX_DTYPES
    ]
    assert_same_run(*runs)


@pytest.mark.parametrize("offsets_dtype", cases.INDEX_DTYPES, ids=name_of)
@pytest.mark.parametrize("ids_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_offsets_and_slots_may_differ_in_dtype(device, offsets_dtype, ids_dtype):
    problem = delta_rule(device, SMALL, [66, 5])
    run = problem.run(
        cu_seqlens=problem.args["cu_seqlens"].to(offsets_dtype),
        cache_indices=problem.args["cache_indices"].to(ids_dtype),
    )
    assert_same_run(run, problem.run())


def test_ids_beyond_4096(device):
    problem = update(device, small(1, 1), 3, ids=[4096, 4095, 5000])
    problem.check(problem.run(), problem.expected())
    problem = delta_rule(device, small(1, 1), [5, 3, 66], ids=[4096, 4095, 5000])
    problem.check(problem.run(), problem.expected())


def test_state_of_unequal_sides_is_value_major(device):
    """V = 128 rows of K = 64: one written token leaves v in the rows and k in the columns."""
    heads = Heads(1, 1, 64, 128)
    problem = delta_rule(device, heads, [1], ids=[0], initial=[False], gates="beta-1", norm=False)
    state = problem.run().ssm.tensor[0, 0]
    v, k = problem.args["v"][0, 0, 0], problem.args["k"][0, 0, 0]
    torch.testing.assert_close(state, torch.outer(v, k))


def test_calls_of_different_dtypes_do_not_disturb_each_other(device):
    """Three calls in one process: results follow the dtype of each call, and kept outputs stay as they were."""
    problems = {act: fused_layer(device, SMALL, lens=[66, 5], act=act) for act in cases.PREFILL_ACTIVATIONS}
    kept = [(act, problems[act].prefill()) for act in (BF16, F16, BF16, *problems)]
    copies = [run.o.clone() for _, run in kept]
    for problem in problems.values():
        problem.prefill()
    for (act, run), copy in zip(kept, copies, strict=True):
        assert run.o.dtype == act
        assert_bit_equal(run.o, copy, "a kept output")
    assert_bit_equal(kept[0][1].o, kept[2][1].o, "two calls in bfloat16")
    for act, run in kept:
        problems[act].check_prefill(run, problems[act].expected_prefill())


def test_outputs_of_two_calls_do_not_share_memory(device):
    problem = fused_layer(device, SMALL, batch=3)
    layer = problem.layer.kwargs()
    conv, ssm = problem.pools()
    outputs = [
        ops.gdn_decode(**problem.tokens, **problem.rows, **layer, conv_pool=conv.tensor, ssm_pool=ssm.tensor)
        for _ in range(2)
    ]
    assert outputs[0].data_ptr() != outputs[1].data_ptr()
    assert not torch.equal(*outputs)
