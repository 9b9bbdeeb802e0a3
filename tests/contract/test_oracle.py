"""The references themselves: the oracle against closed forms, and every comparison against one corrupted element."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import conv1d, softplus

import compare
import oracle
import problems
from cases import ACTIVATIONS, BF16, F32, SMALL, TRIPLE, name_of


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_first_token_from_zero_is_a_scaled_outer_product():
    q, k, v, g, beta = rand(1, 2, 8), rand(1, 2, 8), rand(1, 4, 6), -rand(1, 4).abs(), rand(1, 4).sigmoid()
    result = oracle.chunk_gated_delta_rule(
        q, k, v, g, beta, ssm_pool=torch.zeros(1, 4, 6, 8), query_start_loc=torch.tensor([0, 1]),
        cache_indices=torch.tensor([0]), scale=0.5,
    )  # fmt: skip
    for h in range(4):
        state = beta[0, h] * torch.outer(v[0, h], k[0, h // 2])
        torch.testing.assert_close(result.pool[0, h], state)
        torch.testing.assert_close(result.o[0, h], 0.5 * state @ q[0, h // 2])


def test_full_write_without_decay_recalls_the_value():
    k = torch.nn.functional.normalize(rand(5, 1, 8), dim=-1)
    v = rand(5, 1, 6)
    result = oracle.chunk_gated_delta_rule(
        k, k, v, torch.zeros(5, 1), torch.ones(5, 1), ssm_pool=rand(1, 1, 6, 8), scale=1.0,
        query_start_loc=torch.tensor([0, 5]), cache_indices=torch.tensor([0]),
    )  # fmt: skip
    torch.testing.assert_close(result.o, v)


def test_one_token_against_the_single_pass_identity():
    S, q, k, v = rand(3, 6, 8), rand(3, 8), rand(3, 8), rand(3, 6)
    g, beta = -rand(3).abs(), rand(3).sigmoid()
    decay = g.exp()[:, None]
    d = beta[:, None] * (v - decay * torch.einsum("hvk,hk->hv", S, k))
    o = decay * torch.einsum("hvk,hk->hv", S, q) + (k * q).sum(-1, keepdim=True) * d
    torch.testing.assert_close(oracle.delta_token(S, q, k, v, g, beta, 1.0)[1], o)


@pytest.mark.parametrize("width", [2, 3, 4])
def test_convolution_against_torch(width):
    x, weight, bias = rand(11, 5), rand(5, width), rand(5)
    y, _ = oracle.causal_conv1d(x, weight, bias, query_start_loc=torch.tensor([0, 11]), silu=False)
    expected = conv1d(x.T[None], weight[:, None], bias, groups=5, padding=width - 1)[0, :, :11].T
    torch.testing.assert_close(y, expected)


def test_short_row_keeps_the_tail_of_the_old_window():
    pool, x = rand(1, 2, 3), rand(1, 2)
    _, after = oracle.causal_conv1d(
        x, rand(2, 4), query_start_loc=torch.tensor([0, 1]), conv_pool=pool, cache_indices=torch.tensor([0])
    )
    torch.testing.assert_close(after[0], torch.cat([pool[0, :, 1:], x.T], dim=1))


def test_gates_against_torch():
    A_log, a, b, dt_bias = rand(4), 10 * rand(7, 4), rand(7, 4), rand(4)
    g, beta = oracle.gating(A_log, a, b, dt_bias)
    torch.testing.assert_close(g, -A_log.exp() * softplus(a + dt_bias, beta=1, threshold=20))
    torch.testing.assert_close(beta, b.sigmoid())


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=name_of)
def test_comparisons_fail_on_one_element(dtype):
    expected = rand(3, 50).to(dtype)
    for corrupt in (lambda x: x + 1, lambda x: x * torch.nan):
        actual = expected.clone()
        compare.assert_bit_equal(actual, expected)
        compare.assert_close(actual, expected, 1e-2)
        actual[2, 7] = corrupt(actual[2, 7])
        with pytest.raises(AssertionError, match=r"\[2, 7\]"):
            compare.assert_bit_equal(actual, expected)
        with pytest.raises(AssertionError, match="tensor"):
            compare.assert_close(actual, expected, 1e-2)
    zeros = torch.zeros(3, 50, dtype=dtype)
    compare.assert_zero(zeros)
    for value in (1e-4, torch.nan):
        zeros[1, 3] = value
        with pytest.raises(AssertionError, match=r"\[1, 3\]"):
            compare.assert_zero(zeros)


def test_bits_tell_zeros_apart_and_nan_equal():
    nan, zero = torch.tensor([torch.nan]), torch.tensor([0.0])
    compare.assert_bit_equal(nan, nan.clone())
    with pytest.raises(AssertionError):
        compare.assert_bit_equal(zero, -zero)


def test_one_wrong_element_in_a_large_tensor_fails_although_the_norm_hardly_moves():
    expected = rand(1000, 1000)
    actual = expected.clone()
    actual[500, 500] += 0.3
    assert compare.rel_l2(actual, expected) < 1e-3
    with pytest.raises(AssertionError, match=r"\[500, 500\]"):
        compare.assert_close(actual, expected, 1e-3)


@pytest.mark.parametrize("where", ["before", "after", "gap", "unnamed"])
def test_guarded_pool_notices_a_write(device, where):
    pool = compare.GuardedPool(torch.ones(4, 2, 3), device, extra_pitch=8)
    pool.tensor[1] = 5
    pool.assert_only_wrote([1])
    row, column = {"before": (1, 5), "after": (6, 0), "gap": (3, 6), "unnamed": (4, 0)}[where]
    pool.storage[row, column] = 5
    with pytest.raises(AssertionError, match="outside slots"):
        pool.assert_only_wrote([1])


def corrupted_fails(check, run, expected, tensor, index) -> None:
    saved = tensor[index].clone()
    tensor[index] = 7.0 if saved.isnan() else saved.float() * 1.5 + 1
    with pytest.raises(AssertionError):
        check(run, expected)
    tensor[index] = saved
    check(run, expected)


@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_chunk_rule_check_fails_on_one_element(device, act):
    problem = problems.delta_rule(device, SMALL, [66, 3], ids=[0, -1], act=act, pad_tokens=2)
    run, expected = problem.run(extra_pitch=96), problem.expected()
    problem.check(run, expected)
    for tensor, index in (
        (run.o, (65, 1, 3)), (run.o, (67, 0, 0)), (run.o, (70, 3, 63)), (run.ssm.tensor, (0, 2, 5, 7)),
        (run.ssm.tensor, (1, 0, 0, 0)), (run.ssm.tensor, (8, 3, 63, 63)), (run.ssm.storage, (1, 0)),
    ):  # fmt: skip
        corrupted_fails(problem.check, run, expected, tensor, index)


def test_update_check_fails_on_one_element(device):
    problem = problems.update(device, TRIPLE, 3, ids=[8, -1, 0])
    run, expected = problem.run(), problem.expected()
    for tensor, index in (
        (run.o, (0, 0, 1, 3)), (run.o, (1, 0, 0, 0)), (run.ssm.tensor, (8, 2, 5, 7)), (run.ssm.tensor, (7, 0, 0, 0))
    ):  # fmt: skip
        corrupted_fails(problem.check, run, expected, tensor, index)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_layer_checks_fail_on_one_element(device, phase):
    size = {"lens": [5, 2]} if phase == "prefill" else {"batch": 2}
    problem = problems.fused_layer(device, SMALL, ids=[3, -1], **size)
    run = getattr(problem, phase)()
    expected = getattr(problem, f"expected_{phase}")()
    check = getattr(problem, f"check_{phase}")
    for tensor, index in (
        (run.o, (0, 1, 3)), (run.o, (-1, 0, 0)), (run.ssm.tensor, (3, 2, 5, 7)), (run.ssm.tensor, (7, 0, 0, 0)),
        (run.conv.tensor, (3, 9, 0)), (run.conv.tensor, (0, 1, 2)),
    ):  # fmt: skip
        corrupted_fails(check, run, expected, tensor, index)
