"""One or a few tokens a row with the state committed: the delta update alone and the fused layer."""

from __future__ import annotations

import pytest
import torch

import cases
import problems
from cases import ACTIVATIONS, ASYMMETRIC, BF16, F16, F32, RATIOS, SMALL, STATES, TRIPLE, name_of, small
from compare import assert_bit_equal, assert_close, rel_l2
from problems import fused_layer, live
from sglang_gdn import ops
from tolerances import limit


def check(problem) -> None:
    problem.check(problem.run(), problem.expected())


def check_layer(problem) -> None:
    problem.check_decode(problem.decode(), problem.expected_decode())


@pytest.mark.parametrize("heads", cases.QWEN_TP, ids=str)
def test_every_head_pair_of_public_models(device, heads):
    check_layer(fused_layer(device, heads, batch=2, act=BF16, conv=BF16))


@pytest.mark.parametrize("heads", [*RATIOS, *ASYMMETRIC], ids=str)
@pytest.mark.parametrize("state", STATES, ids=name_of)
def test_update_ratios_head_sizes_and_state_dtypes(device, heads, state):
    check(problems.update(device, heads, 3, state=state))


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("drafts", [1, 2, 5])
def test_update_dtypes_and_token_counts(device, act, state, drafts):
    check(problems.update(device, TRIPLE, 3, drafts, act=act, state=state))


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_slots(device, ids, state, index_dtype):
    check(problems.update(device, SMALL, 4, 2, ids=ids, state=state, index_dtype=index_dtype))
    check_layer(fused_layer(device, SMALL, batch=4, ids=ids, state=state, index_dtype=index_dtype))


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("conv", [F32, BF16, F16], ids=name_of)
@pytest.mark.parametrize("heads", [SMALL, TRIPLE, *ASYMMETRIC], ids=str)
def test_fused_layer(device, heads, act, conv):
    check_layer(fused_layer(device, heads, batch=5, act=act, conv=conv, ids=[0, -1, 8, 3, -1]))


@pytest.mark.parametrize(("width", "bias", "activation"), [(4, False, "silu"), (3, True, None), (2, True, "swish")])
def test_fused_layer_options(device, width, bias, activation):
    check_layer(fused_layer(device, SMALL, batch=3, width=width, bias=bias, activation=activation))


@pytest.mark.parametrize("batch", [0, 1, 2, 7, 33, 300])
def test_batch_sizes(device, batch):
    check_layer(fused_layer(device, small(1, 2), batch=batch, act=BF16, conv=BF16))


def test_batch_of_4096(device):
    check(problems.update(device, small(1, 1), 4096))


@pytest.mark.parametrize("b", [-200.0, -89.0, 89.0, 200.0])
def test_beta_of_zero_and_one(device, b):
    problem = problems.update(device, SMALL, 3)
    problem.args["b"].fill_(b)
    check(problem)


@pytest.mark.parametrize("a", [-1e4, 19.0, 20.0, 21.0, 88.0, 1e4])
def test_gates_from_none_to_everything(device, a):
    problem = problems.update(device, SMALL, 3)
    problem.args["a"].fill_(a)
    problem.args["dt_bias"].zero_()
    run, expected = problem.run(), problem.expected()
    assert run.o.isfinite().all() and run.ssm.tensor.isfinite().all()
    problem.check(run, expected)


@pytest.mark.parametrize("state_scale", [0.0, 1e4])
def test_state_scales(device, state_scale):
    check(problems.update(device, SMALL, 3, state_scale=state_scale))


@pytest.mark.parametrize("norm_of_q", [1e-4, 1e-3, 1.0, 100.0])
def test_epsilon_of_the_l2norm_is_inside_the_root(device, norm_of_q):
    problem = problems.update(device, SMALL, 3)
    for name in ("q", "k"):
        problem.args[name] = torch.nn.functional.normalize(problem.args[name], dim=-1) * norm_of_q
    check(problem)


def test_l2norm_flag_is_honoured(device):
    problem = problems.update(device, SMALL, 3)
    for name in ("q", "k"):
        problem.args[name] = torch.nn.functional.normalize(problem.args[name], dim=-1) * 0.5
    problem.args["use_qk_l2norm_in_kernel"] = False
    check(problem)
    assert rel_l2(problem.run(use_qk_l2norm_in_kernel=True).o, problem.run().o) > 0.1


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_scale(device, scale):
    problem = problems.update(device, SMALL, 3)
    problem.args["scale"] = scale
    check(problem)


@pytest.mark.parametrize("weights", [["A_log"], ["dt_bias"], ["A_log", "dt_bias"]], ids="-".join)
def test_weights_of_low_precision_are_upcast_exactly(device, weights):
    problem = problems.update(device, SMALL, 3)
    low = {name: problem.args[name].to(BF16) for name in weights}
    high = {name: x.float() for name, x in low.items()}
    actual, expected = problem.run(**low), problem.run(**high)
    assert_bit_equal(actual.o, expected.o, "o")
    assert_bit_equal(actual.ssm.storage, expected.ssm.storage, "ssm_pool")


def test_beta_is_not_rounded_to_the_dtype_of_b(device):
    """From a zero state, o is beta times something: a rounded beta shows as a wrong factor."""
    problem = problems.update(device, SMALL, 3, act=BF16, state_scale=0.0)
    problem.args["b"].fill_(0.5)
    run, expected = problem.run(), problem.expected()
    slots = live(problem.args["cache_indices"])
    assert_close(run.ssm.tensor[slots], expected[1][slots], limit(device, "decode_state", F32), "ssm_pool")


def test_heads_as_one_row_of_tokens_equals_one_token_a_row(device):
    problem = problems.update(device, SMALL, 3)
    args = problem.args
    flat = {name: args[name].transpose(0, 1) for name in ("q", "k", "v")} | {name: args[name][:, 0] for name in "ab"}
    pool = problems.GuardedPool(problem.ssm, device)
    o = ops.fused_sigmoid_gating_delta_rule_update(**(args | flat), ssm_pool=pool.tensor)
    run = problem.run()
    assert o.shape == (1, 3, SMALL.HV, SMALL.V)
    assert_bit_equal(o[0], run.o[:, 0], "o")
    assert_bit_equal(pool.storage, run.ssm.storage, "ssm_pool")


@pytest.mark.parametrize("state", STATES, ids=name_of)
def test_several_tokens_equal_single_steps_bit_for_bit(device, state):
    problem = problems.update(device, TRIPLE, 3, 4, state=state)
    whole = problem.run()
    pool, outputs = problem.ssm, []
    for t in range(4):
        step = {name: problem.args[name][:, t : t + 1] for name in ("q", "k", "v", "a", "b")}
        run = problem.run(**step, ssm_pool=pool)
        pool = run.ssm.tensor.clone()
        outputs.append(run.o)
    assert_bit_equal(torch.cat(outputs, dim=1), whole.o, "o")
    assert_bit_equal(pool, whole.ssm.tensor, "ssm_pool")


def test_256_steps_stay_close(device):
    """Errors of single steps do not accumulate beyond the limit of one prefill."""
    steps = 256
    problem = fused_layer(device, SMALL, lens=[steps] * 2)
    expected, conv_after = problem.expected_prefill()
    ids = {"cache_indices": problem.rows["cache_indices"]}
    slots = live(ids["cache_indices"])
    problem.rows, tokens = ids, problem.tokens
    for t in range(steps):
        run = problem.decode(**{name: x.unflatten(0, (2, steps))[:, t] for name, x in tokens.items()})
        problem.conv, problem.ssm = run.conv.tensor.clone(), run.ssm.tensor.clone()
    assert_close(problem.ssm[slots], expected.pool[slots], limit(device, "prefill_state", F32), "ssm_pool")
    assert_bit_equal(problem.conv[slots].cpu(), conv_after[slots].float(), "conv_pool")
