"""Chunked prefill against the token-by-token oracle: lengths, heads, gates, dtypes, conditioning, continuation."""

from __future__ import annotations

import math

import pytest
import torch

import cases
import oracle
import tolerances
from cases import ACTIVATIONS, ASYMMETRIC, BF16, F16, F32, GATES, RATIOS, SMALL, STATES, TRIPLE, Heads, name_of, small
from compare import assert_bit_equal, assert_close, assert_zero, rel_l2
from problems import delta_rule, fused_layer, live, randn
from sglang_gdn import ops
from tolerances import limit


def check(problem) -> None:
    problem.check(problem.run(), problem.expected())


@pytest.mark.parametrize("tokens", cases.CHUNK_EDGES)
@pytest.mark.parametrize("initial", [False, True], ids=["fresh", "continued"])
def test_lengths_around_a_chunk(device, tokens, initial):
    check(delta_rule(device, TRIPLE, [tokens], initial=[initial]))


@pytest.mark.parametrize("lens", cases.VARLEN.values(), ids=cases.VARLEN)
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_packed_rows(device, lens, index_dtype):
    check(delta_rule(device, SMALL, lens, index_dtype=index_dtype, pad_tokens=3))


def test_257_rows_of_random_length(device):
    lens = torch.randint(1, 130, (257,), generator=torch.Generator().manual_seed(3)).tolist()
    check(delta_rule(device, small(1, 2), lens))


def test_2048_rows_of_1_to_4_tokens(device):
    check(delta_rule(device, small(1, 2), [1 + n % 4 for n in range(2048)]))


@pytest.mark.parametrize("heads", cases.QWEN_TP, ids=str)
def test_every_head_pair_of_public_models(device, heads):
    check(delta_rule(device, heads, [66, 3], act=BF16))


@pytest.mark.parametrize("heads", [*RATIOS, *ASYMMETRIC], ids=str)
@pytest.mark.parametrize("state", STATES, ids=name_of)
def test_ratios_head_sizes_and_state_dtypes(device, heads, state):
    check(delta_rule(device, heads, [70, 5], state=state))


def test_value_head_reads_key_head_of_its_group(device):
    """Every key head has one direction of its own, so a wrong head map cannot go unnoticed."""
    heads = small(3, 6)
    problem = delta_rule(device, heads, [5], initial=[False], norm=False, gates="beta-1")
    for h in range(heads.H):
        problem.args["q"][..., h, :] = problem.args["k"][..., h, :] = torch.eye(heads.K)[h].to(device)
    run = problem.run()
    states = run.ssm.tensor[live(problem.args["cache_indices"])[0]].cpu()
    for h in range(heads.HV):
        written = states[h].abs().amax(0).nonzero().flatten().tolist()
        assert written == [h // heads.ratio], f"value head {h}"


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("state", STATES, ids=name_of)
def test_activation_and_state_dtypes(device, act, state):
    check(delta_rule(device, SMALL, [130, 64, 3], act=act, state=state))


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_gates(device, gates, act):
    problem = delta_rule(device, TRIPLE, [130, 64, 3], gates=gates, act=act)
    bound = tolerances.undecayed_state_limit(device, F32) if gates == "none" else None
    problem.check(problem.run(), problem.expected(), bound)


@pytest.mark.parametrize("tokens", [64, 1024])
def test_gates_that_forget_everything_do_not_overflow(device, tokens):
    problem = delta_rule(device, SMALL, [tokens], gates="forget")
    run, expected = problem.run(), problem.expected()
    assert run.o.isfinite().all()
    act = problem.activation
    assert_close(run.o, expected.o, tolerances.chunked_limit(device, tolerances.FORGET_ALL, "prefill_o", act), "o")
    slot = live(problem.args["cache_indices"])
    bound = tolerances.chunked_limit(device, tolerances.FORGET_ALL, "prefill_state", F32)
    assert_close(run.ssm.tensor[slot], expected.pool[slot], bound, "ssm_pool")


@pytest.mark.parametrize("spread", [1.0, 0.3, 0.03])
def test_nearly_identical_keys(device, spread):
    """The triangular system is worst conditioned when keys agree, beta is near 1 and nothing decays."""
    problem = delta_rule(device, SMALL, [200], gates="none")
    gen = torch.Generator().manual_seed(5)
    k = randn(gen, 1, 1, SMALL.H, SMALL.K) + spread * randn(gen, 1, 200, SMALL.H, SMALL.K)
    problem.args |= {
        "k": k.to(problem.activation).to(device),
        "beta": torch.full((1, 200, SMALL.HV), 0.99, device=device),
    }
    check(problem)


@pytest.mark.parametrize("norm_of_q", [0.0, 1e-4, 1e-3, 1.0])
def test_epsilon_of_the_l2norm_is_inside_the_root(device, norm_of_q):
    problem = delta_rule(device, SMALL, [70])
    for name in ("q", "k"):
        problem.args[name] = torch.nn.functional.normalize(problem.args[name], dim=-1) * norm_of_q
    if norm_of_q == 0:
        assert_zero(problem.run().o, "o")
    else:
        check(problem)


def test_l2norm_flag_is_honoured(device):
    raw = delta_rule(device, SMALL, [70])
    for name in ("q", "k"):
        raw.args[name] = raw.args[name] * 10
    check(raw)
    normalised = {
        name: oracle.l2norm(raw.args[name].cpu().double()).to(raw.activation).to(device) for name in ("q", "k")
    }  # fmt: skip
    plain = delta_rule(device, SMALL, [70], norm=False)
    plain.args |= normalised
    check(plain)
    same = tolerances.chunked_limit(device, 1e-4, "prefill_o", plain.activation)  # 16-bit inputs were rounded elsewhere
    assert rel_l2(plain.run(use_qk_l2norm_in_kernel=True).o, raw.run().o) < same
    unnormalised = plain.run(q=10 * normalised["q"])
    assert_close(unnormalised.o, 10 * plain.expected().o, limit(device, "prefill_o", plain.activation), "o")


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_scale(device, scale):
    check(delta_rule(device, SMALL, [70], scale=scale))


@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_large_initial_state(device, act):
    check(delta_rule(device, SMALL, [130], state_scale=1e4, act=act))


def test_huge_state_that_nothing_decays_stays_finite(device):
    problem = delta_rule(device, SMALL, [128], gates="beta-1", state_scale=1e5)
    problem.args["g"].zero_()
    problem.args["k"][:] = problem.args["k"][:, :1].clone()
    run, expected = problem.run(), problem.expected()
    slot = live(problem.args["cache_indices"])
    assert_close(run.ssm.tensor[slot], expected.pool[slot], tolerances.HUGE_STATE, "ssm_pool")
    assert run.o.isfinite().all()


@pytest.mark.parametrize("lens", [[64, 111, 192], [500, 700, 900]], ids=str)
def test_recipe_with_absolute_limits(device, lens):
    """Normalised q and k, A in U(0, 16), initial state times 0.05, bfloat16 inputs."""
    problem = delta_rule(device, Heads(2, 4), lens, act=BF16, state_scale=0.05)
    problem.args["v"] *= 0.05
    run, expected = problem.run(), problem.expected()
    slots = live(problem.args["cache_indices"])
    for name, actual, reference in (
        ("o", run.o, expected.o), ("state", run.ssm.tensor[slots], expected.pool[slots])
    ):  # fmt: skip
        error = (actual.cpu().double() - reference).abs()
        assert error.max() < tolerances.SGLANG_RECIPE[f"{name}_max"]
        assert error.mean() < tolerances.SGLANG_RECIPE[f"{name}_mean"]


@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_error_does_not_grow_over_32768_tokens(device, act):
    tokens = 32768
    problem = delta_rule(device, small(1, 1), [tokens], act=act)
    problem.args["g"] /= 16
    expected = problem.expected()
    run = problem.run(output_h=True)
    bounds = limit(device, "prefill_o", act), tolerances.undecayed_state_limit(device, F32)
    for begin in range(0, tokens, 1024):
        block, chunk = slice(begin, begin + 1024), begin // 64
        assert_close(run.o[block], expected.o[block], bounds[0], f"o of tokens {begin}..{begin + 1023}")
        assert_close(run.h[chunk], expected.boundaries[0][chunk], bounds[1], f"state before token {begin}")


def test_131072_tokens_equal_their_halves(device):
    tokens = 131072
    problem = fused_layer(device, small(1, 1), lens=[tokens], initial=[False], act=BF16, conv=BF16)
    whole, outputs = problem.prefill(), []
    bounds = torch.tensor([0, tokens // 2], dtype=torch.int32, device=device)
    for part, initial in ((slice(0, tokens // 2), {}), (slice(tokens // 2, None), {"has_initial_state": None})):
        half = {name: x[part] for name, x in problem.tokens.items()}
        run = problem.prefill(**half, **initial, query_start_loc=bounds)
        problem.conv, problem.ssm = run.conv.tensor.clone(), run.ssm.tensor.clone()
        outputs.append(run.o)
    assert_bit_equal(torch.cat(outputs), whole.o, "o")
    assert_bit_equal(run.ssm.tensor, whole.ssm.tensor, "ssm_pool")
    assert_bit_equal(run.conv.tensor, whole.conv.tensor, "conv_pool")


# --- continuation --------------------------------------------------------------------------------------------------


def run_in_parts(problem, parts: list[int], **changes):
    """The one row of ``problem``, prefilled in several calls that hand the state on through its slot."""
    pool, outputs, begin = problem.ssm, [], 0
    for n, length in enumerate(parts):
        rows = slice(begin, begin + length)
        part = {name: problem.args[name][:, rows] for name in ("q", "k", "v", "g", "beta")}
        part["cu_seqlens"] = torch.tensor([0, length], dtype=torch.int32, device=problem.device)
        if n > 0:
            part["has_initial_state"] = None
        run = problem.run(**part, ssm_pool=pool, **changes)
        pool = run.ssm.tensor.clone()
        outputs.append(run.o)
        begin += length
    return torch.cat(outputs), pool


@pytest.mark.parametrize("split", [1, 2, 3, 63, 64, 65, 500, 999])
@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_two_calls_equal_one(device, split, act):
    problem = delta_rule(device, SMALL, [1000], act=act, initial=[False])
    whole = problem.run()
    o, pool = run_in_parts(problem, [split, 1000 - split])
    slot = live(problem.args["cache_indices"])
    bounds = [
        tolerances.chunked_limit(device, tolerances.SPLIT[act], *x)
        for x in (("prefill_o", act), ("prefill_state", F32))
    ]
    assert_close(o, whole.o, bounds[0], "o")
    assert_close(pool[slot], whole.ssm.tensor[slot], bounds[1], "ssm_pool")


@pytest.mark.parametrize("parts", [[64, 936], [512, 488], [192, 64, 744], [64] * 15 + [40]], ids=str)
@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_calls_split_between_chunks_equal_one_bit_for_bit(device, parts, act):
    problem = delta_rule(device, SMALL, [1000], act=act)
    whole = problem.run()
    o, pool = run_in_parts(problem, parts)
    assert_bit_equal(o, whole.o, "o")
    assert_bit_equal(pool, whole.ssm.tensor, "ssm_pool")


def test_initial_state_enters_once_over_three_calls(device):
    problem = delta_rule(device, small(1, 1), [3 * 2048], gates="none", state_scale=1.0)
    problem.args["beta"] *= 0.01
    o, pool = run_in_parts(problem, [2048] * 3)
    expected = problem.expected()
    assert_close(o, expected.o, limit(device, "prefill_o", problem.activation), "o")
    slot = live(problem.args["cache_indices"])
    assert_close(pool[slot], expected.pool[slot], limit(device, "prefill_state", F32), "ssm_pool")


@pytest.mark.parametrize("state", STATES, ids=name_of)
def test_one_token_equals_a_decode_step(device, state):
    for initial in (False, True):
        problem = fused_layer(device, SMALL, lens=[1, 1, 1], initial=[initial] * 3, state=state)
        prefilled = problem.prefill()
        if not initial:
            problem.conv.zero_()
            problem.ssm.zero_()
        problem.rows = {"cache_indices": problem.rows["cache_indices"]}
        decoded = problem.decode()
        slots = live(problem.rows["cache_indices"])
        bounds = {
            output: tolerances.chunked_limit(device, tolerances.ONE_TOKEN_PREFILL, output, stored)
            for output, stored in (("prefill_o", problem.activation), ("prefill_state", state))
        }
        bound = max(bounds["prefill_state"], limit(device, "decode_state", state) if state != F32 else 0)
        assert_close(prefilled.o, decoded.o, bounds["prefill_o"], "o")
        assert_close(prefilled.ssm.tensor[slots], decoded.ssm.tensor[slots], bound, "ssm_pool")
        assert_bit_equal(prefilled.conv.tensor[slots], decoded.conv.tensor[slots], "conv_pool")


# --- dense form ----------------------------------------------------------------------------------------------------


def dense_problem(device, heads, batch, tokens, act=None):
    problem = delta_rule(device, heads, [tokens] * batch, act=act, ids=list(range(batch)), slots=batch, norm=False)
    args = {
        name: problem.args[name].unflatten(1, (batch, tokens))[0] for name in ("q", "k", "v", "g", "beta")
    }  # fmt: skip
    return problem, args


@pytest.mark.parametrize("heads", [SMALL, *ASYMMETRIC], ids=str)
@pytest.mark.parametrize("layout", ["kv", "vk"])
def test_dense_form_in_both_state_layouts(device, heads, layout):
    problem, args = dense_problem(device, heads, 3, 70)
    initial = problem.ssm.transpose(-1, -2) if layout == "kv" else problem.ssm
    before = initial.clone()
    o, final = ops.chunk_gated_delta_rule(**args, initial_state=initial, output_final_state=True, state_layout=layout)
    expected = problem.expected()
    assert o.shape == args["v"].shape and final.dtype == F32 and final.is_contiguous()
    assert_close(o.flatten(0, 1), expected.o, limit(device, "prefill_o", problem.activation), "o")
    reference = expected.pool.transpose(-1, -2) if layout == "kv" else expected.pool
    assert_close(final, reference, limit(device, "prefill_state", F32), "final_state")
    assert_bit_equal(initial, before, "initial_state")


def test_dense_layouts_are_told_apart_where_shapes_cannot(device):
    problem, args = dense_problem(device, SMALL, 1, 5)
    results = [
        ops.chunk_gated_delta_rule(**args, initial_state=problem.ssm, state_layout=layout)[0] for layout in ("kv", "vk")
    ]
    assert rel_l2(*results) > 0.1


def test_dense_form_without_initial_and_final_state(device):
    problem, args = dense_problem(device, SMALL, 2, 70)
    o, final = ops.chunk_gated_delta_rule(**args)
    assert final is None
    problem.ssm.zero_()
    assert_close(o.flatten(0, 1), problem.expected().o, limit(device, "prefill_o", problem.activation), "o")


def test_dense_form_with_cu_seqlens_and_positional_arguments(device):
    problem = delta_rule(device, SMALL, [3, 0, 70], ids=[0, 1, 2], slots=3, norm=False)
    q, k, v, g, beta, cu_seqlens = (problem.args[name] for name in ("q", "k", "v", "g", "beta", "cu_seqlens"))
    initial = problem.ssm.transpose(-1, -2).contiguous()
    o, final = ops.chunk_gated_delta_rule(q, k, v, g, beta, SMALL.K**-0.5, initial, True, cu_seqlens)
    expected = problem.expected()
    assert_close(o[0], expected.o, limit(device, "prefill_o", problem.activation), "o")
    assert_close(final, expected.pool.transpose(-1, -2), limit(device, "prefill_state", F32), "final_state")
    assert_bit_equal(final[1], initial[1], "state of the empty row")


def test_dense_batch_equals_packed_rows_bit_for_bit(device):
    problem, args = dense_problem(device, SMALL, 3, 70, act=BF16)
    o, final = ops.chunk_gated_delta_rule(**args, initial_state=problem.ssm, output_final_state=True, state_layout="vk")
    packed = problem.run()
    assert_bit_equal(o.flatten(0, 1), packed.o, "o")
    assert_bit_equal(final, packed.ssm.tensor, "states")


def test_heads_packed_without_batch_dimension(device):
    problem = delta_rule(device, SMALL, [70, 3])
    flat = {name: problem.args[name][0] for name in ("q", "k", "v", "g", "beta")}
    assert_bit_equal(problem.run(**flat).o, problem.run().o, "o")


# --- fused layer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [SMALL, TRIPLE, *ASYMMETRIC], ids=str)
@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
def test_fused_layer(device, heads, act):
    problem = fused_layer(
        device, heads, lens=[66, 0, 1, 2, 3], ids=[0, 4, -1, 8, 2], initial=[True, True, True, False, True], act=act,
        conv=BF16 if act == F32 else act, pad_tokens=2,
    )  # fmt: skip
    problem.check_prefill(problem.prefill(extra_pitch=96), problem.expected_prefill())


@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("conv", [F32, BF16, F16], ids=name_of)
@pytest.mark.parametrize(("width", "bias", "activation"), [(4, False, "silu"), (3, True, None), (2, True, "swish")])
def test_fused_layer_options(device, state, conv, width, bias, activation):
    problem = fused_layer(
        device, SMALL, lens=[5, 66], state=state, conv=conv, width=width, bias=bias, activation=activation
    )
    problem.check_prefill(problem.prefill(), problem.expected_prefill())


def test_fused_layer_scale(device):
    problem = fused_layer(device, SMALL, lens=[66])
    assert_close(
        problem.prefill(scale=1.0).o, math.sqrt(SMALL.K) * problem.expected_prefill()[0].o,
        limit(device, "prefill_o", problem.activation), "o",
    )  # fmt: skip


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("initial", [False, True])
def test_short_prompt_then_decode_equals_one_prefill(device, length, initial):
    problem = fused_layer(device, SMALL, lens=[length + 4], initial=[initial])
    expected = problem.expected_prefill()
    prompt = problem.prefill(
        **{name: x[:length] for name, x in problem.tokens.items()},
        query_start_loc=torch.tensor([0, length], dtype=torch.int32, device=device),
    )
    outputs = [prompt.o]
    problem.conv, problem.ssm = prompt.conv.tensor.clone(), prompt.ssm.tensor.clone()
    ids = {"cache_indices": problem.rows["cache_indices"]}
    problem.rows = ids
    for t in range(length, length + 4):
        step = problem.decode(**{name: x[t : t + 1] for name, x in problem.tokens.items()})
        outputs.append(step.o)
        problem.conv, problem.ssm = step.conv.tensor.clone(), step.ssm.tensor.clone()
    slot = live(ids["cache_indices"])
    assert_close(torch.cat(outputs), expected[0].o, limit(device, "prefill_o", problem.activation), "o")
    assert_close(problem.ssm[slot], expected[0].pool[slot], limit(device, "prefill_state", F32), "ssm_pool")
    assert_bit_equal(problem.conv[slot].cpu(), expected[1][slot].float(), "conv_pool")


@pytest.mark.parametrize("tail", [1, 2, 63, 64, 65])
def test_prefix_hit_equals_cold_run(device, tail):
    prefix = 128
    problem = fused_layer(device, SMALL, lens=[prefix + tail], initial=[False], act=BF16, conv=BF16)
    cold = problem.prefill()
    bounds = {"query_start_loc": torch.tensor([0, prefix], dtype=torch.int32, device=device)}
    first = problem.prefill(**{name: x[:prefix] for name, x in problem.tokens.items()}, **bounds)
    problem.conv, problem.ssm = first.conv.tensor.clone(), first.ssm.tensor.clone()
    hit = problem.prefill(
        **{name: x[prefix:] for name, x in problem.tokens.items()}, has_initial_state=None,
        query_start_loc=torch.tensor([0, tail], dtype=torch.int32, device=device),
    )  # fmt: skip
    assert_bit_equal(hit.o, cold.o[prefix:], "o")
    assert_bit_equal(hit.ssm.tensor, cold.ssm.tensor, "ssm_pool")
    assert_bit_equal(hit.conv.tensor, cold.conv.tensor, "conv_pool")
