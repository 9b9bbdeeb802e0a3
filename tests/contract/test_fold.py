"""Draft tokens verified into a record, then folded into the states up to the last accepted one."""

from __future__ import annotations

import pytest
import torch

import cases
from cases import ACTIVATIONS, BF16, F16, F32, SLOTS, SMALL, STATES, TRIPLE, name_of
from compare import GuardedPool, assert_bit_equal, assert_close
from problems import assert_rows, fused_layer
from sglang_gdn import ops
from tolerances import fused_state_limit, limit

pytestmark = pytest.mark.needs("draft_records")

TREES = {
    "chain": [-1, 0, 1, 2, 3, 4],
    "two-branches": [-1, 0, 0, 1, 2, 2],
    "all-roots": [-1, -1, -1, -1, -1, -1],
    "late-root": [-1, 0, 1, -1, 3, 0],
}


def index(device, *values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device=device)


def fold(run, cache_indices, last_steps, parents=None, **track) -> None:
    ops.gdn_fold(
        conv_pool=run.conv.tensor, ssm_pool=run.ssm.tensor, cache_indices=cache_indices, record=run.record,
        last_steps=last_steps, parent_tokens=parents, **track,
    )  # fmt: skip


def assert_folded(problem, run, expected, targets) -> None:
    """``targets``: slot -> (row, step); everything else in the pools is untouched."""
    _, windows, states = expected
    bound = fused_state_limit(problem.device, "decode_state", problem.ssm.dtype, problem.activation)
    for slot, (row, step) in targets.items():
        assert_close(run.ssm.tensor[slot], states[row, step], bound, f"ssm_pool slot {slot}")
        window = windows[row, step].to(problem.conv.dtype)
        assert_bit_equal(run.conv.tensor[slot].cpu(), window, f"conv_pool slot {slot}")
    run.ssm.assert_only_wrote(targets, "ssm_pool")
    run.conv.assert_only_wrote(targets, "conv_pool")


def check(problem, steps, parents=None) -> None:
    """Verifies, folds row n up to ``steps[n]``, and compares outputs and pools with the oracle."""
    run, expected = problem.draft(parents), problem.expected_draft(parents)
    ids = problem.rows["cache_indices"]
    live_rows = (ids.cpu() >= 0).nonzero()[:, 0]
    assert_rows(run.o, expected[0], live_rows, limit(problem.device, "decode_o", problem.activation), "o")
    untouched = [n for n in range(len(run.record.g)) if n not in live_rows.tolist()]
    for name, part in zip(run.record._fields, run.record, strict=True):
        assert part[untouched].isnan().all() and not part[live_rows.to(part.device)].isnan().any(), f"record.{name}"
    fold(run, ids, index(problem.device, *steps, dtype=ids.dtype), parents)
    drafts = run.o.shape[1]
    targets = {
        slot: (n, step)
        for n, (slot, step) in enumerate(zip(ids.tolist(), steps, strict=True))
        if slot >= 0 and 0 <= step < drafts
    }
    assert_folded(problem, run, expected, targets)


@pytest.mark.parametrize("drafts", range(1, 17))
def test_draft_counts(device, drafts):
    check(fused_layer(device, SMALL, batch=2, drafts=drafts, act=BF16, conv=BF16), [drafts - 1, drafts // 2])


@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("conv", [F32, BF16, F16], ids=name_of)
def test_dtypes(device, act, state, conv):
    problem = fused_layer(device, TRIPLE, batch=3, drafts=4, act=act, state=state, conv=conv, ids=[4, -1, 0])
    check(problem, [3, 1, 2])


@pytest.mark.parametrize("heads", [*cases.RATIOS, cases.Heads(4, 12), *cases.ASYMMETRIC], ids=str)
@pytest.mark.parametrize("drafts", [4, 7, 16])
def test_heads(device, heads, drafts):
    check(fused_layer(device, heads, batch=2, drafts=drafts), [drafts - 1, 2])


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_slots(device, ids, index_dtype):
    problem = fused_layer(device, SMALL, batch=4, drafts=3, ids=ids, index_dtype=index_dtype)
    check(problem, [2, 0, -1, 1])


@pytest.mark.parametrize("width", cases.CONV_WIDTHS)
@pytest.mark.parametrize("drafts", [1, 2, 5])
@pytest.mark.parametrize("parents", [None, "all-roots", "two-branches"])
def test_convolution_options(device, width, drafts, parents):
    problem = fused_layer(
        device, SMALL, batch=2, drafts=drafts, act=BF16, conv=BF16, width=width, bias=width == 3, activation=None
    )
    tree = None if parents is None else torch.tensor([TREES[parents][:drafts]] * 2, device=device)
    check(problem, [drafts - 1, 0], tree)


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_every_node_of_a_tree(device, parents, act, index_dtype):
    """Row n accepts the path to node n; the rows have different trees."""
    trees = [parents, TREES["two-branches"], parents, TREES["chain"], parents, parents]
    tree = torch.tensor(trees, dtype=index_dtype, device=device)
    problem = fused_layer(device, SMALL, batch=6, drafts=6, act=act, conv=act, index_dtype=index_dtype)
    check(problem, [0, 1, 2, 3, 4, 5], tree)


@pytest.mark.parametrize("drafts", [9, 16])
def test_deep_and_wide_trees(device, drafts):
    deep = [t - 1 if t % 3 else max(t - 5, -1) for t in range(drafts)]
    wide = [(t - 1) // 2 for t in range(drafts)]
    wide[0] = -1
    tree = torch.tensor([deep, wide], dtype=torch.int32, device=device)
    check(fused_layer(device, TRIPLE, batch=2, drafts=drafts, act=BF16, conv=BF16), [drafts - 1, drafts - 2], tree)


def test_a_chain_given_as_a_tree_is_the_same_bit_for_bit(device):
    problem = fused_layer(device, SMALL, batch=2, drafts=6)
    tree = torch.tensor([TREES["chain"]] * 2, device=device)
    plain, as_tree = problem.draft(), problem.draft(tree)
    assert_bit_equal(as_tree.o, plain.o, "o")
    ids, steps = problem.rows["cache_indices"], index(device, 4, 2)
    fold(plain, ids, steps)
    fold(as_tree, ids, steps, tree)
    assert_bit_equal(as_tree.ssm.storage, plain.ssm.storage, "ssm_pool")
    assert_bit_equal(as_tree.conv.storage, plain.conv.storage, "conv_pool")


@pytest.mark.parametrize("drafts", range(1, 17))
def test_fold_equals_feeding_the_accepted_tokens_one_by_one(device, drafts):
    """Row n accepts its first n drafts; row 0 accepts none and keeps its state."""
    rows = drafts + 1
    problem = fused_layer(device, SMALL, batch=rows, drafts=drafts, ids=list(range(rows)), act=BF16, conv=BF16)
    run = problem.draft()
    ids = problem.rows["cache_indices"]
    fold(run, ids, index(device, *(n - 1 for n in range(rows))))
    conv, ssm = GuardedPool(problem.conv, device), GuardedPool(problem.ssm, device)
    for t in range(drafts):
        ops.gdn_decode(
            **{name: x[t + 1 :, t] for name, x in problem.tokens.items()}, **problem.layer.kwargs(),
            conv_pool=conv.tensor, ssm_pool=ssm.tensor, cache_indices=ids[t + 1 :],
        )  # fmt: skip
    assert_bit_equal(run.conv.storage, conv.storage, "conv_pool")
    slots = list(range(1, rows))
    assert_close(run.ssm.tensor[slots], ssm.tensor[slots], limit(device, "decode_state", F32), "ssm_pool")
    run.ssm.assert_only_wrote(slots, "ssm_pool")


@pytest.mark.parametrize("drafts", [1, 13, 15, 16])
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_steps_and_parents_out_of_range_reach_no_memory(device, drafts, index_dtype):
    steps = [-(2**31), -2, -1, 0, drafts - 1, drafts, drafts + 1, 2**31 - 1]
    problem = fused_layer(device, SMALL, batch=8, drafts=drafts, ids=list(range(8)), index_dtype=index_dtype)
    check(problem, steps)
    roots = torch.tensor([[-(2**31), -2, 7, 2**31 - 1] * 4] * 8, dtype=index_dtype, device=device)[:, :drafts]
    run = problem.draft(roots.contiguous())
    plain = problem.draft(torch.full_like(roots, -1))
    assert_bit_equal(run.o[:, :3], plain.o[:, :3], "o")


@pytest.mark.parametrize("wrong", [SLOTS, 2**31 - 1, -2])
def test_slots_outside_the_pools_reach_no_memory(device, wrong):
    problem = fused_layer(device, SMALL, batch=2, drafts=3, ids=[2, 5])
    run, expected = problem.draft(), problem.expected_draft()
    steps = index(device, 2, 1)
    fold(run, index(device, wrong, 5), steps, track_slots=index(device, 3, wrong), track_steps=steps)
    assert_folded(problem, run, expected, {5: (1, 1)})
    assert not problem.draft(cache_indices=index(device, wrong, 5)).o[0].any()


def test_state_after_another_token_is_stored_to_a_track_slot(device):
    problem = fused_layer(device, SMALL, batch=5, drafts=4, ids=[0, 1, 2, -1, 4], act=BF16, conv=BF16)
    run, expected = problem.draft(), problem.expected_draft()
    fold(
        run, problem.rows["cache_indices"], index(device, 3, 2, -1, 1, 9),
        track_slots=index(device, 5, -1, 6, 7, 8), track_steps=index(device, 1, 0, 2, 0, 4),
    )  # fmt: skip
    assert_folded(problem, run, expected, {0: (0, 3), 5: (0, 1), 1: (1, 2), 6: (2, 2)})


def test_tracked_step_of_a_tree(device):
    problem = fused_layer(device, SMALL, batch=1, drafts=6, ids=[3])
    tree = torch.tensor([TREES["two-branches"]], device=device)
    run, expected = problem.draft(tree), problem.expected_draft(tree)
    steps = {"track_slots": index(device, 0), "track_steps": index(device, 2)}
    fold(run, problem.rows["cache_indices"], index(device, 5), tree, **steps)
    assert_folded(problem, run, expected, {3: (0, 5), 0: (0, 2)})


@pytest.mark.parametrize("page_major", [False, True])
@pytest.mark.parametrize("state", [F32, BF16], ids=name_of)
def test_all_layers_at_once_equal_each_alone(device, page_major, state):
    """Pools as [layers, slots, ...]; page-major: one slot of all layers after the other in memory."""
    layers, drafts, ids = 3, 5, [4, -1, 0]
    problems = [
        fused_layer(device, TRIPLE, batch=3, drafts=drafts, ids=ids, state=state, conv=BF16, seed=seed)
        for seed in range(layers)
    ]
    record = problems[0].nan_record(layers, 4, drafts)
    stacked = {"conv_pool": [], "ssm_pool": []}
    rows = {
        "cache_indices": problems[0].rows["cache_indices"], "last_steps": index(device, 3, 1, 0),
        "track_slots": index(device, 7, 6, -1), "track_steps": index(device, 1, 1, 1),
    }  # fmt: skip
    alone = []
    for i, problem in enumerate(problems):
        run = problem.draft(spare_rows=1)
        for part, whole in zip(run.record, record, strict=True):
            whole[i] = part
        stacked["conv_pool"].append(problem.conv)
        stacked["ssm_pool"].append(problem.ssm)
        ops.gdn_fold(conv_pool=run.conv.tensor, ssm_pool=run.ssm.tensor, record=run.record, **rows)
        alone.append((run.conv.tensor, run.ssm.tensor))
    dim = 1 if page_major else 0
    pools = {name: torch.stack(parts, dim=dim) for name, parts in stacked.items()}
    if page_major:
        pools = {name: pool.transpose(0, 1) for name, pool in pools.items()}
    ops.gdn_fold(**pools, record=record, **rows)
    for i, (conv, ssm) in enumerate(alone):
        assert_bit_equal(pools["conv_pool"][i], conv, f"conv_pool of layer {i}")
        assert_bit_equal(pools["ssm_pool"][i], ssm, f"ssm_pool of layer {i}")


def test_verify_writes_one_layer_of_a_record(device):
    problem = fused_layer(device, SMALL, batch=2, drafts=3)
    record = problem.nan_record(3, 2, 3)
    ops.gdn_verify(
        **problem.tokens, **problem.rows, **problem.layer.kwargs(), conv_pool=problem.conv, ssm_pool=problem.ssm,
        record=record.layer(1),
    )  # fmt: skip
    alone = problem.draft(spare_rows=0).record
    for part, expected in zip(record, alone, strict=True):
        assert_bit_equal(part[1], expected)
        assert part[[0, 2]].isnan().all()


def test_records_with_free_strides(device):
    """Rows and tokens of a record may be views of wider memory."""
    problem = fused_layer(device, SMALL, batch=2, drafts=3)
    plain = problem.draft()
    wide = problem.nan_record(3, 5)
    record = ops.DraftRecord(*(part[1:, 1:4] for part in wide))
    run = problem.draft()
    ops.gdn_verify(
        **problem.tokens, **problem.rows, **problem.layer.kwargs(), conv_pool=run.conv.tensor, ssm_pool=run.ssm.tensor,
        record=record,
    )  # fmt: skip
    for part, expected, whole in zip(record, plain.record, wide, strict=True):
        assert_bit_equal(part, expected[:2])
        assert whole[0].isnan().all() and whole[:, [0, 4]].isnan().all()
    run.record = record
    for each in (run, plain):
        fold(each, problem.rows["cache_indices"], index(device, 2, 1))
    assert_bit_equal(run.ssm.storage, plain.ssm.storage, "ssm_pool")
    assert_bit_equal(run.conv.storage, plain.conv.storage, "conv_pool")


@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
@pytest.mark.parametrize("drafts", [1, 4, 9])
def test_a_row_has_the_same_bits_alone_and_in_a_batch(device, act, drafts):
    problem = fused_layer(device, SMALL, batch=9, drafts=drafts, act=act, conv=act, ids=[3, -1, 0, 8, 1, 7, 2, 6, 5])
    whole = problem.draft()
    for row in (0, 4, 8):
        alone = problem.draft(**{name: x[row : row + 1] for name, x in (problem.tokens | problem.rows).items()})
        assert_bit_equal(alone.o[0], whole.o[row], "o")
        for name, part, expected in zip(alone.record._fields, alone.record, whole.record, strict=True):
            assert_bit_equal(part[0], expected[row], f"record.{name}")


def test_views_of_wider_projections_give_the_same_bits(device):
    problem = fused_layer(device, SMALL, batch=2, drafts=3, act=BF16, conv=BF16)
    plain = problem.draft()
    wide = {name: torch.cat([x, torch.full_like(x, torch.nan)], dim=2) for name, x in problem.tokens.items()}
    views = {name: x[..., : problem.tokens[name].shape[2]] for name, x in wide.items()}
    run = problem.draft(**views)
    assert_bit_equal(run.o, plain.o, "o")
    for part, expected in zip(run.record, plain.record, strict=True):
        assert_bit_equal(part, expected)


@pytest.mark.parametrize("extra_pitch", [1, 96])
@pytest.mark.parametrize("state", STATES, ids=name_of)
def test_any_slot_pitch_gives_the_same_bits(device, extra_pitch, state):
    problem = fused_layer(device, SMALL, batch=2, drafts=4, state=state, conv=BF16)
    plain = problem.draft()
    conv, ssm = problem.pools(extra_pitch)
    record = problem.nan_record(2, 4)
    o = ops.gdn_verify(
        **problem.tokens, **problem.rows, **problem.layer.kwargs(), conv_pool=conv.tensor, ssm_pool=ssm.tensor,
        record=record,
    )  # fmt: skip
    assert_bit_equal(o, plain.o, "o")
    args = {"cache_indices": problem.rows["cache_indices"], "last_steps": index(device, 3, 0)}
    ops.gdn_fold(conv_pool=conv.tensor, ssm_pool=ssm.tensor, record=record, **args)
    fold(plain, **args)
    assert_bit_equal(ssm.tensor, plain.ssm.tensor, "ssm_pool")
    assert_bit_equal(conv.tensor, plain.conv.tensor, "conv_pool")
    for pool in (conv, ssm):
        pool.assert_only_wrote(args["cache_indices"].tolist(), "pool")


def test_several_rounds_of_drafts(device):
    """Accept 2 of 3, none of 4, decode one token, accept 3 of 3: the same as feeding the 6 tokens one by one."""
    rounds = [(3, 2), (4, 0), (1, 1), (3, 3)]
    problem = fused_layer(device, SMALL, batch=2, drafts=1)
    ids = problem.rows["cache_indices"]
    conv, ssm = problem.conv.clone(), problem.ssm.clone()
    for seed, (drafts, accepted) in enumerate(rounds):
        tokens = problem.tokens = fused_layer(device, SMALL, batch=2, drafts=drafts, seed=seed).tokens
        if drafts == 1:
            problem.tokens = {name: x[:, 0] for name, x in tokens.items()}
            run = problem.decode()
        else:
            run = problem.draft()
            fold(run, ids, index(device, *[accepted - 1] * 2))
        problem.conv, problem.ssm = run.conv.tensor.clone(), run.ssm.tensor.clone()
        for t in range(accepted):
            ops.gdn_decode(
                **{name: x[:, t] for name, x in tokens.items()}, **problem.layer.kwargs(), conv_pool=conv,
                ssm_pool=ssm, cache_indices=ids,
            )  # fmt: skip
    assert_bit_equal(problem.conv, conv, "conv_pool")
    assert_close(problem.ssm, ssm, limit(device, "decode_state", F32), "ssm_pool")
