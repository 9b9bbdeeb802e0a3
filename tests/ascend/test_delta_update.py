"""The decode step of the gated delta rule and its form for drafts, on the simulated NPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import cases
import problems
from cases import BF16, F16, F32, Heads, name_of
from compare import assert_bit_equal, assert_close, assert_zero
from problems import live
from sglang_gdn.errors import GdnNoKernelError, GdnUnsupportedError
from tolerances import limit

pytestmark = pytest.mark.usefixtures("npu")

TWO = Heads(1, 2)
TRIPLE = Heads(2, 6)
SHARDS = sorted({heads for heads in cases.QWEN_TP if heads.HV <= 8}, key=str)


def update(heads, batch, drafts=1, **options):
    return problems.update("cpu", heads, batch, drafts, **({"act": BF16} | options))


def check(problem, run):
    replace(problem, device="npu").check(run, problem.expected())


@pytest.mark.parametrize("heads", SHARDS, ids=str)
def test_head_pairs(heads):
    problem = update(heads, 1)
    check(problem, problem.run())


@pytest.mark.parametrize("heads", [Heads(16, 32), Heads(16, 48), Heads(16, 64)], ids=str)
def test_many_heads(npu, heads):
    npu.set_cores(20)
    problem = update(heads, 1)
    check(problem, problem.run())


@pytest.mark.parametrize("act", [BF16, F16], ids=name_of)
@pytest.mark.parametrize("bias", ["float32", "activation"])
@pytest.mark.parametrize("drafts", [1, 3])
def test_dtypes_and_token_counts(act, bias, drafts):
    problem = update(TWO, 2, drafts, act=act)
    if bias == "activation":
        problem.args["dt_bias"] = problem.args["dt_bias"].to(act)
    check(problem, problem.run())


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_slots(ids, index_dtype):
    problem = update(TWO, 4, ids=ids, index_dtype=index_dtype)
    run = problem.run()
    check(problem, run)
    assert_zero(run.o[problem.args["cache_indices"] < 0], "o of padded rows")
    problem.run(disable_state_update=True).ssm.assert_untouched("ssm_pool")


@pytest.mark.parametrize("extra_pitch", cases.EXTRA_PITCH)
def test_pitches_do_not_change_a_bit(extra_pitch):
    problem = update(TRIPLE, 2, 2)
    plain = problem.run()
    for name in ("q", "k", "v", "a", "b"):
        x = problem.args[name]
        wide = torch.full((x.shape[0], x.shape[1] + 1, *(size + 3 for size in x.shape[2:])), torch.nan, dtype=x.dtype)
        view = wide[:, : x.shape[1]][(..., *(slice(0, size) for size in x.shape[2:]))]
        problem.args[name] = view.copy_(x)
    pitched = problem.run(extra_pitch)
    assert_bit_equal(pitched.o, plain.o, "o")
    assert_bit_equal(pitched.ssm.tensor, plain.ssm.tensor, "ssm_pool")
    pitched.ssm.assert_only_wrote(live(problem.args["cache_indices"]))


@pytest.mark.parametrize("cores", [1, 3, 24])
def test_number_of_cores_does_not_change_a_bit(npu, cores):
    problem = update(TRIPLE, 3)
    plain = problem.run()
    npu.set_cores(cores)
    other = problem.run()
    assert_bit_equal(other.o, plain.o, "o")
    assert_bit_equal(other.ssm.storage, plain.ssm.storage, "ssm_pool")


@pytest.mark.parametrize("drafts", [1, 4, 16])
def test_states_after_each_draft(drafts):
    problem = update(TWO, 3, drafts, ids=[3, -1, 0])
    states = torch.full((4, drafts, 2, 128, 128), torch.nan)
    before = states.clone()
    sources = torch.tensor([2, 1, -1], dtype=torch.int32)
    run = problem.run(intermediate_ssm=states, intermediate_state_indices=sources, disable_state_update=True)
    run.ssm.assert_untouched("ssm_pool")
    expected = problem.expected(disable_state_update=True)
    assert_close(run.o[[0, 2]], expected[0][[0, 2]], limit("npu", "decode_o", BF16), "o")
    assert_close(states[2], expected[2][0], limit("npu", "decode_state", F32), "states")
    states[2] = before[2]
    assert_bit_equal(states, before, "states nobody asked for")


def test_drafts_equal_single_tokens_bit_for_bit():
    problem = update(TWO, 2, 3)
    together = problem.run()
    pool, outputs = problem.ssm, []
    for t in range(3):
        token = {name: problem.args[name][:, t : t + 1] for name in ("q", "k", "v", "a", "b")}
        run = problem.run(**token, ssm_pool=pool)
        outputs.append(run.o)
        pool = run.ssm.tensor
    assert_bit_equal(together.o, torch.cat(outputs, dim=1), "o")
    assert_bit_equal(together.ssm.tensor.clone(), pool.clone(), "ssm_pool")


@pytest.mark.parametrize("gate", [-1e4, -20.0, 19.99, 20.0, 20.01, 88.0, 1e4])
def test_gates_over_the_range_of_softplus(gate):
    problem = update(TWO, 1)
    problem.args["a"].fill_(gate)
    problem.args["dt_bias"].zero_()
    problem.args["A_log"].fill_(-4.0)
    check(problem, problem.run())


@pytest.mark.parametrize("strength", [-8.0, -0.5, 0.0, 0.5, 8.0])
def test_write_strengths_are_not_rounded(strength):
    problem = update(TWO, 1)
    problem.args["b"].fill_(strength)
    check(problem, problem.run())


def test_without_norm_and_of_tiny_norm():
    problem = update(TWO, 1)
    run = problem.run(use_qk_l2norm_in_kernel=False)
    expected = problem.expected(use_qk_l2norm_in_kernel=False)
    assert_close(run.o, expected[0], limit("npu", "decode_o", BF16), "o")
    problem.args["q"] *= 1e-4
    problem.args["k"] *= 0
    check(problem, problem.run())


def test_nan_stays_in_its_row():
    problem = update(TWO, 3)
    clean = problem.run()
    problem.args["v"][1] = torch.nan
    run = problem.run()
    assert run.o[1].isnan().all()
    assert_bit_equal(run.o[[0, 2]], clean.o[[0, 2]], "o of the other rows")


def test_states_are_moved_once(npu):
    problem = update(TRIPLE, 2)
    problem.run()
    state = 2 * 6 * 128 * 128 * 4
    moved = npu.bytes_moved()
    assert state <= moved["MTE2"] <= 1.05 * state
    assert state <= moved["MTE3"] <= 1.05 * state
    assert npu.launches() == 1


def test_refusals():
    problem = update(TWO, 2, 2)
    with pytest.raises(GdnUnsupportedError, match="parent_tokens must be None on npu"):
        problem.run(parent_tokens=torch.tensor([[-1, 0]] * 2), disable_state_update=True)
    with pytest.raises(GdnUnsupportedError, match="A_log must be float32 on npu; got bfloat16"):
        problem.run(A_log=problem.args["A_log"].to(BF16))
    with pytest.raises(GdnUnsupportedError, match="dt_bias must be bfloat16 on npu; got float16"):
        problem.run(dt_bias=problem.args["dt_bias"].to(F16))
    with pytest.raises(GdnUnsupportedError, match="v must have at most 64 value heads on npu"):
        update(Heads(65, 65), 1).run()
    with pytest.raises(GdnNoKernelError, match="head_k_dim must be one of 128; got 64"):
        update(Heads(1, 1, 64, 128), 1).run()
    with pytest.raises(GdnNoKernelError, match="ssm_pool dtype must be one of float32; got bfloat16"):
        update(TWO, 1, state=BF16).run()
