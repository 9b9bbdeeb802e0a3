"""The causal convolution: packed rows, short rows, windows in slots, snapshots, drafts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import cases
import oracle
import tolerances
from cases import ACTIVATIONS, BF16, F16, F32, SLOTS, name_of
from compare import GuardedPool, assert_bit_equal
from problems import (
    assert_rows,
    assert_slots,
    default_ids,
    live,
    offsets,
    randn,
    token_rows,
    window_buffer,
    window_pool,
)
from sglang_gdn import ops
from tolerances import limit


@dataclass
class Conv:
    device: str
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    pool: Tensor
    ids: Tensor

    def guarded(self) -> GuardedPool:
        return window_pool(self.pool, self.device)

    def nan_out(self) -> Tensor:
        return torch.full_like(self.x, torch.nan)


def conv(device, channels, rows, *shape, width=4, act=None, pool=F32, bias=True, ids=None, index=torch.int32, seed=0):
    gen = torch.Generator().manual_seed(seed)
    act = act or cases.ELEMENTWISE_ACTIVATION
    ids = default_ids(rows) if ids is None else ids
    return Conv(
        device,
        randn(gen, *shape, channels, dtype=act).to(device),
        (randn(gen, channels, width) / width**0.5).to(act).to(device),
        (0.1 * randn(gen, channels)).to(act).to(device) if bias else None,
        randn(gen, max(SLOTS, rows), channels, width - 1, dtype=pool).to(device),
        torch.tensor(ids, dtype=index, device=device),
    )


def assert_output(actual, expected, rows, device, act):
    assert_rows(actual, expected, rows, limit(device, "conv", act), "y")
    if act == BF16:
        assert (actual.cpu().double() - expected).abs().max() <= tolerances.CONV_MAX_ABS_BF16 * max(
            1.0, float(expected.abs().max())
        )


def check_prefill(device, lens, *, initial=None, activation="silu", pad_tokens=0, **options):
    problem = conv(device, options.pop("channels", 70), len(lens), sum(lens) + pad_tokens, **options)
    if pad_tokens:
        problem.x[-pad_tokens:] = torch.nan
    rows = {
        "query_start_loc": offsets(lens, problem.ids.dtype).to(device), "cache_indices": problem.ids,
        "has_initial_state": None if initial is None else torch.tensor(initial, device=device),
    }  # fmt: skip
    pool, out = problem.guarded(), problem.nan_out()
    y = ops.causal_conv1d(
        problem.x, problem.weight, problem.bias, conv_pool=pool.tensor, activation=activation, out=out, **rows
    )
    assert y is out
    expected, after = oracle.causal_conv1d(
        problem.x, problem.weight, problem.bias, conv_pool=problem.pool, silu=activation is not None, **rows
    )
    assert_output(y, expected, token_rows(rows["query_start_loc"], problem.ids), device, problem.x.dtype)
    assert_slots(pool, after.to(pool.tensor.dtype), live(problem.ids), 0, "conv_pool")


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
def test_one_wrong_element_is_noticed(device, act):
    problem = conv(device, 70, 1, 9, act=act)
    bounds = offsets([9]).to(device)
    expected, _ = oracle.causal_conv1d(problem.x, problem.weight, problem.bias, query_start_loc=bounds)
    y = ops.causal_conv1d(problem.x, problem.weight, problem.bias, query_start_loc=bounds)
    assert_output(y, expected, torch.arange(9), device, act)
    y[8, 69] += 0.1
    with pytest.raises(AssertionError):
        assert_output(y, expected, torch.arange(9), device, act)


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("pool", [F32, BF16, F16], ids=name_of)
@pytest.mark.parametrize("width", cases.CONV_WIDTHS)
def test_dtypes_and_widths(device, act, pool, width):
    check_prefill(device, [9, 0, 1, 2, 3, 70], act=act, pool=pool, width=width)


@pytest.mark.parametrize("activation", [None, "silu", "swish"])
@pytest.mark.parametrize("bias", [False, True])
def test_activation_and_bias(device, activation, bias):
    check_prefill(device, [9, 70], activation=activation, bias=bias)


def test_weights_and_bias_in_float32_beside_low_precision_inputs(device):
    problem = conv(device, 70, 1, 9, act=BF16)
    weight, bias = (problem.weight + 1e-4).float(), problem.bias.float() + 1e-4
    bounds = offsets([9]).to(device)
    y = ops.causal_conv1d(problem.x, weight, bias, query_start_loc=bounds)
    expected, _ = oracle.causal_conv1d(problem.x, weight, bias, query_start_loc=bounds)
    assert_output(y, expected, torch.arange(9), device, BF16)


@pytest.mark.parametrize("lens", cases.VARLEN.values(), ids=cases.VARLEN)
@pytest.mark.parametrize("index", cases.INDEX_DTYPES, ids=name_of)
def test_packed_rows(device, lens, index):
    check_prefill(device, lens, index=index, pad_tokens=3, channels=16)


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("initial", [None, [False, True, False, True]], ids=["continued", "mixed"])
@pytest.mark.parametrize("pool", [F32, BF16, F16], ids=name_of)
def test_slots(device, ids, initial, pool):
    check_prefill(device, [5, 2, 1, 3], ids=ids, initial=initial, pool=pool)


@pytest.mark.parametrize("channels", [1, 3, 15, 17, 64, 6144, 8192, 10240, 12288])
def test_channel_counts(device, channels):
    check_prefill(device, [5, 2], channels=channels, act=BF16)


@pytest.mark.parametrize("tokens", range(1023, 1031))
@pytest.mark.parametrize("pooled", [False, True])
def test_nothing_past_the_end_is_read(device, tokens, pooled):
    problem = conv(device, 64, 1, tokens)
    surrounded = torch.full((tokens + 8, 64), torch.nan, dtype=problem.x.dtype, device=device)
    surrounded[4:-4] = problem.x
    pool = problem.guarded()
    state = {"conv_pool": pool.tensor, "cache_indices": problem.ids} if pooled else {}
    y = ops.causal_conv1d(
        surrounded[4:-4], problem.weight, problem.bias, query_start_loc=offsets([tokens]).to(device), **state
    )
    reference = {"conv_pool": problem.pool, "cache_indices": problem.ids} if pooled else {}
    expected, _ = oracle.causal_conv1d(
        problem.x, problem.weight, problem.bias, query_start_loc=offsets([tokens]), **reference
    )
    assert_output(y, expected, torch.arange(tokens), device, problem.x.dtype)


@pytest.mark.parametrize("rows", [1, 26])
@pytest.mark.parametrize(("pitch", "tokens"), [(12288, 174763), (16384, 131073), (20480, 104858)])
def test_columns_of_projections_past_32_bit_offsets(device, pitch, tokens, rows, uncommitted_memory):
    """The last token lies beyond 2^31 elements; the last ones have the bits, and leave the window, of a short row."""
    problem = conv(device, 64, rows, 70, act=BF16, pool=BF16)
    x = torch.empty(tokens * pitch, dtype=BF16, device=device).as_strided((tokens, 64), (pitch, 1), pitch - 64)
    assert x.storage_offset() + (tokens - 1) * pitch >= 2**31
    x[-70:] = problem.x
    lens = [tokens // rows] * (rows - 1)
    bounds = offsets([*lens, tokens - sum(lens)]).to(device)
    pool = problem.guarded()
    state = {"conv_pool": pool.tensor, "cache_indices": problem.ids}
    y = ops.causal_conv1d(x, problem.weight, problem.bias, query_start_loc=bounds, **state)
    short = ops.causal_conv1d(problem.x, problem.weight, problem.bias, query_start_loc=offsets([70]).to(device))
    assert_bit_equal(y[-64:], short[-64:], "y")
    assert_bit_equal(pool.tensor[problem.ids[-1].item()].mT, problem.x[-3:], "window")


@pytest.mark.parametrize("stale", [1e4, torch.nan, torch.inf])
def test_stale_window_is_ignored_without_initial_state(device, stale):
    problem = conv(device, 70, 4, 12)
    rows = {"query_start_loc": offsets([5, 1, 3, 3]).to(device), "cache_indices": problem.ids}
    initial = torch.tensor([False, True, False, True], device=device)
    problem.pool[problem.ids[~initial].long()] = 0
    expected, after = oracle.causal_conv1d(problem.x, problem.weight, problem.bias, conv_pool=problem.pool, **rows)
    problem.pool[problem.ids[~initial].long()] = stale
    pool = problem.guarded()
    y = ops.causal_conv1d(
        problem.x, problem.weight, problem.bias, conv_pool=pool.tensor, has_initial_state=initial, **rows
    )
    assert_output(y, expected, torch.arange(12), device, problem.x.dtype)
    assert_slots(pool, after.to(F32), live(problem.ids), 0, "conv_pool")


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_short_prompt_then_single_tokens(device, length, initial, act):
    problem = conv(device, 70, 1, length + 4, act=act, pool=act)
    flag = torch.tensor([initial], device=device)
    whole, after = oracle.causal_conv1d(
        problem.x, problem.weight, problem.bias, query_start_loc=offsets([length + 4]), conv_pool=problem.pool,
        cache_indices=problem.ids, has_initial_state=flag,
    )  # fmt: skip
    pool = problem.guarded()
    state = {"conv_pool": pool.tensor, "cache_indices": problem.ids}
    outputs = [
        ops.causal_conv1d(
            problem.x[:length], problem.weight, problem.bias, query_start_loc=offsets([length]).to(device),
            has_initial_state=flag, **state,
        )
    ]  # fmt: skip
    for t in range(length, length + 4):
        outputs.append(ops.causal_conv1d_update(problem.x[t : t + 1], problem.weight, problem.bias, **state))
    assert_output(torch.cat(outputs), whole, torch.arange(length + 4), device, act)
    assert_slots(pool, after.to(act), live(problem.ids), 0, "conv_pool")


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("split", [1, 2, 3, 4, 50])
def test_two_calls_equal_one_bit_for_bit(device, act, split):
    problem = conv(device, 70, 1, 100, act=act, pool=act)

    def prefill(pool, begin, end):
        return ops.causal_conv1d(
            problem.x[begin:end], problem.weight, problem.bias, query_start_loc=offsets([end - begin]).to(device),
            conv_pool=pool.tensor, cache_indices=problem.ids,
        )  # fmt: skip

    whole, parts = problem.guarded(), problem.guarded()
    expected = prefill(whole, 0, 100)
    actual = torch.cat([prefill(parts, 0, split), prefill(parts, split, 100)])
    assert_bit_equal(actual, expected, "y")
    assert_bit_equal(parts.storage, whole.storage, "conv_pool")


@pytest.mark.parametrize("index", cases.INDEX_DTYPES, ids=name_of)
def test_snapshot_of_the_window(device, index):
    """The destination gets the raw inputs before ``track_lens``, of rows shorter than the window and empty ones too."""
    lens, ids = [70, 3, 2, 0, 5, 9], [0, 1, 2, 3, -1, 4]
    slots, track_lens = [5, 6, -1, 7, -1, 8], [64, 1, 2, 0, 5, 9]
    problem = conv(device, 70, 6, sum(lens), ids=ids, index=index)
    rows = {
        "query_start_loc": offsets(lens, index).to(device), "cache_indices": problem.ids,
        "has_initial_state": torch.tensor([True, True, False, True, True, False], device=device),
        "track_slots": torch.tensor(slots, dtype=index, device=device),
        "track_lens": torch.tensor(track_lens, dtype=index, device=device),
    }  # fmt: skip
    pool = problem.guarded()
    ops.causal_conv1d(problem.x, problem.weight, problem.bias, conv_pool=pool.tensor, **rows)
    _, after = oracle.causal_conv1d(problem.x, problem.weight, problem.bias, conv_pool=problem.pool, **rows)
    assert_slots(pool, after.to(F32), [0, 1, 2, 3, 4, 5, 6, 7, 8], 0, "conv_pool")
    assert_bit_equal(pool.tensor[5].cpu(), problem.x[61:64].T.float().cpu(), "raw inputs before token 64")


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
def test_subnormal_inputs_reach_the_window_unchanged(device, act):
    problem = conv(device, 70, 1, 5, act=act, pool=act)
    problem.x = (problem.x.float() * torch.finfo(act).smallest_normal / 8).to(act)
    assert (problem.x != 0).any()
    bounds = {"query_start_loc": offsets([5]).to(device), "cache_indices": problem.ids}
    prefilled, updated = problem.guarded(), problem.guarded()
    ops.causal_conv1d(problem.x, problem.weight, problem.bias, conv_pool=prefilled.tensor, **bounds)
    for x in problem.x:
        ops.causal_conv1d_update(
            x[None], problem.weight, problem.bias, conv_pool=updated.tensor, cache_indices=problem.ids
        )
    slot = live(problem.ids)[0]
    for pool in (prefilled, updated):
        assert_bit_equal(pool.tensor[slot], problem.x[2:].T.contiguous(), "window")


def test_more_rows_than_a_launch_has_blocks(device):
    rows = cases.MOST_BLOCKS + 100
    ids = [3, *[-1] * (rows - 2), 5]
    check_prefill(device, [2] * rows, ids=ids, channels=1)
    check_update(device, 1, rows, 1, ids=ids)


# --- update --------------------------------------------------------------------------------------------------------


def check_update(device, channels, rows, tokens, *, parents=None, commit=True, activation="silu", **options):
    problem = conv(device, channels, rows, rows, tokens, **options)
    pool, out = problem.guarded(), problem.nan_out()
    y = ops.causal_conv1d_update(
        problem.x, problem.weight, problem.bias, conv_pool=pool.tensor, cache_indices=problem.ids, out=out,
        activation=activation, parent_tokens=parents, disable_state_update=not commit,
    )  # fmt: skip
    assert y is out
    expected, after, _ = oracle.causal_conv1d_update(
        problem.x, problem.weight, problem.bias, conv_pool=problem.pool, cache_indices=problem.ids,
        parent_tokens=parents, silu=activation is not None,
    )  # fmt: skip
    assert_output(y, expected, (problem.ids.cpu() >= 0).nonzero()[:, 0], device, problem.x.dtype)
    if commit:
        assert_slots(pool, after.to(pool.tensor.dtype), live(problem.ids), 0, "conv_pool")
    else:
        pool.assert_untouched("conv_pool")


@pytest.mark.parametrize("channels", [1, 17, 512, 2064, 4096])
@pytest.mark.parametrize("width", [3, 4])
@pytest.mark.parametrize("tokens", [1, 3])
def test_update_with_a_padded_row(device, channels, width, tokens):
    check_update(device, channels, 3, tokens, width=width, ids=[4, -1, 0], act=BF16, pool=BF16)


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("pool", [F32, BF16, F16], ids=name_of)
@pytest.mark.parametrize("width", cases.CONV_WIDTHS)
@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_update_dtypes_and_widths(device, act, pool, width, tokens):
    check_update(device, 70, 3, tokens, width=width, act=act, pool=pool)


@pytest.mark.parametrize("activation", [None, "silu", "swish"])
@pytest.mark.parametrize("bias", [False, True])
def test_update_activation_and_bias(device, activation, bias):
    check_update(device, 70, 3, 2, activation=activation, bias=bias)


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("index", cases.INDEX_DTYPES, ids=name_of)
@pytest.mark.parametrize("pool", [F32, BF16, F16], ids=name_of)
def test_update_slots(device, ids, index, pool):
    check_update(device, 70, 4, 1, ids=ids, index=index, pool=pool)
    check_update(device, 70, 4, 3, ids=ids, index=index, pool=pool, commit=False)


def test_update_equals_prefill_bit_for_bit(device):
    problem = conv(device, 70, 3, 3, 5, act=BF16, pool=BF16)
    updated, prefilled = problem.guarded(), problem.guarded()
    y = ops.causal_conv1d_update(
        problem.x, problem.weight, problem.bias, conv_pool=updated.tensor, cache_indices=problem.ids
    )
    packed = ops.causal_conv1d(
        problem.x.flatten(0, 1), problem.weight, problem.bias, query_start_loc=offsets([5] * 3).to(device),
        conv_pool=prefilled.tensor, cache_indices=problem.ids,
    )  # fmt: skip
    assert_bit_equal(y.flatten(0, 1), packed, "y")
    assert_bit_equal(updated.storage, prefilled.storage, "conv_pool")


@pytest.mark.needs("draft_trees")
@pytest.mark.parametrize("width", cases.CONV_WIDTHS)
@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_update_of_a_tree(device, width, act):
    parents = torch.tensor([[-1, 0, 0, 1, 2, -1], [-1, -1, 1, 2, 3, 3], [-1, 0, 1, 2, 3, 4]], device=device)
    check_update(device, 70, 3, 6, width=width, act=act, parents=parents, commit=False)


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("width", cases.CONV_WIDTHS)
def test_windows_after_each_token(device, overlapping, width):
    problem = conv(device, 70, 4, 4, 5, ids=[3, -1, 0, 8], width=width, pool=BF16)
    pool = problem.guarded()
    windows = window_buffer(6, 5, problem.pool, overlapping)
    sources = torch.tensor([5, -1, 0, -1], dtype=torch.int32, device=device)
    ops.causal_conv1d_update(
        problem.x, problem.weight, problem.bias, conv_pool=pool.tensor, cache_indices=problem.ids,
        intermediate_conv_window=windows, intermediate_state_indices=sources, disable_state_update=True,
    )  # fmt: skip
    _, _, expected = oracle.causal_conv1d_update(
        problem.x, problem.weight, problem.bias, conv_pool=problem.pool, cache_indices=problem.ids
    )
    pool.assert_untouched("conv_pool")
    assert_bit_equal(windows[[5, 0]].cpu(), expected[[0, 2]].to(BF16), "windows")
    assert windows[[1, 2, 3, 4]].isnan().all(), "rows of the buffer that no sequence names"


def test_two_dimensional_input_is_one_token_a_row(device):
    problem = conv(device, 70, 3, 3, 1)
    pools = problem.guarded(), problem.guarded()
    states = [{"conv_pool": pool.tensor, "cache_indices": problem.ids} for pool in pools]
    flat = ops.causal_conv1d_update(problem.x[:, 0], problem.weight, problem.bias, **states[0])
    cube = ops.causal_conv1d_update(problem.x, problem.weight, problem.bias, **states[1])
    assert flat.shape == (3, 70)
    assert_bit_equal(flat, cube[:, 0], "y")
    assert_bit_equal(pools[0].storage, pools[1].storage, "conv_pool")
