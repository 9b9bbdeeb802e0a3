"""The chunk rule's kernel beyond what the contract suite asks of every device: batches, repeats, graphs, addresses."""

from __future__ import annotations

import pytest
import torch

from cases import BF16, F16, F32, Heads
from compare import assert_bit_equal
from problems import DeltaRule, delta_rule, offsets
from sglang_gdn import ops


class Calls:
    """Calls on one pool and one output, so that each works on the states that the one before left."""

    def __init__(self, problem: DeltaRule) -> None:
        self.args, self.states = dict(problem.args), problem.ssm.clone()
        self.out = torch.zeros_like(problem.args["v"])

    def call(self) -> None:
        ops.chunk_gated_delta_rule(**self.args, ssm_pool=self.states, out=self.out)

    def assert_same_bits(self, other: Calls) -> None:
        assert_bit_equal(self.out, other.out, "o")
        assert_bit_equal(self.states, other.states, "ssm_pool")


def test_sanitized():
    """Small enough for compute-sanitizer: a row without a slot, an empty one, one of two chunks."""
    problem = delta_rule("cuda", Heads(1, 2), [66, 0, 3, 2], ids=[3, 1, -1, 0], pad_tokens=3)
    problem.check(problem.run(), problem.expected())


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("heads", [Heads(1, 1), Heads(1, 3), Heads(4, 16)], ids=str)
def test_a_row_has_the_same_bits_alone_and_in_any_batch(heads, norm):
    lens = [200, *[1 + 37 * n % 190 for n in range(62)], 200]
    batch = delta_rule("cuda", heads, lens, norm=norm)
    tokens = {name: batch.args[name] for name in ("q", "k", "v", "g", "beta")}
    both = batch.run()
    for row, begin in ((0, 0), (len(lens) - 1, sum(lens[:-1]))):
        alone = batch.run(
            **{name: x[:, begin : begin + 200].clone() for name, x in tokens.items()},
            cu_seqlens=offsets([200]).cuda(), cache_indices=batch.args["cache_indices"][row : row + 1],
            out=torch.full_like(tokens["v"][:, :200], torch.nan),
        )  # fmt: skip
        slot = batch.args["cache_indices"][row]
        assert_bit_equal(alone.o, both.o[begin : begin + 200], "o")
        assert_bit_equal(alone.ssm.tensor[slot], both.ssm.tensor[slot], "ssm_pool")


def test_1000_repeats_beside_a_copy_have_the_same_bits():
    problem = delta_rule("cuda", Heads(2, 8), [700, 3, 64])
    blob, side = torch.zeros(32 << 20, device="cuda"), torch.cuda.Stream()
    first = Calls(problem)
    first.call()
    for _ in range(1000):
        again = Calls(problem)
        with torch.cuda.stream(side):
            blob.copy_(blob.flip(0))
        again.call()
        again.assert_same_bits(first)


def test_a_call_waits_for_the_one_before():
    pipelined, ordered = (Calls(delta_rule("cuda", Heads(2, 4), [130, 64, 1])) for _ in range(2))
    for calls in (pipelined, ordered):
        for _ in range(20):
            calls.call()
            calls.args["v"] = calls.out.clone()
            if calls is ordered:
                torch.cuda.synchronize()
    pipelined.assert_same_bits(ordered)


def test_graph_replay_with_other_lengths_and_slots():
    captured, eager = (Calls(delta_rule("cuda", Heads(2, 6), [100, 64, 36], ids=[3, 1, 5])) for _ in range(2))
    captured.call()
    eager.call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.call()
    for calls in (captured, eager):
        calls.args["cu_seqlens"].copy_(offsets([5, 0, 150]))
        calls.args["cache_indices"].copy_(torch.tensor([7, 1, -1]))
    graph.replay()
    eager.call()
    captured.assert_same_bits(eager)


@pytest.mark.parametrize("state", [F32, BF16, F16], ids=str)
def test_slots_past_two_to_the_31_elements(state):
    problem = delta_rule("cuda", Heads(1, 1), [70], ids=[1], state=state)
    near = problem.run()
    slots = 2**31 // 128**2 + 3
    pool = torch.empty((slots, 1, 128, 128), dtype=state, device="cuda")
    pool[-1] = problem.ssm[1]
    args = problem.args | {"cache_indices": torch.tensor([slots - 1], device="cuda")}
    o, _ = ops.chunk_gated_delta_rule(**args, ssm_pool=pool)
    assert_bit_equal(o[0], near.o, "o")
    assert_bit_equal(pool[-1], near.ssm.tensor[1], "ssm_pool")


def test_nothing_synchronises(no_wait_for_the_device):
    calls = Calls(delta_rule("cuda", Heads(2, 4), [130, 3]))
    calls.call()
    with no_wait_for_the_device():
        calls.call()
