"""Gates and write strengths: float32 whatever the inputs are stored in."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import softplus

import cases
import oracle
from cases import ACTIVATIONS, BF16, F16, F32, name_of
from compare import assert_bit_equal
from problems import assert_gates, randn
from sglang_gdn import ops
from tolerances import GATE


def gates(device, *args):
    g, beta = ops.gdn_gating(*(x.to(device) for x in args))
    for x in (g, beta):
        assert x.dtype == F32 and x.shape == (1, *args[1].shape)
    return g[0].cpu(), beta[0].cpu()


def inputs(tokens, value_heads, dtype=None):
    dtype = dtype or cases.ELEMENTWISE_ACTIVATION
    gen = torch.Generator().manual_seed(0)
    return [
        (randn(gen, value_heads) + 1), randn(gen, tokens, value_heads, dtype=dtype),
        randn(gen, tokens, value_heads, dtype=dtype), randn(gen, value_heads),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize(("tokens", "value_heads"), [(1, 1), (5, 3), (67, 32), (3, 48), (2, 64)])
def test_against_the_oracle(device, tokens, value_heads, dtype):
    args = inputs(tokens, value_heads, dtype)
    actual = gates(device, *args)
    assert_gates(actual, oracle.gating(*args))
    assert (actual[0] <= 0).all()
    actual[1][-1, -1] += 2 * GATE
    with pytest.raises(AssertionError):
        assert_gates(actual, oracle.gating(*args))


def test_beta_over_the_bfloat16_grid_is_not_rounded(device):
    grid = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(BF16)
    grid = grid[grid.float().abs() <= 8]
    grid = torch.cat([grid, torch.tensor([0.5], dtype=BF16)])[:, None]
    zeros = torch.zeros(1)
    _, beta = gates(device, zeros, torch.zeros_like(grid), grid, zeros)
    assert (beta - torch.sigmoid(grid.double())).abs().max() <= GATE
    assert beta[-1].item() == pytest.approx(0.622459, abs=1e-6)


@pytest.mark.parametrize("x", [-1e4, -88.0, -30.0, 0.0, 19.99, 20.0, 20.01, 88.0, 1e4])
def test_softplus_is_linear_above_20_and_never_overflows(device, x):
    a = torch.tensor([[0.25]], dtype=cases.ELEMENTWISE_ACTIVATION)
    dt_bias = torch.tensor([x - 0.25])
    g, _ = gates(device, torch.zeros(1), a, torch.zeros_like(a), dt_bias)
    expected = -softplus((a + dt_bias).float(), beta=1, threshold=20)
    assert g.isfinite().all()
    assert (g - expected).abs() <= GATE * expected.abs() + 1e-37


@pytest.mark.parametrize("x", [-200.0, -89.0, 89.0, 200.0])
def test_beta_saturates_without_nan(device, x):
    zeros = torch.zeros(1)
    b = torch.full((1, 1), x, dtype=cases.ELEMENTWISE_ACTIVATION)
    _, beta = gates(device, zeros, torch.zeros_like(b), b, zeros)
    assert beta.item() == pytest.approx(torch.sigmoid(torch.tensor(x, dtype=torch.float64)).item(), abs=GATE)


@pytest.mark.parametrize("A_dtype", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("dt_dtype", ACTIVATIONS, ids=name_of)
def test_weights_of_low_precision_are_upcast_exactly(device, A_dtype, dt_dtype):
    A_log, a, b, dt_bias = inputs(9, 4)
    A_log, dt_bias = A_log.to(A_dtype), dt_bias.to(dt_dtype)
    for actual, expected in zip(
        gates(device, A_log, a, b, dt_bias), gates(device, A_log.float(), a, b, dt_bias.float()), strict=True
    ):
        assert_bit_equal(actual, expected)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=name_of)
def test_inputs_of_low_precision_are_upcast_exactly(device, dtype):
    A_log, a, b, dt_bias = inputs(9, 4, dtype)
    for actual, expected in zip(
        gates(device, A_log, a, b, dt_bias), gates(device, A_log, a.float(), b.float(), dt_bias), strict=True
    ):
        assert_bit_equal(actual, expected)


def test_more_tokens_than_a_launch_has_blocks_of_16(device):
    args = inputs(16 * (cases.MOST_BLOCKS + 100), 1)
    assert_gates(gates(device, *args), oracle.gating(*args))


def test_views_of_a_projection(device):
    A_log, a, b, dt_bias = inputs(9, 4)
    projection = torch.full((9, 40), torch.nan, dtype=a.dtype, device=device)
    projection[:, 3:7], projection[:, 20:24] = a, b
    strided = ops.gdn_gating(A_log.to(device), projection[:, 3:7], projection[:, 20:24], dt_bias.to(device))
    for actual, expected in zip(strided, gates(device, A_log, a, b, dt_bias), strict=True):
        assert_bit_equal(actual[0].cpu(), expected)


def test_no_tokens(device):
    A_log, a, b, dt_bias = inputs(0, 4)
    g, beta = gates(device, A_log, a, b, dt_bias)
    assert g.shape == beta.shape == (0, 4)
