"""Random batches: close to the oracle, and the same bits when the batch is cut, padded or moved."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import (
    BF16,
    CONV_WIDTHS,
    DECODE_ACTIVATIONS,
    F16,
    F32,
    GATES,
    INDEX_DTYPES,
    ODD_HEADS,
    PREFILL_ACTIVATIONS,
    QWEN,
    SERVED_STATES,
    Heads,
    small,
)  # fmt: skip
from compare import assert_bit_equal
from problems import delta_rule, fused_layer, offsets, update
from sglang_gdn import ops

SLOTS = 12
HEADS = st.sampled_from([small(1, 1), small(1, 3), small(2, 4), *ODD_HEADS])
LENGTHS = st.lists(st.one_of(st.integers(0, 5), st.integers(60, 68), st.integers(0, 150)), min_size=1, max_size=6)
LENGTHS = LENGTHS.filter(any)  # a call without a single token does nothing, not even to rows that start from zeros

examples = settings(
    max_examples=40, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip


@dataclass
class Batch:
    lens: list[int]
    ids: list[int]
    initial: list[bool]


@st.composite
def batches(draw) -> Batch:
    """Rows with unique slots, some of them padding."""
    lens = draw(LENGTHS)
    slots = draw(st.permutations(range(SLOTS)))[: len(lens)]
    padding = draw(st.lists(st.booleans(), min_size=len(lens), max_size=len(lens)))
    ids = [-1 if pad else slot for slot, pad in zip(slots, padding, strict=True)]
    return Batch(lens, ids, draw(st.lists(st.booleans(), min_size=len(lens), max_size=len(lens))))


dtypes = st.fixed_dictionaries(
    {"act": st.sampled_from(DECODE_ACTIVATIONS), "state": st.sampled_from(SERVED_STATES)}
)  # fmt: skip
prefill_dtypes = st.fixed_dictionaries(
    {"act": st.sampled_from(PREFILL_ACTIVATIONS), "state": st.sampled_from(SERVED_STATES)}
)  # fmt: skip


@examples
@given(
    batch=batches(), heads=HEADS, dtype=prefill_dtypes, gates=st.sampled_from(GATES), norm=st.booleans(),
    index_dtype=st.sampled_from(INDEX_DTYPES), pad_tokens=st.integers(0, 70), seed=st.integers(0, 1000),
)  # fmt: skip
def test_prefill_is_close_to_the_oracle(device, batch, heads, dtype, gates, norm, index_dtype, pad_tokens, seed):
    problem = delta_rule(
        device, heads, batch.lens, ids=batch.ids, initial=batch.initial, gates=gates, norm=norm, seed=seed,
        index_dtype=index_dtype, pad_tokens=pad_tokens, slots=SLOTS, **dtype,
    )  # fmt: skip
    problem.check(problem.run(extra_pitch=64), problem.expected())


@examples
@given(
    batch=batches(), heads=HEADS, dtype=prefill_dtypes, width=st.sampled_from(CONV_WIDTHS), bias=st.booleans(),
    activation=st.sampled_from(["silu", None]), seed=st.integers(0, 1000),
)  # fmt: skip
def test_layer_prefill_is_close_to_the_oracle(device, batch, heads, dtype, width, bias, activation, seed):
    problem = fused_layer(
        device, heads, lens=batch.lens, ids=[*batch.ids], initial=batch.initial, width=width, bias=bias,
        activation=activation, seed=seed, conv=dtype["act"], **dtype,
    )  # fmt: skip
    problem.check_prefill(problem.prefill(), problem.expected_prefill())


@pytest.mark.needs("frontend")
@examples
@given(
    batch=batches(), heads=st.sampled_from([Heads(1, 1), Heads(1, 3), Heads(2, 4), Heads(1, 2, 64, 128)]),
    options=st.sampled_from([{"act": F32}, {"act": F16, "conv": F32, "width": 3}, {"act": BF16}, QWEN]),
    norm=st.booleans(), index_dtype=st.sampled_from(INDEX_DTYPES), pad_tokens=st.integers(0, 70),
    extra_pitch=st.sampled_from([0, 8, 3]), tracked=st.data(), seed=st.integers(0, 1000),
)  # fmt: skip
def test_frontend_is_close_to_the_oracle(
    device, batch, heads, options, norm, index_dtype, pad_tokens, extra_pitch, tracked, seed
):
    problem = fused_layer(
        device, heads, lens=batch.lens, ids=batch.ids, initial=batch.initial, index_dtype=index_dtype,
        pad_tokens=pad_tokens, seed=seed, **options,
    )  # fmt: skip
    spare = [slot for slot in range(len(problem.conv)) if slot not in batch.ids]
    track_slots = [spare.pop() if i >= 0 and spare and tracked.draw(st.booleans()) else -1 for i in batch.ids]
    track_lens = [tracked.draw(st.integers(0, n)) for n in batch.lens]
    changes = {
        "track_slots": torch.tensor(track_slots, dtype=index_dtype, device=device),
        "track_lens": torch.tensor(track_lens, dtype=index_dtype, device=device),
    }
    problem.check_frontend(problem.frontend(extra_pitch, norm, **changes), norm, **changes)


@examples
@given(
    rows=st.integers(1, 7), drafts=st.integers(1, 6), heads=HEADS, dtype=dtypes, data=st.data(),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_update_is_close_to_the_oracle(device, rows, drafts, heads, dtype, data, seed):
    slots = data.draw(st.permutations(range(SLOTS)))[:rows]
    ids = [-1 if data.draw(st.booleans()) else slot for slot in slots]
    problem = update(device, heads, rows, drafts, ids=ids, seed=seed, **dtype)
    problem.check(problem.run(extra_pitch=64), problem.expected())


@examples
@given(batch=batches(), heads=HEADS, dtype=prefill_dtypes, seed=st.integers(0, 1000))
def test_packed_rows_equal_rows_alone(device, batch, heads, dtype, seed):
    problem = fused_layer(
        device, heads, lens=batch.lens, ids=batch.ids, initial=batch.initial, seed=seed, **dtype
    )  # fmt: skip
    packed, begin = problem.prefill(), 0
    for n, (length, slot) in enumerate(zip(batch.lens, batch.ids, strict=True)):
        rows = slice(begin, begin + length)
        begin += length
        if length == 0:
            continue
        alone = problem.prefill(
            **{name: x[rows] for name, x in problem.tokens.items()}, query_start_loc=offsets([length]).to(device),
            cache_indices=problem.rows["cache_indices"][n : n + 1],
            has_initial_state=problem.rows["has_initial_state"][n : n + 1],
        )  # fmt: skip
        assert_bit_equal(packed.o[rows], alone.o, "o")
        if slot >= 0:
            assert_bit_equal(packed.ssm.tensor[slot], alone.ssm.tensor[slot], "ssm state")
            assert_bit_equal(packed.conv.tensor[slot], alone.conv.tensor[slot], "conv state")


@examples
@given(batch=batches(), heads=HEADS, dtype=prefill_dtypes, pad_rows=st.integers(1, 4), seed=st.integers(0, 1000))
def test_padding_rows_change_nothing(device, batch, heads, dtype, pad_rows, seed):
    problem = fused_layer(device, heads, lens=batch.lens, ids=batch.ids, initial=batch.initial, seed=seed, **dtype)
    plain = problem.prefill()

    def padded(x, value):
        return torch.cat([x, torch.full((pad_rows,), value, dtype=x.dtype, device=device)])

    rows = problem.rows
    run = problem.prefill(
        query_start_loc=padded(rows["query_start_loc"], sum(batch.lens)),
        cache_indices=padded(rows["cache_indices"], -1), has_initial_state=padded(rows["has_initial_state"], True),
    )  # fmt: skip
    assert_bit_equal(run.o, plain.o, "o")
    assert_bit_equal(run.ssm.storage, plain.ssm.storage, "ssm_pool")
    assert_bit_equal(run.conv.storage, plain.conv.storage, "conv_pool")


@examples
@given(
    heads=HEADS, act=st.sampled_from(PREFILL_ACTIVATIONS), chunks=st.integers(1, 3), tail=st.integers(1, 130),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_a_cut_between_chunks_changes_nothing(device, heads, act, chunks, tail, seed):
    cut = 64 * chunks
    problem = fused_layer(device, heads, lens=[cut + tail], act=act, conv=act, seed=seed)
    whole = problem.prefill()
    first = problem.prefill(
        **{name: x[:cut] for name, x in problem.tokens.items()}, query_start_loc=offsets([cut]).to(device)
    )
    problem.ssm, problem.conv = first.ssm.tensor.clone(), first.conv.tensor.clone()
    second = problem.prefill(
        **{name: x[cut:] for name, x in problem.tokens.items()}, query_start_loc=offsets([tail]).to(device)
    )
    assert_bit_equal(torch.cat([first.o, second.o]), whole.o, "o")
    assert_bit_equal(second.ssm.tensor, whole.ssm.tensor, "ssm_pool")
    assert_bit_equal(second.conv.tensor, whole.conv.tensor, "conv_pool")


@pytest.mark.needs("draft_trees")
@examples
@given(heads=HEADS, dtype=dtypes, data=st.data(), seed=st.integers(0, 1000))
def test_any_tree_equals_its_paths(device, heads, dtype, data, seed):
    """Every token of a tree has the output it has at the end of its own chain of ancestors."""
    drafts = data.draw(st.integers(1, 7))
    parents = [data.draw(st.integers(-1, t - 1)) for t in range(drafts)]
    problem = fused_layer(device, heads, batch=1, drafts=drafts, seed=seed, ids=[3], **dtype)
    tree = problem.verify(1, [0], torch.tensor([parents], device=device))
    tokens = problem.tokens
    for t in range(drafts):
        path = [t]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        problem.tokens = {name: x[:, path].contiguous() for name, x in tokens.items()}
        chain = problem.verify(1, [0])
        assert_bit_equal(tree.o[0, t], chain.o[0, -1], f"o of token {t}")
        assert_bit_equal(tree.intermediate_ssm[0, t], chain.intermediate_ssm[0, -1], f"state after token {t}")
        assert_bit_equal(tree.intermediate_conv[0, t], chain.intermediate_conv[0, -1], f"window after token {t}")


@pytest.mark.needs("draft_records")
@examples
@given(heads=HEADS, dtype=dtypes, data=st.data(), seed=st.integers(0, 1000))
def test_any_recorded_tree_equals_its_paths(device, heads, dtype, data, seed):
    """Every token has the output, and leaves the states, that it has at the end of its own chain of ancestors."""
    drafts = data.draw(st.integers(1, 16))
    parents = [data.draw(st.integers(-1, t - 1)) for t in range(drafts)]
    problem = fused_layer(device, heads, batch=1, drafts=drafts, seed=seed, ids=[3], **dtype)
    tokens, ids = problem.tokens, problem.rows["cache_indices"]

    def folded(run, step, tree):
        pools = {"conv_pool": run.conv.tensor.clone(), "ssm_pool": run.ssm.tensor.clone()}
        steps = torch.tensor([step], device=device)
        ops.gdn_fold(**pools, cache_indices=ids, record=run.record, last_steps=steps, parent_tokens=tree)
        return pools

    tree = torch.tensor([parents], device=device)
    whole = problem.draft(tree)
    for t in data.draw(st.lists(st.integers(0, drafts - 1), min_size=1, max_size=4, unique=True)):
        path = [t]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        problem.tokens = {name: x[:, path].contiguous() for name, x in tokens.items()}
        chain = problem.draft()
        assert_bit_equal(whole.o[0, t], chain.o[0, -1], f"o of token {t}")
        for name, pool in folded(chain, len(path) - 1, None).items():
            assert_bit_equal(folded(whole, t, tree)[name], pool, f"{name} after token {t}")


def test_the_strategies_reach_padding_and_empty_rows():
    """Guards the generators: without such batches the tests above would say little."""
    seen = {"padding": False, "empty": False, "live": False}

    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    @given(batches())
    def look(batch):
        seen["padding"] |= -1 in batch.ids
        seen["empty"] |= 0 in batch.lens
        seen["live"] |= any(slot >= 0 and length > 0 for slot, length in zip(batch.ids, batch.lens, strict=True))

    look()
    assert all(seen.values()), seen
