"""Gates, on the simulated NPU."""

from __future__ import annotations

import pytest
import torch

import oracle
import tolerances
from cases import BF16, F16, F32, name_of
from compare import assert_bit_equal
from problems import randn, uniform
from sglang_gdn import ops
from sglang_gdn.errors import GdnNoKernelError, GdnUnsupportedError

pytestmark = pytest.mark.usefixtures("npu")

MAX_HEADS = 64


def gates(tokens, heads, act=BF16, dt_bias=F32, seed=0):
    gen = torch.Generator().manual_seed(seed)
    return {
        "A_log": uniform(gen, 0.01, 16, heads).log(),
        "a": randn(gen, tokens, heads, dtype=act),
        "b": randn(gen, tokens, heads, dtype=act),
        "dt_bias": randn(gen, heads).to(dt_bias),
    }


def check(problem):
    g, beta = ops.gdn_gating(**problem)
    expected_g, expected_beta = oracle.gating(**problem)
    assert g.dtype == beta.dtype == F32
    assert ((g[0] - expected_g).abs() <= tolerances.GATE * expected_g.abs()).all()
    assert ((beta[0] - expected_beta).abs() <= tolerances.GATE).all()
    return g, beta


@pytest.mark.parametrize("act", [BF16, F16], ids=name_of)
@pytest.mark.parametrize("bias", ["float32", "activation"])
@pytest.mark.parametrize("heads", [1, 3, 6, 8, 24, 64])
def test_dtypes_and_heads(act, bias, heads):
    check(gates(20, heads, act, F32 if bias == "float32" else act))


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 300])
@pytest.mark.parametrize("cores", [1, 24])
def test_token_counts(npu, tokens, cores):
    npu.set_cores(cores)
    check(gates(tokens, 8))


@pytest.mark.parametrize("x", [-1e4, -88.0, -20.0, -1e-3, 0.0, 19.99, 20.0, 20.01, 88.0, 1e4])
def test_the_range_of_softplus(x):
    problem = gates(2, 4, F16 if abs(x) > 1e3 else BF16)
    problem["a"].zero_()
    problem["dt_bias"].fill_(x)
    g, _ = ops.gdn_gating(**problem)
    expected, _ = oracle.gating(**problem)
    assert g.isfinite().all()
    smallest = torch.finfo(F32).smallest_normal * problem["A_log"].exp().max()
    assert ((g[0] - expected).abs() <= tolerances.GATE * expected.abs() + smallest).all()


def test_strengths_over_the_bfloat16_grid():
    grid = torch.arange(-(2**15), 2**15).to(torch.int16).view(BF16)
    grid = grid[grid.abs() <= 8]
    problem = gates(grid.numel(), 1)
    problem["b"] = grid[:, None].contiguous()
    check(problem)


def test_pitches_do_not_change_a_bit():
    problem = gates(20, 6)
    g, beta = check(problem)
    for name in ("a", "b"):
        wide = torch.full((20, 19), torch.nan, dtype=BF16)
        wide[:, 5:11] = problem[name]
        problem[name] = wide[:, 5:11]
    pitched = ops.gdn_gating(**problem)
    assert_bit_equal(pitched[0], g, "g")
    assert_bit_equal(pitched[1], beta, "beta")


def test_refusals():
    with pytest.raises(GdnUnsupportedError, match="a must have at most 64 value heads on npu"):
        ops.gdn_gating(**gates(1, 65))
    with pytest.raises(GdnUnsupportedError, match="dt_bias must be bfloat16 on npu; got float16"):
        ops.gdn_gating(**gates(1, 4, dt_bias=F16))
    with pytest.raises(GdnNoKernelError, match="activation dtype must be one of bfloat16, float16; got float32"):
        ops.gdn_gating(**gates(1, 4, act=F32))
