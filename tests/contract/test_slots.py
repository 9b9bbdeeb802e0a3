"""Slots, padding, empty rows, stale memory, snapshots and addresses beyond 32 bits in prefill."""

from __future__ import annotations

import math

import pytest
import torch

import cases
import problems
from cases import BF16, F32, SLOTS, SMALL, STATES, Heads, name_of, small
from compare import assert_bit_equal, assert_close, assert_zero
from problems import delta_rule, fused_layer, live, offsets
from sglang_gdn import ops
from tolerances import limit

INT32_ELEMENTS = 2**31


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("initial", [None, [False, True, False, True]], ids=["continued", "mixed"])
def test_patterns(device, ids, state, initial):
    problem = delta_rule(device, SMALL, [64] * 4, ids=ids, state=state, initial=initial)
    problem.check(problem.run(extra_pitch=96), problem.expected())


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_patterns_of_a_layer(device, ids, index_dtype):
    problem = fused_layer(device, SMALL, lens=[9, 2, 1, 66], ids=ids, index_dtype=index_dtype, conv=BF16)
    problem.check_prefill(problem.prefill(), problem.expected_prefill())


@pytest.mark.parametrize("slot", [0, SLOTS - 1], ids=["first", "last"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_padding_rows_do_not_change_a_live_row(device, slot, phase):
    size = {"lens": [70, 70, 70, 70]} if phase == "prefill" else {"batch": 4}
    problem = fused_layer(device, SMALL, ids=[-1, slot, -1, -1], **size)
    padded = getattr(problem, phase)()
    count = 70 if phase == "prefill" else 1
    alone = {name: x[count : 2 * count] for name, x in problem.tokens.items()}
    alone["cache_indices"] = problem.rows["cache_indices"][1:2]
    if phase == "prefill":
        alone["query_start_loc"] = offsets([70]).to(device)
    run = getattr(problem, phase)(**alone)
    assert_bit_equal(padded.o[count : 2 * count], run.o, "o")
    assert_bit_equal(padded.ssm.storage, run.ssm.storage, "ssm_pool")
    assert_bit_equal(padded.conv.storage, run.conv.storage, "conv_pool")


@pytest.mark.parametrize("wrong", [SLOTS, SLOTS + 1, 2**31 - 1, -2, -(2**31)])
def test_ids_outside_the_pool_reach_no_memory(device, wrong):
    """Such ids break the contract; still nothing but the other row's slot may be read or written."""
    ids = torch.tensor([wrong, 3], dtype=torch.int32, device=device)
    for problem in (
        fused_layer(device, SMALL, lens=[5, 66], ids=[-1, 3]), fused_layer(device, SMALL, batch=2, ids=[-1, 3])
    ):  # fmt: skip
        phase = problem.prefill if "query_start_loc" in problem.rows else problem.decode
        expected, run = phase(), phase(cache_indices=ids)
        count = 5 if "query_start_loc" in problem.rows else 1
        assert_bit_equal(run.o[count:], expected.o[count:], "o of the other row")
        assert_bit_equal(run.ssm.storage, expected.ssm.storage, "ssm_pool")
        assert_bit_equal(run.conv.storage, expected.conv.storage, "conv_pool")


@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_empty_row_keeps_its_state_and_separates_nothing(device, index_dtype):
    problem = delta_rule(device, SMALL, [128, 0, 128], ids=[3, 6, 1], index_dtype=index_dtype)
    run = problem.run()
    assert_bit_equal(run.ssm.tensor[6], problem.ssm[6], "slot of the empty row")
    without = problem.run(
        cu_seqlens=offsets([128, 128], index_dtype).to(device), cache_indices=problem.args["cache_indices"][[0, 2]]
    )
    assert_bit_equal(run.o, without.o, "o")
    assert_bit_equal(run.ssm.storage, without.ssm.storage, "ssm_pool")


@pytest.mark.parametrize("stale", [1.0, torch.nan])
def test_empty_row_without_initial_state_becomes_zero(device, stale):
    problem = fused_layer(device, SMALL, lens=[5, 0, 0], ids=[3, 6, 1], initial=[True, False, True])
    problem.ssm[6], problem.conv[6] = stale, stale
    run = problem.prefill()
    assert_zero(run.ssm.tensor[6], "ssm slot of the empty row")
    assert_zero(run.conv.tensor[6], "conv slot of the empty row")
    assert_bit_equal(run.ssm.tensor[1], problem.ssm[1], "slot of the other empty row")
    assert_bit_equal(run.conv.tensor[1], problem.conv[1], "slot of the other empty row")


@pytest.mark.parametrize("stale", [1e4, torch.nan, torch.inf])
@pytest.mark.parametrize("initial", [[False] * 4, [False, True, False, True]], ids=["none", "mixed"])
def test_stale_slots_do_not_leak(device, stale, initial):
    problem = fused_layer(device, SMALL, lens=[70, 5, 1, 64], ids=[5, 0, 2, 8], initial=initial)
    fresh = [slot for slot, keep in zip([5, 0, 2, 8], initial, strict=True) if not keep]
    problem.ssm[fresh], problem.conv[fresh] = 0, 0
    expected = problem.prefill(has_initial_state=None)
    problem.ssm[fresh], problem.conv[fresh] = stale, stale
    run = problem.prefill()
    assert_bit_equal(run.o, expected.o, "o")
    assert_bit_equal(run.ssm.storage, expected.ssm.storage, "ssm_pool")
    assert_bit_equal(run.conv.storage, expected.conv.storage, "conv_pool")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_row_of_nan_stays_alone_and_its_slot_can_be_reused(device, phase):
    size = {"lens": [70, 70, 70]} if phase == "prefill" else {"batch": 3}
    problem = fused_layer(device, SMALL, ids=[4, 7, 1], **size)
    clean = getattr(problem, phase)()
    count = 70 if phase == "prefill" else 1
    poisoned = {name: x.clone() for name, x in problem.tokens.items()}
    poisoned["mixed_qkv"][count : 2 * count] = torch.nan
    run = getattr(problem, phase)(**poisoned)
    others = torch.ones(3 * count, dtype=torch.bool, device=device)
    others[count : 2 * count] = False
    assert run.o[~others].isnan().any()
    assert_bit_equal(run.o[others], clean.o[others], "o of the other rows")
    assert_bit_equal(run.ssm.tensor[[4, 1]], clean.ssm.tensor[[4, 1]], "states of the other rows")
    reuse = fused_layer(device, SMALL, lens=[70], ids=[7], initial=[False])
    expected = reuse.prefill()
    reuse.ssm, reuse.conv = run.ssm.tensor.clone(), run.conv.tensor.clone()
    assert_bit_equal(reuse.prefill().o, expected.o, "o of the next request in that slot")


@pytest.mark.parametrize("state", STATES, ids=name_of)
def test_padding_rows_ignore_nan_everywhere(device, state):
    """Rows of slot -1 are zero even if their tokens and the whole pool are NaN."""
    problem = fused_layer(device, SMALL, lens=[70, 3], ids=[-1, -1], state=state)
    problem.ssm.fill_(torch.nan)
    problem.conv.fill_(torch.nan)
    for x in problem.tokens.values():
        x.fill_(torch.nan)
    run = problem.prefill()
    assert_zero(run.o, "o")
    run.ssm.assert_untouched("ssm_pool")
    run.conv.assert_untouched("conv_pool")


@pytest.mark.parametrize("lens", [[], [0], [0, 0, 0]], ids=str)
def test_no_tokens(device, lens):
    problem = fused_layer(device, SMALL, lens=lens)
    run = problem.prefill()
    assert run.o.shape == (0, SMALL.HV, SMALL.V)
    run.ssm.assert_untouched("ssm_pool")
    run.conv.assert_untouched("conv_pool")
    rule = delta_rule(device, SMALL, lens)
    run = rule.run()
    assert run.o.shape == (0, SMALL.HV, SMALL.V)
    run.ssm.assert_untouched("ssm_pool")


def test_no_tokens_in_a_dense_batch(device):
    empty = {
        name: torch.zeros(2, 0, *shape, dtype=dtype, device=device)
        for name, shape, dtype in (
            ("q", (2, SMALL.K), cases.ACTIVATION), ("k", (2, SMALL.K), cases.ACTIVATION),
            ("v", (4, SMALL.V), cases.ACTIVATION), ("g", (4,), F32), ("beta", (4,), F32),
        )
    }  # fmt: skip
    initial = torch.ones(2, 4, SMALL.K, SMALL.V, device=device)
    o, final = ops.chunk_gated_delta_rule(**empty, initial_state=initial, output_final_state=True)
    assert o.shape == (2, 0, 4, SMALL.V)
    assert_bit_equal(final, initial, "final_state")


def test_no_rows_but_tokens_give_zeros_and_touch_nothing(device):
    """An empty ``cache_indices`` does not mean one slot a row of some batch."""
    problem = fused_layer(device, SMALL, lens=[], pad_tokens=5)
    run = problem.prefill()
    assert_zero(run.o, "o")
    run.ssm.assert_untouched("ssm_pool")
    run.conv.assert_untouched("conv_pool")


def test_an_empty_list_of_slots_for_real_rows_is_refused(device):
    problem = fused_layer(device, SMALL, lens=[5, 3])
    no_slots = torch.empty(0, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="gdn_prefill: cache_indices must be"):
        problem.prefill(cache_indices=no_slots)
    problem = fused_layer(device, SMALL, batch=2)
    with pytest.raises(ValueError, match="gdn_decode: cache_indices must be"):
        problem.decode(cache_indices=no_slots)


def test_offsets_padded_with_their_last_value(device):
    problem = fused_layer(device, SMALL, lens=[70, 5, 0, 0, 0], ids=[3, 1, -1, -1, -1], pad_tokens=20)
    run = problem.prefill()
    problem.check_prefill(run, problem.expected_prefill())
    plain = problem.prefill(
        query_start_loc=problem.rows["query_start_loc"][:3], cache_indices=problem.rows["cache_indices"][:2]
    )
    assert_bit_equal(run.o, plain.o, "o")
    assert_bit_equal(run.ssm.storage, plain.ssm.storage, "ssm_pool")


def test_output_rows_past_the_last_row_are_zero(device):
    problem = delta_rule(device, SMALL, [500, 485], pad_tokens=15)
    run = problem.run()
    assert run.o.isfinite().all()
    assert_zero(run.o[985:], "rows 985..999")
    problem.check(run, problem.expected())


def test_only_padding_tokens(device):
    problem = fused_layer(device, SMALL, lens=[0, 0], pad_tokens=100)
    run = problem.prefill()
    assert_zero(run.o, "o")
    run.ssm.assert_untouched("ssm_pool")


# --- snapshots -----------------------------------------------------------------------------------------------------


def track(device, problem, heads, chunks, dtype=torch.int32):
    return {
        "track_state": torch.full((len(chunks), heads.HV, heads.V, heads.K), torch.nan, device=device),
        "track_chunk_idx": torch.tensor(chunks, dtype=dtype, device=device),
    }


@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
@pytest.mark.parametrize("state", [F32, BF16], ids=name_of)
def test_snapshot_before_a_chunk(device, index_dtype, state):
    lens, chunks = [64, 65, 130, 8, 200, 70], [0, 1, 2, -1, 4, 1]
    problem = delta_rule(device, SMALL, lens, ids=[0, 1, 2, 3, 4, -1], state=state, index_dtype=index_dtype)
    args = track(device, problem, SMALL, chunks, index_dtype)
    run = problem.run(**args)
    expected = problem.expected()
    problem.check(run, expected)
    for n in (0, 1, 2, 4):
        assert_close(
            args["track_state"][n], expected.boundaries[n][chunks[n]], limit(device, "prefill_state", F32),
            f"snapshot of row {n}",
        )  # fmt: skip
    assert args["track_state"][3].isnan().all(), "a row that asks for no snapshot"


@pytest.mark.parametrize("length", [64, 65, 128, 130, 1000])
def test_snapshot_at_the_end_is_the_final_state(device, length):
    problem = fused_layer(device, SMALL, lens=[length])
    args = track(device, problem, SMALL, [math.ceil(length / 64)])
    run = problem.prefill(**args)
    assert_bit_equal(args["track_state"][0], run.ssm.tensor[live(problem.rows["cache_indices"])[0]], "snapshot")


def test_snapshot_deep_in_a_long_row(device):
    problem = delta_rule(device, small(1, 2), [8192, 5])
    args = track(device, problem, small(1, 2), [100, -1])
    problem.run(**args)
    expected = problem.expected().boundaries[0][100]
    assert_close(args["track_state"][0], expected, limit(device, "prefill_state", F32), "snapshot")


def test_snapshots_that_no_row_reaches_are_not_taken(device):
    problem = fused_layer(device, SMALL, lens=[70, 5], ids=[3, 4])
    args = track(device, problem, SMALL, [3, 2**31 - 1])
    slots = {"track_slots": torch.tensor([7, 9], device=device), "track_lens": torch.tensor([71, 3], device=device)}
    run = problem.prefill(**args, **slots)
    assert args["track_state"].isnan().all()
    run.conv.assert_only_wrote([3, 4], "conv_pool")


def test_snapshots_of_an_empty_row(device):
    problem = delta_rule(device, SMALL, [0, 5], ids=[3, 4])
    args = track(device, problem, SMALL, [0, 0])
    problem.run(**args)
    assert_bit_equal(args["track_state"], problem.ssm[[3, 4]], "snapshots before the first chunk")


@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("lens", [[70, 0, 3, 64, 129], [500, 700, 900]], ids=str)
def test_states_of_every_chunk(device, state, lens):
    problem = delta_rule(device, SMALL, lens, state=state)
    run = problem.run(output_h=True)
    expected = problem.expected()
    states = torch.cat([boundaries[:-1] for boundaries in expected.boundaries])
    count = sum(math.ceil(length / 64) for length in lens)
    assert run.h.dtype == state and states.shape[0] == count
    assert_close(run.h[:count], states, limit(device, "prefill_state", state), "h")
    assert_zero(run.h[count:], "h past the last chunk")
    problem.check(run, expected)


@pytest.mark.parametrize("state", STATES, ids=name_of)
def test_state_at_a_boundary_is_the_final_state_of_a_shorter_run(device, state):
    problem = fused_layer(device, SMALL, lens=[300], state=state, act=BF16)
    run = problem.prefill(output_h=True)
    slot = live(problem.rows["cache_indices"])[0]
    for boundary in (64, 128, 192, 256):
        shorter = problem.prefill(
            **{name: x[:boundary] for name, x in problem.tokens.items()},
            query_start_loc=offsets([boundary]).to(device),
        )
        assert_bit_equal(run.h[boundary // 64], shorter.ssm.tensor[slot], f"h at {boundary}")
        args = track(device, problem, SMALL, [boundary // 64])
        problem.prefill(**args)
        assert_bit_equal(args["track_state"][0].to(state), run.h[boundary // 64], f"snapshot at {boundary}")
        assert_bit_equal(run.o[:boundary], shorter.o, f"o before {boundary}")


def test_snapshots_do_not_change_the_results(device):
    problem = fused_layer(device, SMALL, lens=[130, 64], ids=[4, 2], act=BF16)
    plain = problem.prefill()
    args = track(device, problem, SMALL, [2, 1])
    slots = {"track_slots": torch.tensor([7, 8], device=device), "track_lens": torch.tensor([128, 64], device=device)}
    run = problem.prefill(**args, **slots, output_h=True)
    assert_bit_equal(run.o, plain.o, "o")
    assert_bit_equal(run.ssm.storage, plain.ssm.storage, "ssm_pool")
    assert_bit_equal(run.conv.tensor[[4, 2]], plain.conv.tensor[[4, 2]], "conv_pool")
    run.conv.assert_only_wrote([4, 2, 7, 8], "conv_pool")
    assert_bit_equal(run.conv.tensor[7], problem.tokens["mixed_qkv"][125:128].T.float().contiguous(), "raw inputs")


def test_snapshots_of_padding_rows_are_zero_and_reach_no_slot(device):
    problem = fused_layer(device, SMALL, lens=[70, 70], ids=[-1, 3])
    args = track(device, problem, SMALL, [1, -1])
    slots = {"track_slots": torch.tensor([7, -1], device=device), "track_lens": torch.tensor([64, 0], device=device)}
    run = problem.prefill(**args, **slots)
    assert_zero(args["track_state"][0], "snapshot of the padding row")
    assert args["track_state"][1].isnan().all(), "a row that asks for no snapshot"
    run.conv.assert_only_wrote([3], "conv_pool")


# --- more tasks than a launch has blocks ----------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["update", "chunk-rule"])
def test_more_rows_times_heads_than_blocks(device, op):
    """The first and the last row have the bits that they have without all the padding between them."""
    rows, heads = 1100, small(16, 64)
    assert rows * heads.HV > cases.MOST_BLOCKS
    ids, ends = [3, *[-1] * (rows - 2), 5], [0, rows - 1]
    if op == "update":
        problem = problems.update(device, heads, rows, ids=ids)
        alone = {name: problem.args[name][ends] for name in ("q", "k", "v", "a", "b")}
    else:
        problem = delta_rule(device, heads, [1] * rows, ids=ids)
        alone = {name: problem.args[name][:, ends] for name in ("q", "k", "v", "g", "beta")}
        alone["cu_seqlens"] = offsets([1, 1]).to(device)
    run, expected = problem.run(), problem.run(**alone, cache_indices=problem.args["cache_indices"][ends])
    assert_bit_equal(run.o[ends], expected.o, "o")
    assert_zero(run.o[1:-1], "o of padding")
    assert_bit_equal(run.ssm.storage, expected.ssm.storage, "ssm_pool")


# --- addresses beyond 32 bits --------------------------------------------------------------------------------------


def spread(values: torch.Tensor, pitch: int) -> torch.Tensor:
    """``values`` with stride(0) of ``pitch`` elements, in memory that is mostly never touched."""
    storage = torch.empty((values.shape[0] - 1) * pitch + values[0].numel(), dtype=values.dtype, device=values.device)
    view = storage.as_strided(values.shape, (pitch, *values[0].contiguous().stride()))
    return view.copy_(values)


@pytest.mark.parametrize("state", [F32, BF16], ids=name_of)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_slots_past_32_bit_offsets(device, phase, state, uncommitted_memory):
    """Slots 1..4 lie 2^29 .. 2^31 elements and more from the first."""
    size = {"lens": [70, 3, 5]} if phase == "prefill" else {"batch": 3}
    heads = small(1, 2)
    problem = fused_layer(device, heads, ids=[4, 0, 3], state=state, conv=BF16, **size)
    expected = getattr(problem, phase)()
    pools = (problem.conv.mT if cases.WINDOWS_BY_TOKEN else problem.conv, problem.ssm)
    conv, ssm = (spread(pool[:5], INT32_ELEMENTS // 4 + 4096) for pool in pools)
    conv = conv.mT if cases.WINDOWS_BY_TOKEN else conv
    assert 4 * ssm.stride(0) > INT32_ELEMENTS
    op = getattr(ops, f"gdn_{phase}")
    o = op(**problem.tokens, **problem.rows, **problem.layer.kwargs(), conv_pool=conv, ssm_pool=ssm)
    assert_bit_equal(o[0], expected.o, "o")
    for slot in range(5):
        assert_bit_equal(ssm[slot], expected.ssm.tensor[slot], f"ssm slot {slot}")
        assert_bit_equal(conv[slot], expected.conv.tensor[slot], f"conv slot {slot}")


@pytest.mark.parametrize("extra", [0, 16384])
@pytest.mark.parametrize("heads", [Heads(16, 32), Heads(16, 48), Heads(16, 64)], ids=str)
def test_slots_of_a_large_pool(device, heads, extra, uncommitted_memory):
    """Slots on both sides of 2^31 elements in a pool of real size give the result of slot 0."""
    inner = heads.HV * heads.V * heads.K
    last = INT32_ELEMENTS // inner
    pool = torch.empty((last + 3) * (inner + extra), device=device).as_strided(
        (last + 3, heads.HV, heads.V, heads.K), (inner + extra, heads.V * heads.K, heads.K, 1)
    )
    problem = problems.update(device, heads, 1, ids=[0])
    run = problem.run()
    for slot in (last - 1, last, last + 1, last + 2):
        pool[slot] = problem.ssm[0]
        args = problem.args | {"cache_indices": torch.tensor([slot], dtype=torch.int32, device=device)}
        o = ops.fused_sigmoid_gating_delta_rule_update(**args, ssm_pool=pool)
        assert_bit_equal(o, run.o, f"o of slot {slot}")
        assert_bit_equal(pool[slot], run.ssm.tensor[0], f"slot {slot}")


@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_tokens_past_32_bit_offsets(device, act, uncommitted_memory):
    """Every token tensor has a row pitch that puts its last tokens beyond 2^31 elements."""
    problem = fused_layer(device, small(1, 1), lens=[3, 2], act=act)
    expected = problem.prefill()
    tokens = {name: spread(x, INT32_ELEMENTS // 4 + 4096) for name, x in problem.tokens.items()}
    assert 4 * tokens["mixed_qkv"].stride(0) > INT32_ELEMENTS
    run = problem.prefill(**tokens)
    assert_bit_equal(run.o, expected.o, "o")
    assert_bit_equal(run.ssm.storage, expected.ssm.storage, "ssm_pool")
    assert_bit_equal(run.conv.storage, expected.conv.storage, "conv_pool")
    rule = delta_rule(device, small(1, 1), [3, 2], act=act)
    names = ("q", "k", "v", "g", "beta")
    spread_heads = {name: spread(rule.args[name][0], INT32_ELEMENTS // 4 + 4096) for name in names}
    assert_bit_equal(rule.run(**spread_heads, out=torch.empty_like(rule.args["v"][0])).o, rule.run().o, "o")


def available_gib() -> float:
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) / 2**20


def test_outputs_past_32_bit_offsets(device, uncommitted_memory):
    """A long padding row puts the last row of the packed output beyond 2^31 elements."""
    heads = Heads(1, 1, 128, 128)
    problem = delta_rule(device, heads, [70], act=BF16, ids=[3])
    tokens = INT32_ELEMENTS // heads.V + 200
    if device == "cpu" and available_gib() < 12:
        pytest.skip("the output alone takes 4 GiB, and less than 12 GiB are free")
    begin = tokens - 70
    args = {}
    for name in ("q", "k", "v", "g", "beta"):
        x = problem.args[name][0]
        args[name] = torch.empty((tokens, *x.shape[1:]), dtype=x.dtype, device=device)
        args[name][begin:] = x
    args["cu_seqlens"] = torch.tensor([0, begin, tokens], dtype=torch.int32, device=device)
    args["cache_indices"] = torch.tensor([-1, 3], dtype=torch.int32, device=device)
    run = problem.run(**args, out=torch.empty_like(args["v"]))
    expected = problem.run()
    assert_bit_equal(run.o[begin:], expected.o, "o")
    assert_zero(run.o[begin - 1000 : begin], "o of padding")
    assert_bit_equal(run.ssm.storage, expected.ssm.storage, "ssm_pool")
