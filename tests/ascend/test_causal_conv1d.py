"""The convolution of packed sequences, on the simulated NPU."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import cases
import oracle
from cases import BF16, F16, F32, SLOTS, name_of
from compare import GuardedPool, assert_bit_equal, assert_zero
from problems import assert_rows, assert_slots, default_ids, live, offsets, randn, token_rows
from sglang_gdn import ops
from sglang_gdn.errors import GdnUnsupportedError
from tolerances import limit

pytestmark = pytest.mark.usefixtures("npu")


@dataclass
class Prefill:
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    pool: Tensor  # [slots, D, W-1] values
    rows: dict[str, Tensor | None]

    def run(self, extra_pitch=0, **options):
        pool = GuardedPool(self.pool.mT.contiguous(), "cpu", extra_pitch)
        out = torch.full_like(self.x, torch.nan).contiguous()
        y = ops.causal_conv1d(
            self.x, self.weight, self.bias, conv_pool=pool.tensor.mT, out=out, **(self.rows | options)
        )  # fmt: skip
        assert y is out
        return out, pool

    def expected(self, silu=True):
        return oracle.causal_conv1d(self.x, self.weight, self.bias, conv_pool=self.pool, silu=silu, **self.rows)

    def check(self, y, pool, expected):
        ids = self.rows["cache_indices"]
        rows = token_rows(self.rows["query_start_loc"], ids)
        assert_rows(y, expected[0], rows, limit("npu", "conv", self.x.dtype), "y")
        assert_slots(pool, expected[1].to(pool.tensor.dtype).mT, live(ids), 0, "conv_pool")


def prefill(
    lens, *, channels=70, width=4, act=BF16, pool=F32, bias=True, ids=None, initial=None, index=torch.int32,
    pad_tokens=0, seed=0,
):  # fmt: skip
    gen = torch.Generator().manual_seed(seed)
    x = randn(gen, sum(lens) + pad_tokens, channels, dtype=act)
    x[sum(lens) :] = torch.nan
    return Prefill(
        x,
        (randn(gen, channels, width) / width**0.5).to(act),
        (0.1 * randn(gen, channels)).to(act) if bias else None,
        randn(gen, max(SLOTS, len(lens)), channels, width - 1, dtype=pool),
        {
            "query_start_loc": offsets(lens, index),
            "cache_indices": torch.tensor(default_ids(len(lens)) if ids is None else ids, dtype=index),
            "has_initial_state": None if initial is None else torch.tensor(initial),
        },
    )


def check(problem, silu=True, **options):
    problem.check(*problem.run(**options), problem.expected(silu=silu))


@pytest.mark.parametrize("act", [BF16, F16], ids=name_of)
@pytest.mark.parametrize("pool", [F32, BF16, F16], ids=name_of)
@pytest.mark.parametrize("width", cases.CONV_WIDTHS)
def test_dtypes_and_widths(act, pool, width):
    check(prefill([9, 0, 1, 2, 3, 40], act=act, pool=pool, width=width))


@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("bias", [False, True])
def test_activation_and_bias(activation, bias):
    check(prefill([9, 33], bias=bias), activation=activation, silu=activation is not None)


@pytest.mark.parametrize("lens", [lens for lens in cases.VARLEN.values() if sum(lens) < 1500], ids=str)
@pytest.mark.parametrize("index", cases.INDEX_DTYPES, ids=name_of)
def test_packed_rows(lens, index):
    problem = prefill(lens, channels=16, index=index, pad_tokens=3)
    y, pool = problem.run()
    problem.check(y, pool, problem.expected())
    assert_zero(y[-3:], "y past the last row")


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("initial", [None, [False, True, False, True]], ids=["continued", "mixed"])
def test_slots(ids, initial):
    check(prefill([5, 2, 1, 18], ids=ids, initial=initial, pool=BF16))


@pytest.mark.parametrize("channels", [1, 3, 17, 256, 257, 512, 2064, 6144])
def test_channel_counts(channels):
    check(prefill([5, 18], channels=channels))


@pytest.mark.parametrize("cores", [1, 3, 24])
def test_number_of_cores_does_not_change_a_bit(npu, cores):
    problem = prefill([40, 3, 0, 17, 1], channels=600, pad_tokens=5)
    y, pool = problem.run()
    problem.check(y, pool, problem.expected())
    npu.set_cores(cores)
    other_y, other = problem.run()
    assert_bit_equal(other_y, y, "y")
    assert_bit_equal(other.storage, pool.storage, "conv_pool")


@pytest.mark.parametrize("extra_pitch", cases.EXTRA_PITCH)
def test_pitches_do_not_change_a_bit(extra_pitch):
    problem = prefill([20, 3])
    y, pool = problem.run()
    wide = torch.full((23, 131), torch.nan, dtype=BF16)
    wide[:, 7:77] = problem.x
    problem.x = wide[:, 7:77]
    pitched_y, pitched = problem.run(extra_pitch)
    assert_bit_equal(pitched_y, y, "y")
    assert_bit_equal(pitched.tensor, pool.tensor, "conv_pool")


@pytest.mark.parametrize("stale", [1e4, torch.nan])
def test_stale_window_is_ignored_without_initial_state(stale):
    problem = prefill([5, 1, 3, 0], initial=[False, True, False, False])
    expected = problem.expected()
    fresh = problem.rows["cache_indices"][[0, 2, 3]].long()
    problem.pool[fresh] = stale
    problem.check(*problem.run(), expected)


@pytest.mark.parametrize("split", [1, 2, 3, 4, 16, 17, 50])
def test_two_calls_equal_one_bit_for_bit(split):
    problem = prefill([60])
    whole_y, whole = problem.run()
    first = Prefill(problem.x[:split], problem.weight, problem.bias, problem.pool, dict(problem.rows))
    first.rows["query_start_loc"] = offsets([split])
    first_y, pool = first.run()
    second = Prefill(problem.x[split:], problem.weight, problem.bias, pool.tensor.mT.clone(), dict(problem.rows))
    second.rows["query_start_loc"] = offsets([60 - split])
    second_y, pool = second.run()
    assert_bit_equal(torch.cat([first_y, second_y]), whole_y, "y")
    assert_bit_equal(pool.tensor, whole.tensor, "conv_pool")


def test_without_a_pool():
    problem = prefill([20, 0, 3])
    y = ops.causal_conv1d(problem.x, problem.weight, problem.bias, query_start_loc=problem.rows["query_start_loc"])
    expected, _ = oracle.causal_conv1d(
        problem.x, problem.weight, problem.bias, query_start_loc=problem.rows["query_start_loc"]
    )
    assert_rows(y, expected, torch.arange(23), limit("npu", "conv", BF16), "y")


def test_update_continues_a_prefill_bit_for_bit():
    problem = prefill([20])
    whole_y, whole = problem.run()
    head = Prefill(problem.x[:18], problem.weight, problem.bias, problem.pool, dict(problem.rows))
    head.rows["query_start_loc"] = offsets([18])
    _, pool = head.run()
    y = ops.causal_conv1d_update(
        problem.x[None, 18:], problem.weight, problem.bias, conv_pool=pool.tensor.mT,
        cache_indices=problem.rows["cache_indices"],
    )  # fmt: skip
    assert_bit_equal(y[0], whole_y[18:], "y")
    assert_bit_equal(pool.tensor.clone(), whole.tensor.clone(), "conv_pool")


def test_bytes_are_moved_once(npu):
    problem = prefill([300, 200], channels=512, pool=BF16)
    problem.run()
    row = 512 * 2
    moved = npu.bytes_moved()
    assert moved["MTE3"] == (500 + 2 * 3) * row
    assert moved["MTE2"] <= (500 + 2 * 3) * row + 4 * 5 * row


@pytest.mark.parametrize("index", cases.INDEX_DTYPES, ids=name_of)
@pytest.mark.parametrize("pool", [F32, BF16], ids=name_of)
def test_snapshots(index, pool):
    """The raw inputs before so many tokens of a row: of rows longer, shorter and emptier than a window."""
    lens, ids, initial = [40, 2, 0, 70, 5], [3, 5, 0, -1, 1], [True, True, True, True, False]
    problem = prefill(lens, channels=300, ids=ids, initial=initial, pool=pool, index=index)
    slots, counts = [6, 7, 8, 2, 4], [33, 1, 0, 64, 2]
    track = {"track_slots": torch.tensor(slots, dtype=index), "track_lens": torch.tensor(counts, dtype=index)}
    out, windows = problem.run(**track)
    plain, _ = problem.run()
    assert_bit_equal(out, plain, "y")
    assert_bit_equal(windows.tensor[[3, 5, 0, 1]], problem.expected()[1].to(pool).mT[[3, 5, 0, 1]], "conv_pool")
    windows.assert_only_wrote([3, 5, 0, 1, 6, 7, 8, 4])
    begin = 0
    for row, (length, slot, count) in enumerate(zip(lens, slots, counts, strict=True)):
        if ids[row] >= 0:
            before = problem.pool[ids[row]] if initial[row] else torch.zeros_like(problem.pool[0])
            inputs = torch.cat([before.float().T, problem.x[begin : begin + count].float()])[-3:]
            assert_bit_equal(windows.tensor[slot], inputs.to(pool), f"snapshot of row {row}")
        begin += length


def test_snapshots_that_no_row_reaches_are_not_taken():
    problem = prefill([9, 9, 9], ids=[3, 4, 1])
    track = {"track_slots": torch.tensor([6, SLOTS, 8]), "track_lens": torch.tensor([10, 3, -1])}
    _, windows = problem.run(**track)
    windows.assert_only_wrote([3, 4, 1])


def test_refusals():
    problem = prefill([5])
    with pytest.raises(GdnUnsupportedError, match="weight must be bfloat16 on npu; got float32"):
        problem.weight = problem.weight.float()
        problem.run()
