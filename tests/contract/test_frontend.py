"""Convolution, split, l2norm and gates in one call: rows of any length, windows in slots, strided projections."""

from __future__ import annotations

import pytest
import torch

import cases
from cases import ACTIVATIONS, ASYMMETRIC, BF16, F16, F32, QWEN, QWEN_TP, SMALL, TRIPLE, Heads, name_of, small
from compare import assert_bit_equal
from problems import Frontend, fused_layer, offsets
from sglang_gdn import ops

pytestmark = pytest.mark.needs("frontend")

LENS = [9, 0, 1, 2, 3, 70]


def check(device, heads, lens, *, extra_pitch=0, norm=True, changes=None, **options) -> None:
    problem = fused_layer(device, heads, lens=lens, **options)
    changes = {} if changes is None else changes
    problem.check_frontend(problem.frontend(extra_pitch, norm, **changes), norm, **changes)


def assert_same(actual: Frontend, expected: Frontend) -> None:
    for name, x in actual.tensors().items():
        assert_bit_equal(x, getattr(expected, name), name)
    assert_bit_equal(actual.conv.tensor, expected.conv.tensor, "conv_pool")
    actual.conv.assert_only_wrote(range(len(actual.conv.tensor)), "conv_pool")


@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta"])
@pytest.mark.parametrize("options", [{"act": F32}, QWEN], ids=["float32", "qwen"])
def test_one_wrong_element_is_noticed(device, name, options):
    problem = fused_layer(device, small(1, 2), lens=[9], **options)
    run = problem.frontend()
    problem.check_frontend(run)
    getattr(run, name)[8].view(-1)[-1] += 0.2
    with pytest.raises(AssertionError):
        problem.check_frontend(run)


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("conv", [F32, BF16, F16], ids=name_of)
@pytest.mark.parametrize("width", cases.CONV_WIDTHS)
@pytest.mark.parametrize("bias", [False, True])
def test_dtypes_and_widths(device, act, conv, width, bias):
    check(device, SMALL, LENS, act=act, conv=conv, width=width, bias=bias, pad_tokens=3)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("activation", [None, "silu", "swish"])
def test_l2norm_and_activation(device, norm, activation):
    check(device, SMALL, LENS, norm=norm, activation=activation)
    check(device, SMALL, LENS, norm=norm, activation=activation, **QWEN)


@pytest.mark.parametrize("heads", [*ASYMMETRIC, Heads(1, 3, 8, 24), Heads(2, 2, 40, 16)], ids=str)
@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
def test_head_sizes(device, heads, act):
    check(device, heads, LENS, act=act, conv=act, bias=False)


@pytest.mark.parametrize("heads", QWEN_TP, ids=str)
def test_heads_of_the_models(device, heads):
    check(device, heads, [5, 2, 21], **QWEN)


@pytest.mark.parametrize("lens", cases.VARLEN.values(), ids=cases.VARLEN)
@pytest.mark.parametrize("index", cases.INDEX_DTYPES, ids=name_of)
def test_packed_rows(device, lens, index):
    check(device, small(1, 2), lens, index_dtype=index, pad_tokens=3, **QWEN)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 20, 21, 23, 24, 25])
def test_a_row_for_every_slot(device, length):
    """Boundaries of rows at every distance from the boundaries of tiles."""
    lens = [length] * 40
    check(device, Heads(1, 1), lens, initial=[n % 3 != 0 for n in range(40)], **QWEN)


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("initial", [None, [False, True, False, True]], ids=["continued", "mixed"])
@pytest.mark.parametrize("options", [{"act": BF16, "conv": F32}, QWEN], ids=["float32-pool", "qwen"])
def test_slots(device, ids, initial, options):
    check(device, SMALL, [5, 2, 1, 30], ids=ids, initial=initial, extra_pitch=96, **options)


@pytest.mark.parametrize("stale", [1e4, torch.nan, torch.inf])
@pytest.mark.parametrize("options", [{"act": F32}, QWEN], ids=["float32", "qwen"])
def test_stale_window_is_ignored_without_initial_state(device, stale, options):
    problem = fused_layer(device, SMALL, lens=[5, 1, 3, 30, 0], initial=[False, True, False, False, False], **options)
    fresh = problem.rows["cache_indices"][~problem.rows["has_initial_state"]].long()
    problem.conv[fresh] = 0
    expected = problem.frontend()
    problem.check_frontend(expected)
    problem.conv[fresh] = stale
    assert_same(problem.frontend(), expected)


def test_padding_is_zero_and_its_slots_are_never_read(device):
    """Every value that belongs to no live row is NaN."""
    for options in ({"act": F32}, QWEN):
        problem = fused_layer(device, SMALL, lens=[5, 4, 30], ids=[2, -1, 4], pad_tokens=40, **options)
        problem.tokens["mixed_qkv"][5:9] = torch.nan
        spare = [slot for slot in range(len(problem.conv)) if slot not in (2, 4)]
        problem.conv[spare] = torch.nan
        run = problem.frontend()
        for x in (run.q, run.k, run.v):
            assert (x[5:9] == 0).all() and (x[39:] == 0).all() and x.isfinite().all()
        assert run.conv.tensor[[2, 4]].isfinite().all()
        run.conv.assert_only_wrote([2, 4], "conv_pool")


@pytest.mark.parametrize("index", cases.INDEX_DTYPES, ids=name_of)
@pytest.mark.parametrize("options", [{"act": F32, "conv": BF16}, QWEN], ids=["float32", "qwen"])
def test_snapshot_of_the_window(device, index, options):
    """The destination gets the raw inputs before ``track_lens``, of short and empty rows and between tiles too."""
    lens = [70, 3, 2, 0, 5, 9]
    changes = {
        "track_slots": torch.tensor([6, 7, -1, 8, -1, 5], dtype=index, device=device),
        "track_lens": torch.tensor([64, 1, 2, 0, 5, 9], dtype=index, device=device),
    }
    check(
        device, SMALL, lens, ids=[0, 1, 2, 3, -1, 4], initial=[True, True, False, True, True, False], index_dtype=index,
        changes=changes, **options,
    )  # fmt: skip


def columns_of(x, before, after):
    """``x`` as columns of a wider NaN buffer."""
    wide = torch.full((len(x), before + x.shape[1] + after), torch.nan, dtype=x.dtype, device=x.device)
    view = wide[:, before : before + x.shape[1]]
    view.copy_(x)
    return view


@pytest.mark.parametrize("before", [0, 8, 4, 1])
@pytest.mark.parametrize("after", [0, 256, 2])
def test_views_of_a_projection(device, before, after):
    problem = fused_layer(device, SMALL, lens=[30, 5], **QWEN)
    views = {name: columns_of(x, before, after) for name, x in problem.tokens.items()}
    assert_same(problem.frontend(**views), problem.frontend())


@pytest.mark.parametrize("options", [{}, QWEN], ids=["default", "qwen"])
@pytest.mark.parametrize("heads", [SMALL, TRIPLE, Heads(1, 2, 64, 128)], ids=str)
def test_equals_the_convolution_and_the_gates_bit_for_bit(device, heads, options):
    problem = fused_layer(device, heads, lens=[30, 0, 5, 1], initial=[True, False, False, True], **options)
    run, conv = problem.frontend(norm=False), problem.pools()[0]
    layer, tokens = problem.layer, problem.tokens
    y = ops.causal_conv1d(
        tokens["mixed_qkv"], layer.conv_weight, layer.conv_bias, conv_pool=conv.tensor, **problem.rows
    )
    g, beta = ops.gdn_gating(layer.A_log, tokens["a"], tokens["b"], layer.dt_bias)
    assert_bit_equal(torch.cat([x.flatten(1) for x in (run.q, run.k, run.v)], dim=1), y, "qkv")
    assert_bit_equal(run.g, g[0], "g")
    assert_bit_equal(run.beta, beta[0], "beta")
    assert_bit_equal(run.conv.storage, conv.storage, "conv_pool")


@pytest.mark.parametrize("options", [{}, QWEN], ids=["default", "qwen"])
def test_feeds_the_chunk_rule(device, options):
    """With the norm left to the chunk rule the two calls are ``gdn_prefill``, bit for bit."""
    problem = fused_layer(device, SMALL, lens=[66, 5, 1], ids=[0, -1, 8], **options)
    fused, run, ssm = problem.prefill(), problem.frontend(norm=False), problem.pools()[1]
    out = problem.nan_out(1, 72)
    ops.chunk_gated_delta_rule(
        *(x[None] for x in run.tensors().values()), cu_seqlens=problem.rows["query_start_loc"],
        use_qk_l2norm_in_kernel=True, ssm_pool=ssm.tensor, cache_indices=problem.rows["cache_indices"], out=out,
    )  # fmt: skip
    assert_bit_equal(out[0], fused.o, "o")
    assert_bit_equal(ssm.storage, fused.ssm.storage, "ssm_pool")
    assert_bit_equal(run.conv.storage, fused.conv.storage, "conv_pool")


@pytest.mark.parametrize("split", [1, 2, 3, 4, 50])
@pytest.mark.parametrize("options", [{"act": F32}, QWEN], ids=["float32", "qwen"])
def test_two_calls_equal_one_bit_for_bit(device, split, options):
    problem = fused_layer(device, SMALL, lens=[100], **options)
    whole = problem.frontend()
    halves = []
    for rows in (slice(0, split), slice(split, 100)):
        tokens = {name: x[rows] for name, x in problem.tokens.items()}
        bounds = offsets([len(tokens["a"])]).to(device)
        halves.append(problem.frontend(**tokens, query_start_loc=bounds))
        problem.conv = halves[-1].conv.tensor.clone()
    for name, x in whole.tensors().items():
        assert_bit_equal(torch.cat([getattr(half, name) for half in halves]), x, name)
    assert_bit_equal(halves[1].conv.tensor, whole.conv.tensor, "conv_pool")


def test_a_row_does_not_depend_on_its_batch(device):
    """One row alone, and among others that shift it against every tile."""
    single = fused_layer(device, SMALL, lens=[70], ids=[0], **QWEN)
    alone = single.frontend()
    for before in ([1], [2, 5], [64], [7] * 19, [300]):
        lens = [*before, 70, 9]
        problem = fused_layer(device, SMALL, lens=lens, ids=[*range(1, len(before) + 1), 0, 30], seed=1, **QWEN)
        problem.layer = single.layer
        rows = slice(sum(before), sum(before) + 70)
        for name, x in problem.tokens.items():
            x[rows] = single.tokens[name]
        problem.conv[0] = single.conv[0]
        packed = problem.frontend()
        for name, x in alone.tensors().items():
            assert_bit_equal(getattr(packed, name)[rows], x, f"{name} after {before}")
        assert_bit_equal(packed.conv.tensor[0], alone.conv.tensor[0], "conv state")


def test_no_tokens(device):
    problem = fused_layer(device, SMALL, lens=[0, 0])
    run = problem.frontend()
    assert run.q.shape == (0, SMALL.H, SMALL.K) and run.v.shape == (0, SMALL.HV, SMALL.V)
    run.conv.assert_untouched("conv_pool")
