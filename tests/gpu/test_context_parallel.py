"""Rows cut into segments: the same limits as for whole rows. The contract suite also runs with every row cut."""

from __future__ import annotations

import pytest
import torch

import tolerances
from cases import BF16, F16, F32, Heads
from compare import assert_bit_equal, assert_close, assert_zero
from problems import delta_rule, fused_layer, offsets
from sglang_gdn import context_parallel, ops
from sglang_gdn.context_parallel import Settings
from tolerances import limit

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr(context_parallel, "settings", Settings("always", 0))


@pytest.fixture
def lengths(monkeypatch):
    """The segments of all later calls have so many chunks."""
    return lambda chunks: monkeypatch.setattr(context_parallel, "segment_chunks", lambda *_: chunks)


RAGGED = [700, 3, 64, 130, 0, 1, 640]


def test_sanitized(lengths):
    """Small enough for compute-sanitizer: rows of four segments, of one, without a slot and without tokens."""
    lengths(1)
    problem = delta_rule("cuda", Heads(1, 2), [200, 70, 0, 130, 2], ids=[3, -1, 1, 0, 2], pad_tokens=3)
    problem.check(problem.run(), problem.expected())


@pytest.mark.parametrize("chunks", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("gates", ["model", "none"])
def test_segments_of_ragged_rows(lengths, chunks, gates):
    lengths(chunks)
    initial = [True, True, True, False, False, True, True]
    problem = delta_rule("cuda", Heads(2, 6), RAGGED, gates=gates, initial=initial, pad_tokens=70)
    bound = tolerances.undecayed_state_limit("cuda", F32) if gates == "none" else None
    problem.check(problem.run(), problem.expected(), bound)


@pytest.mark.parametrize("state", [F32, BF16, F16], ids=str)
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("act", [BF16, F16], ids=str)
def test_dtypes_and_norm(lengths, state, norm, act):
    lengths(3)
    problem = delta_rule("cuda", Heads(2, 8), [1000, 129], state=state, norm=norm, act=act)
    problem.check(problem.run(), problem.expected())


def test_more_items_than_run_at_once(lengths):
    lengths(1)
    problem = delta_rule("cuda", Heads(4, 16), [190, 64, 200] * 6, gates="half-none")
    problem.check(problem.run(), problem.expected())


@pytest.mark.parametrize("decay", [1.0, 1 / 16, 1 / 256])
def test_a_long_row(decay):
    problem = delta_rule("cuda", Heads(1, 2), [8192])
    problem.args["g"] *= decay
    problem.check(problem.run(), problem.expected())


# (heads, lengths, chunks of a segment or 0 for whole rows)
REMEMBERED = [
    (Heads(1, 1), [131072], 128),
    (Heads(2, 8), [8192], 16),
    (Heads(2, 8), [2049, 700, 65], 3),
    (Heads(16, 32), [8192], 16),
    (Heads(16, 32), [8192], 0),
    (Heads(4, 16), [2049, 700, 65, 8192], 0),
]


@pytest.mark.parametrize(("heads", "lens", "chunks"), REMEMBERED, ids=str)
@pytest.mark.parametrize("norm", [False, True])
def test_repeats_have_the_same_bits_where_states_remember(lengths, heads, lens, chunks, norm):
    """What is read after its place was given to another chunk, anywhere in a row, is still in the state at its end."""
    lengths(chunks)
    problem = delta_rule("cuda", heads, lens, norm=norm)
    problem.args["g"] /= 64
    first = problem.run()
    for _ in range(50):
        again = problem.run()
        assert torch.equal(again.o.view(torch.int16), first.o.view(torch.int16))
        assert torch.equal(again.ssm.tensor.view(torch.int32), first.ssm.tensor.view(torch.int32))


def test_snapshots_and_states_of_every_chunk(lengths):
    lengths(2)
    heads, rows = Heads(2, 4), [700, 130, 64, 0, 300, 65]
    ids, wanted = [0, 5, 2, 3, -1, 1], [7, 3, 0, 0, 4, -1]
    problem = delta_rule("cuda", heads, rows, ids=ids)
    args = {
        "track_state": torch.full((len(rows), heads.HV, heads.V, heads.K), torch.nan, device="cuda"),
        "track_chunk_idx": torch.tensor(wanted, device="cuda"),
    }
    run = problem.run(**args, output_h=True)
    expected = problem.expected()
    problem.check(run, expected)
    bound, begin = limit("cuda", "prefill_state", F32), 0
    for n, boundaries in enumerate(expected.boundaries):
        chunks = -(-rows[n] // 64)
        if boundaries is None:
            assert_zero(args["track_state"][n], "snapshot of the row without a slot")
        else:
            assert_close(run.h[begin : begin + chunks], boundaries[:-1], bound, f"h of row {n}")
            if wanted[n] >= 0:
                assert_close(args["track_state"][n], boundaries[wanted[n]], bound, f"snapshot of row {n}")
        begin += chunks
    assert args["track_state"][5].isnan().all()


def test_fused_layer(lengths):
    lengths(2)
    problem = fused_layer("cuda", Heads(2, 6), lens=[500, 0, 66, 2], ids=[0, 4, -1, 8], act=BF16, pad_tokens=2)
    problem.check_prefill(problem.prefill(extra_pitch=96), problem.expected_prefill())


def test_repeats_have_the_same_bits(lengths):
    lengths(1)
    problem = delta_rule("cuda", Heads(2, 8), [130, 700, 3, 128])
    first = problem.run()
    for _ in range(200):
        again = problem.run()
        assert_bit_equal(again.o, first.o, "o")
        assert_bit_equal(again.ssm.tensor, first.ssm.tensor, "ssm_pool")


def test_graph_replay_with_other_lengths(lengths):
    lengths(1)
    problem = delta_rule("cuda", Heads(2, 4), [300, 64, 36], ids=[3, 1, 5])
    eager = problem.run(cu_seqlens=offsets([5, 0, 395]).cuda())
    pool, out = problem.ssm.clone(), torch.zeros_like(problem.args["v"])
    args = problem.args | {"ssm_pool": pool, "out": out}
    ops.chunk_gated_delta_rule(**args)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.chunk_gated_delta_rule(**args)
    args["cu_seqlens"].copy_(offsets([5, 0, 395]))
    pool.copy_(problem.ssm)
    graph.replay()
    assert_bit_equal(out[0], eager.o, "o")
    assert_bit_equal(pool, eager.ssm.tensor, "ssm_pool")


def test_nothing_synchronises(no_wait_for_the_device):
    problem = delta_rule("cuda", Heads(2, 4), [700, 3])
    args = problem.args | {"ssm_pool": problem.ssm, "out": torch.zeros_like(problem.args["v"])}
    ops.chunk_gated_delta_rule(**args)
    with no_wait_for_the_device():
        ops.chunk_gated_delta_rule(**args)
