"""Draft tokens: verified without a committed state, then committed up to the last accepted one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import cases
import oracle
import problems
from cases import ACTIVATIONS, BF16, F16, F32, SMALL, STATES, TRIPLE, name_of
from compare import GuardedPool, assert_bit_equal, assert_close
from problems import assert_rows, fused_layer, window_pool
from sglang_gdn import ops
from tolerances import draft_output_limit, fused_state_limit, limit

TREES = {
    "chain": [-1, 0, 1, 2, 3, 4],
    "two-branches": [-1, 0, 0, 1, 2, 2],
    "all-roots": [-1, -1, -1, -1, -1, -1],
    "late-root": [-1, 0, 1, -1, 3, 0],
}


def check(problem, spec_slots, spec_ids, parents=None, overlapping=False) -> None:
    assert_verified(problem, problem.verify(spec_slots, spec_ids, parents, overlapping), spec_slots, spec_ids, parents)


def assert_verified(problem, run, spec_slots, spec_ids, parents=None) -> None:
    """Outputs, the state and window after every token, and nothing else in the buffers."""
    o, _, _, windows, states = oracle.gdn_update(
        problem.layer, conv_pool=problem.conv, ssm_pool=problem.ssm, parent_tokens=parents, commit=False,
        **problem.tokens, **problem.rows,
    )  # fmt: skip
    live_rows = (problem.rows["cache_indices"].cpu() >= 0).nonzero()[:, 0]
    bound = draft_output_limit(problem.device, problem.activation, problem.ssm.dtype)
    assert_rows(run.o, o, live_rows, bound, "o")
    stored = [n for n in live_rows.tolist() if spec_ids[n] >= 0]
    sources = [spec_ids[n] for n in stored]
    bound = fused_state_limit(problem.device, "decode_state", problem.ssm.dtype, problem.activation)
    assert_close(run.intermediate_ssm[sources], states[stored], bound, "intermediate_ssm")
    assert_bit_equal(run.intermediate_conv[sources].cpu(), windows[stored].to(problem.conv.dtype), "windows")
    unnamed = [slot for slot in range(spec_slots) if slot not in sources]
    assert run.intermediate_ssm[unnamed].isnan().all(), "intermediate_ssm outside the named rows"
    assert run.intermediate_conv[unnamed].isnan().all(), "intermediate_conv_window outside the named rows"


def test_one_wrong_element_is_noticed(device):
    problem = fused_layer(device, SMALL, batch=3, drafts=2, ids=[4, -1, 0])
    run = problem.verify(4, [2, 1, 0])
    assert_verified(problem, run, 4, [2, 1, 0])
    for tensor, index in (
        (run.o, (0, 1, 3, 5)), (run.o, (1, 0, 0, 0)), (run.intermediate_ssm, (0, 1, 2, 3, 4)),
        (run.intermediate_ssm, (3, 0, 0, 0, 0)), (run.intermediate_conv, (2, 0, 9, 2)),
        (run.intermediate_conv, (1, 1, 511, 0)),
    ):  # fmt: skip
        saved = tensor[index].clone()
        tensor[index] = 7.0
        with pytest.raises(AssertionError):
            assert_verified(problem, run, 4, [2, 1, 0])
        tensor[index] = saved
    assert_verified(problem, run, 4, [2, 1, 0])


@pytest.mark.parametrize("drafts", range(1, 17))
def test_draft_counts(device, drafts):
    check(fused_layer(device, SMALL, batch=2, drafts=drafts, act=BF16, conv=BF16), 3, [2, 0])


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("conv", [F32, BF16, F16], ids=name_of)
def test_dtypes(device, act, state, conv):
    check(fused_layer(device, TRIPLE, batch=2, drafts=4, act=act, state=state, conv=conv), 2, [1, 0])


@pytest.mark.parametrize("heads", [cases.Heads(4, 8), cases.Heads(4, 12), *cases.ASYMMETRIC], ids=str)
def test_heads(device, heads):
    check(fused_layer(device, heads, batch=2, drafts=4), 2, [1, 0])


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_slots(device, ids, index_dtype):
    problem = fused_layer(device, SMALL, batch=4, drafts=3, ids=ids, index_dtype=index_dtype)
    check(problem, 6, [5, 1, 0, 2])
    check(problem, 6, [-1, 1, -1, 2])
    check(problem, 6, [-1, -1, -1, -1])


@pytest.mark.parametrize("width", cases.CONV_WIDTHS)
def test_overlapping_windows(device, width):
    check(fused_layer(device, SMALL, batch=3, drafts=5, width=width, conv=BF16), 4, [3, 0, 1], overlapping=True)


@pytest.mark.needs("draft_trees")
@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_trees(device, parents, act, index_dtype):
    tree = torch.tensor([parents, TREES["two-branches"], TREES["chain"]], dtype=index_dtype, device=device)
    check(fused_layer(device, SMALL, batch=3, drafts=6, act=act, conv=act, ids=[0, -1, 4]), 3, [2, 1, 0], tree)


@pytest.mark.needs("draft_trees")
def test_a_chain_given_as_a_tree_is_the_same_bit_for_bit(device):
    problem = fused_layer(device, SMALL, batch=2, drafts=6)
    chain = problem.verify(2, [0, 1])
    tree = problem.verify(2, [0, 1], torch.tensor([TREES["chain"]] * 2, device=device))
    assert_bit_equal(tree.o, chain.o, "o")
    assert_bit_equal(tree.intermediate_ssm, chain.intermediate_ssm, "intermediate_ssm")
    assert_bit_equal(tree.intermediate_conv, chain.intermediate_conv, "windows")


@pytest.mark.parametrize("wrong", [4, 2**31 - 1, -2])
def test_rows_outside_the_buffers_reach_no_memory(device, wrong):
    problem = fused_layer(device, SMALL, batch=2, drafts=3)
    run, expected = problem.verify(4, [wrong, 1]), problem.verify(4, [-1, 1])
    assert_bit_equal(run.o, expected.o, "o")
    assert_bit_equal(run.intermediate_ssm[1], expected.intermediate_ssm[1], "intermediate_ssm")
    assert run.intermediate_ssm[[0, 2, 3]].isnan().all() and run.intermediate_conv[[0, 2, 3]].isnan().all()
    commit(run, problem.rows["cache_indices"], [wrong, 1], [0, 0], device)
    written = problem.rows["cache_indices"].tolist()[1:]
    run.ssm.assert_only_wrote(written, "ssm_pool")
    run.conv.assert_only_wrote(written, "conv_pool")


def test_more_drafts_than_the_cap_are_refused_by_name(device):
    with pytest.raises(ValueError, match="gdn_verify: mixed_qkv must be of 1 to 16 draft tokens"):
        fused_layer(device, SMALL, batch=1, drafts=17).verify(1, [0])


@pytest.mark.parametrize("drafts", [4, 9])
def test_update_stores_the_state_after_each_token(device, drafts):
    problem = problems.update(device, TRIPLE, 3, drafts, ids=[2, -1, 0])
    states = torch.full((4, drafts, *problem.ssm.shape[1:]), torch.nan, device=device)
    sources = torch.tensor([3, 1, 0], dtype=torch.int32, device=device)
    run = problem.run(intermediate_ssm=states, intermediate_state_indices=sources, disable_state_update=True)
    run.ssm.assert_untouched("ssm_pool")
    _, _, expected = problem.expected()
    assert_close(states[[3, 0]], expected[[0, 2]], limit(device, "decode_state", F32), "intermediate_ssm")
    assert states[[1, 2]].isnan().all()


def test_update_stores_states_and_commits_the_last(device):
    problem = problems.update(device, SMALL, 2, 3)
    states = torch.full((2, 3, *problem.ssm.shape[1:]), torch.nan, device=device)
    sources = torch.tensor([0, 1], dtype=torch.int32, device=device)
    run = problem.run(intermediate_ssm=states, intermediate_state_indices=sources)
    problem.check(run, problem.expected())
    assert_bit_equal(run.ssm.tensor[problem.args["cache_indices"].long()], states[:, -1], "last state")


def test_buffers_with_free_strides(device):
    """Rows and steps of the intermediate buffers may be views of wider memory."""
    problem = problems.update(device, SMALL, 2, 3)
    wide = torch.full((2, 5, *problem.ssm.shape[1:]), torch.nan, device=device)
    sources = torch.tensor([1, 0], dtype=torch.int32, device=device)
    problem.run(intermediate_ssm=wide[:, 1:4], intermediate_state_indices=sources, disable_state_update=True)
    _, _, expected = problem.expected()
    assert_close(wide[[1, 0], 1:4], expected, limit(device, "decode_state", F32), "intermediate_ssm")
    assert wide[:, [0, 4]].isnan().all()


# --- commit --------------------------------------------------------------------------------------------------------


def commit(run, cache_indices, spec_ids, last_steps, device):
    rows = {
        "cache_indices": cache_indices,
        "intermediate_state_indices": torch.tensor(spec_ids, dtype=torch.int32, device=device),
        "last_steps": torch.tensor(last_steps, dtype=cache_indices.dtype, device=device),
    }
    ops.gdn_commit(
        conv_pool=run.conv.tensor, ssm_pool=run.ssm.tensor, intermediate_ssm=run.intermediate_ssm,
        intermediate_conv_window=run.intermediate_conv, **rows,
    )  # fmt: skip
    return SimpleNamespace(**rows)


@pytest.mark.parametrize("drafts", range(1, 9))
@pytest.mark.parametrize("overlapping", [False, True])
def test_commit_equals_feeding_the_accepted_tokens_one_by_one(device, drafts, overlapping):
    """Row n accepts its first n drafts; row 0 accepts none and keeps its state."""
    rows = drafts + 1
    problem = fused_layer(device, SMALL, batch=rows, drafts=drafts, ids=list(range(rows)), act=BF16, conv=BF16)
    run = problem.verify(rows, list(range(rows)), overlapping=overlapping)
    commit(run, problem.rows["cache_indices"], list(range(rows)), [n - 1 for n in range(rows)], device)
    expected = [window_pool(problem.conv, device), GuardedPool(problem.ssm, device)]
    for n in range(rows):
        for t in range(n):
            ops.gdn_decode(
                **{name: x[n : n + 1, t] for name, x in problem.tokens.items()}, **problem.layer.kwargs(),
                conv_pool=expected[0].tensor, ssm_pool=expected[1].tensor,
                cache_indices=problem.rows["cache_indices"][n : n + 1],
            )  # fmt: skip
    assert_bit_equal(run.conv.storage, expected[0].storage, "conv_pool")
    slots = list(range(1, rows))
    assert_close(run.ssm.tensor[slots], expected[1].tensor[slots], limit(device, "decode_state", F32), "ssm_pool")
    run.ssm.assert_only_wrote(slots, "ssm_pool")


@pytest.mark.parametrize("drafts", [1, 13, 15, 16])
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_commit_bounds_every_step(device, drafts, index_dtype):
    steps = [-(2**31), -2, -1, 0, drafts - 1, drafts, drafts + 1, 2**31 - 1]
    rows = len(steps)
    problem = fused_layer(device, SMALL, batch=rows, drafts=drafts, ids=list(range(rows)), index_dtype=index_dtype)
    run = problem.verify(rows, list(range(rows)))
    args = commit(run, problem.rows["cache_indices"], list(range(rows)), steps, device)
    for pool, buffer, values in (
        (run.ssm, run.intermediate_ssm, problem.ssm), (run.conv, run.intermediate_conv, problem.conv)
    ):  # fmt: skip
        expected = oracle.gdn_commit(
            values, buffer, args.cache_indices, args.intermediate_state_indices, args.last_steps
        )
        assert_bit_equal(pool.tensor.cpu(), expected, "pool")
        pool.assert_only_wrote([3, 4], "pool")


@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
def test_commit_slots(device, ids, state):
    problem = fused_layer(device, SMALL, batch=4, drafts=3, ids=ids, state=state, conv=BF16)
    run = problem.verify(5, [4, 1, 0, 2])
    args = commit(run, problem.rows["cache_indices"], [4, -1, 0, 2], [2, 1, 0, 1], device)
    written = [slot for slot, source in zip(ids, [4, -1, 0, 2], strict=True) if slot >= 0 and source >= 0]
    for pool, buffer, values in (
        (run.ssm, run.intermediate_ssm, problem.ssm), (run.conv, run.intermediate_conv, problem.conv)
    ):  # fmt: skip
        expected = oracle.gdn_commit(
            values, buffer, args.cache_indices, args.intermediate_state_indices, args.last_steps
        )
        assert_bit_equal(pool.tensor.cpu(), expected, "pool")
        pool.assert_only_wrote(written, "pool")


@pytest.mark.needs("draft_trees")
def test_commit_of_a_branch_of_a_tree(device):
    """Tokens 0, 2, 4 are one branch; committing step 4 equals feeding exactly these three."""
    problem = fused_layer(device, SMALL, batch=1, drafts=6)
    run = problem.verify(1, [0], torch.tensor([TREES["two-branches"]], device=device))
    commit(run, problem.rows["cache_indices"], [0], [4], device)
    branch = {name: x[:, [0, 2, 4]].contiguous() for name, x in problem.tokens.items()}
    _, conv_after, ssm_after, _, _ = oracle.gdn_update(
        problem.layer, conv_pool=problem.conv, ssm_pool=problem.ssm, **branch, **problem.rows
    )
    slot = problem.rows["cache_indices"].tolist()
    assert_bit_equal(run.conv.tensor.cpu(), conv_after.float(), "conv_pool")
    assert_close(run.ssm.tensor[slot], ssm_after[slot], limit(device, "decode_state", F32), "ssm_pool")


def test_three_drafts_then_none_then_three(device):
    """Accept 2 of 3, decode one token, accept 3 of 3: the same state as feeding the 6 tokens one by one."""
    rounds = [(3, 2, 0), (1, 1, 1), (3, 3, 2)]
    problem = fused_layer(device, SMALL, batch=2, drafts=1)
    reference_conv, reference_ssm = problem.conv, problem.ssm
    for drafts, accepted, seed in rounds:
        tokens = fused_layer(device, SMALL, batch=2, drafts=drafts, seed=seed).tokens
        problem.tokens = tokens
        if drafts == 1:
            problem.tokens = {name: x[:, 0] for name, x in tokens.items()}
            run = problem.decode()
        else:
            run = problem.verify(2, [1, 0])
            commit(run, problem.rows["cache_indices"], [1, 0], [accepted - 1] * 2, device)
        problem.conv, problem.ssm = run.conv.tensor.clone(), run.ssm.tensor.clone()
        taken = {name: x[:, :accepted] for name, x in tokens.items()}
        _, reference_conv, reference_ssm, _, _ = oracle.gdn_update(
            problem.layer, conv_pool=reference_conv, ssm_pool=reference_ssm, **taken, **problem.rows
        )
    slots = problem.rows["cache_indices"].tolist()
    assert_bit_equal(problem.conv.cpu(), reference_conv.float(), "conv_pool")
    assert_close(problem.ssm[slots], reference_ssm[slots], limit(device, "prefill_state", F32), "ssm_pool")
