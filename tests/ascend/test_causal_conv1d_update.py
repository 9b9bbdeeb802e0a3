"""The convolution of one or a few tokens, on the simulated NPU."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import cases
import oracle
from cases import BF16, F16, F32, SLOTS, name_of
from compare import GuardedPool, assert_bit_equal
from problems import assert_rows, assert_slots, default_ids, live, randn
from sglang_gdn import ops
from sglang_gdn.errors import GdnNoKernelError, GdnUnsupportedError, GdnValueError
from tolerances import limit

pytestmark = pytest.mark.usefixtures("npu")


@dataclass
class Update:
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    pool: Tensor  # [slots, D, W-1] values
    ids: Tensor

    def run(self, extra_pitch=0, **options):
        """The windows lie in the pool as [slots, W-1, D]."""
        pool = GuardedPool(self.pool.mT.contiguous(), "cpu", extra_pitch)
        out = torch.full_like(self.x, torch.nan).contiguous()
        ops.causal_conv1d_update(
            self.x, self.weight, self.bias, conv_pool=pool.tensor.mT, cache_indices=self.ids, out=out, **options
        )
        return out, pool

    def expected(self, silu=True):
        return oracle.causal_conv1d_update(
            self.x, self.weight, self.bias, conv_pool=self.pool, cache_indices=self.ids, silu=silu
        )

    def check(self, y, pool, expected):
        rows = (self.ids >= 0).nonzero()[:, 0]
        assert_rows(y, expected[0], rows, limit("npu", "conv", self.x.dtype), "y")
        assert_slots(pool, expected[1].to(pool.tensor.dtype).mT, live(self.ids), 0, "conv_pool")


def update(channels, rows, tokens, *, width=4, act=BF16, pool=F32, bias=True, ids=None, index=torch.int32, seed=0):
    gen = torch.Generator().manual_seed(seed)
    return Update(
        randn(gen, rows, tokens, channels, dtype=act),
        (randn(gen, channels, width) / width**0.5).to(act),
        (0.1 * randn(gen, channels)).to(act) if bias else None,
        randn(gen, max(SLOTS, rows), channels, width - 1, dtype=pool),
        torch.tensor(default_ids(rows) if ids is None else ids, dtype=index),
    )


@pytest.mark.parametrize("act", [BF16, F16], ids=name_of)
@pytest.mark.parametrize("pool", [F32, BF16, F16], ids=name_of)
@pytest.mark.parametrize("width", cases.CONV_WIDTHS)
@pytest.mark.parametrize("tokens", [1, 5])
def test_dtypes_and_widths(act, pool, width, tokens):
    problem = update(70, 3, tokens, width=width, act=act, pool=pool)
    problem.check(*problem.run(), problem.expected())


@pytest.mark.parametrize("channels", [1, 17, 512, 513, 2064, 4096, 6144])
def test_channel_counts_and_a_padded_row(channels):
    problem = update(channels, 3, 2, pool=BF16, ids=[4, -1, 0])
    problem.check(*problem.run(), problem.expected())


@pytest.mark.parametrize("activation", [None, "silu", "swish"])
@pytest.mark.parametrize("bias", [False, True])
def test_activation_and_bias(activation, bias):
    problem = update(70, 3, 2, bias=bias)
    problem.check(*problem.run(activation=activation), problem.expected(silu=activation is not None))


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("index", cases.INDEX_DTYPES, ids=name_of)
def test_slots(ids, index):
    problem = update(70, 4, 1, ids=ids, index=index)
    problem.check(*problem.run(), problem.expected())
    _, pool = problem.run(disable_state_update=True)
    pool.assert_untouched("conv_pool")


@pytest.mark.parametrize("extra_pitch", cases.EXTRA_PITCH)
def test_pitches_do_not_change_a_bit(extra_pitch):
    problem = update(70, 3, 4)
    y, pool = problem.run()
    wide = torch.full((3, 5, 131), torch.nan, dtype=BF16)
    wide[:, :4, 7:77] = problem.x
    problem.x = wide[:, :4, 7:77]
    pitched_y, pitched = problem.run(extra_pitch)
    assert_bit_equal(pitched_y, y, "y")
    assert_bit_equal(pitched.tensor, pool.tensor, "conv_pool")
    pitched.assert_only_wrote(live(problem.ids))


@pytest.mark.parametrize("cores", [1, 3, 24])
@pytest.mark.parametrize(("rows", "channels"), [(1, 2064), (40, 70), (7, 1100)])
def test_number_of_cores_does_not_change_a_bit(npu, cores, rows, channels):
    problem = update(channels, rows, 2)
    y, pool = problem.run()
    problem.check(y, pool, problem.expected())
    npu.set_cores(cores)
    other_y, other = problem.run()
    assert_bit_equal(other_y, y, "y")
    assert_bit_equal(other.storage, pool.storage, "conv_pool")


@pytest.mark.parametrize("tokens", [1, 4, 16])
def test_windows_after_each_token(tokens):
    problem = update(70, 4, tokens, ids=[3, -1, 0, 8], pool=BF16)
    windows = torch.full((6, tokens, 3, 70), torch.nan, dtype=BF16)
    before = windows.clone()
    sources = torch.tensor([5, -1, 0, -1], dtype=torch.int32)
    _, pool = problem.run(
        intermediate_conv_window=windows.mT, intermediate_state_indices=sources, disable_state_update=True
    )
    pool.assert_untouched("conv_pool")
    expected = problem.expected()[2].to(BF16).mT
    for row, source in ((0, 5), (2, 0)):
        assert_bit_equal(windows[source], expected[row].contiguous(), f"windows of row {row}")
        windows[source] = before[source]
    assert_bit_equal(windows, before, "windows nobody asked for")


def test_overlapping_windows_are_stored_once_each():
    problem = update(70, 1, 5, ids=[3])
    storage = torch.full((1, 7, 70), torch.nan)
    windows = storage.as_strided((1, 5, 70, 3), (7 * 70, 70, 1, 70))
    problem.run(intermediate_conv_window=windows, intermediate_state_indices=torch.zeros(1, dtype=torch.int32))
    assert_bit_equal(windows, problem.expected()[2].float(), "windows")


def test_huge_values_and_nan_stay_in_their_row():
    problem = update(70, 3, 2)
    clean, _ = problem.run()
    problem.x[1] = torch.nan
    y, _ = problem.run()
    assert y[1].isnan().all()
    assert_bit_equal(y[[0, 2]], clean[[0, 2]], "y of the other rows")


def test_bytes_are_moved_once(npu):
    problem = update(1024, 8, 1, pool=BF16)
    problem.run()
    moved = npu.bytes_moved()
    row = 1024 * 2
    assert moved["MTE3"] == 8 * (1 + 3) * row
    taps_and_bias = 5 * row
    assert moved["MTE2"] <= 8 * (1 + 3) * row + 4 * taps_and_bias
    assert npu.launches() == 1


def test_refusals():
    problem = update(70, 3, 2)
    with pytest.raises(GdnUnsupportedError, match="parent_tokens must be None on npu"):
        problem.run(parent_tokens=torch.tensor([[-1, 0]] * 3), disable_state_update=True)
    with pytest.raises(GdnNoKernelError, match="activation dtype must be one of bfloat16, float16; got float32"):
        update(70, 3, 2, act=F32).run()
    with pytest.raises(GdnValueError, match=r"conv_pool must be a transposed view of windows \[.., W-1, D\] on npu"):
        ops.causal_conv1d_update(problem.x, problem.weight, conv_pool=problem.pool, cache_indices=problem.ids)
