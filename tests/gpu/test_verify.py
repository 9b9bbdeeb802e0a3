"""Verify with a record and the fold, beyond what the contract suite asks of every device."""

from __future__ import annotations

import pytest
import torch

import sglang_gdn
from cases import BF16, F16, F32, RATIOS, STATES, Heads, name_of
from compare import assert_bit_equal, assert_close
from problems import fused_layer
from sglang_gdn import ops
from tolerances import limit


@pytest.fixture(autouse=True)
def fused_kernel_serves():
    before = sglang_gdn.stats()
    yield
    assert sglang_gdn.stats()["fallbacks"] == before["fallbacks"]


class Rounds:
    """Rounds of verify and fold on one pool, each fed by the outputs of the one before."""

    def __init__(self, batch: int, drafts: int, seed: int = 0) -> None:
        problem = self.problem = fused_layer("cuda", Heads(4, 8), batch=batch, drafts=drafts, act=BF16, conv=BF16,
                                             seed=seed)  # fmt: skip
        self.ssm, self.conv = problem.ssm.clone(), problem.conv.clone()
        self.x = problem.tokens["mixed_qkv"].clone()
        self.ids = problem.rows["cache_indices"].clone()
        self.steps = (torch.arange(batch, device="cuda") % (drafts + 1) - 1).int()
        self.record = problem.nan_record(batch, drafts)
        self.out = torch.empty((batch, drafts, 8, 128), dtype=BF16, device="cuda")

    def round(self) -> None:
        pools = {"conv_pool": self.conv, "ssm_pool": self.ssm, "cache_indices": self.ids, "record": self.record}
        tokens = self.problem.tokens | {"mixed_qkv": self.x}
        ops.gdn_verify(**tokens, **self.problem.layer.kwargs(), **pools, out=self.out)
        ops.gdn_fold(**pools, last_steps=self.steps)
        self.x[..., : 8 * 128] = self.out.flatten(2) * 4

    def bits(self) -> tuple[torch.Tensor, ...]:
        return self.out, self.ssm, self.conv, *self.record


def assert_same_bits(actual, expected) -> None:
    for a, b in zip(actual, expected, strict=True):
        assert_bit_equal(a, b)


def rounds(batch: int, drafts: int, count: int, synchronise: bool) -> tuple[torch.Tensor, ...]:
    run = Rounds(batch, drafts)
    for _ in range(count):
        run.round()
        if synchronise:
            torch.cuda.synchronize()
    return run.bits()


@pytest.mark.parametrize("heads", RATIOS, ids=str)
@pytest.mark.parametrize("batch", [1, 17, 65, 257])
@pytest.mark.parametrize("drafts", [3, 6, 13])
def test_batches_on_both_sides_of_the_changes_of_tiling(heads, batch, drafts):
    problem = fused_layer("cuda", heads, batch=batch, drafts=drafts, act=BF16, conv=BF16)
    run = problem.draft()
    for row in (0, batch // 2, batch - 1):
        alone = problem.draft(
            **{name: x[row : row + 1] for name, x in (problem.tokens | problem.rows).items()}, spare_rows=0
        )
        assert_bit_equal(alone.o[0], run.o[row], "o")
        assert_same_bits([part[0] for part in alone.record], [part[row] for part in run.record])


@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("act", [F32, F16, BF16], ids=name_of)
def test_number_of_drafts_does_not_change_the_bits_of_the_first(state, act):
    problem = fused_layer("cuda", Heads(2, 6), batch=2, drafts=16, act=act, conv=act, state=state)
    whole = problem.draft()
    for drafts in (1, 4, 5, 8, 9):
        part = problem.draft(**{name: x[:, :drafts].contiguous() for name, x in problem.tokens.items()})
        assert_bit_equal(part.o, whole.o[:, :drafts].contiguous(), f"o of {drafts}")
        assert_bit_equal(part.record.d, whole.record.d[:, :drafts].contiguous(), f"d of {drafts}")


@pytest.mark.parametrize("drafts", [1, 4, 16])
def test_record_is_as_accurate_as_decoding(drafts):
    """Folded states against the same tokens decoded one by one, at the size of a served model."""
    problem = fused_layer("cuda", Heads(16, 32), batch=4, drafts=drafts, act=BF16, conv=BF16, state_scale=1.0)
    run = problem.draft()
    ids = problem.rows["cache_indices"]
    ops.gdn_fold(
        conv_pool=run.conv.tensor, ssm_pool=run.ssm.tensor, cache_indices=ids, record=run.record,
        last_steps=torch.full_like(ids, drafts - 1),
    )  # fmt: skip
    conv, ssm = problem.pools()
    for t in range(drafts):
        o = ops.gdn_decode(
            **{name: x[:, t] for name, x in problem.tokens.items()}, **problem.layer.kwargs(), conv_pool=conv.tensor,
            ssm_pool=ssm.tensor, cache_indices=ids,
        )  # fmt: skip
        assert_close(run.o[:, t], o[0], limit("cuda", "decode_o", BF16), "o")
    slots = ids.tolist()
    assert_bit_equal(run.conv.storage, conv.storage, "conv_pool")
    assert_close(run.ssm.tensor[slots], ssm.tensor[slots], limit("cuda", "decode_state", F32), "ssm_pool")


def test_200_repeats_have_the_same_bits():
    first = rounds(9, 5, 1, synchronise=True)
    for _ in range(200):
        assert_same_bits(rounds(9, 5, 1, synchronise=False), first)


@pytest.mark.parametrize(("batch", "drafts"), [(1, 4), (64, 4), (5, 16)])
def test_a_round_waits_for_the_one_before(batch, drafts):
    assert_same_bits(rounds(batch, drafts, 30, synchronise=False), rounds(batch, drafts, 30, synchronise=True))


def test_graph_replay_with_other_slots_steps_and_inputs():
    run, eager = Rounds(5, 4), Rounds(5, 4)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            run.round()
    for start in (run, eager):
        start.x.copy_(start.problem.tokens["mixed_qkv"].flip(0))
        start.ids.copy_(torch.tensor([3, -1, 0, 8, -1]))
        start.steps.copy_(torch.tensor([2, 1, -1, 3, 0]))
        start.ssm.copy_(start.problem.ssm)
        start.conv.copy_(start.problem.conv)
        for part in start.record:
            part.zero_()
    graph.replay()
    for _ in range(3):
        eager.round()
    live = torch.tensor([0, 2, 3], device="cuda")
    assert_same_bits([run.ssm, run.conv, run.out], [eager.ssm, eager.conv, eager.out])
    assert_same_bits([part[live] for part in run.record], [part[live] for part in eager.record])


def test_slots_past_two_to_the_31_elements():
    heads = Heads(16, 32)
    problem = fused_layer("cuda", heads, batch=2, drafts=3, act=BF16, conv=BF16, ids=[1, 2])
    slots = 2**31 // (heads.HV * heads.V * heads.K) + 3
    ssm = torch.empty((slots, heads.HV, heads.V, heads.K), dtype=F32, device="cuda")
    conv = torch.empty((slots, heads.conv_dim, 3), dtype=BF16, device="cuda")
    far = torch.tensor([slots - 1, slots - 2], dtype=torch.int32, device="cuda")
    for pool, values in ((ssm, problem.ssm), (conv, problem.conv)):
        pool[far.long()] = values[[1, 2]]
    record, steps = problem.nan_record(2, 3), torch.tensor([2, 1], device="cuda")
    o = ops.gdn_verify(
        **problem.tokens, cache_indices=far, **problem.layer.kwargs(), conv_pool=conv, ssm_pool=ssm, record=record
    )
    ops.gdn_fold(conv_pool=conv, ssm_pool=ssm, cache_indices=far, record=record, last_steps=steps)
    near = problem.draft(spare_rows=0)
    ops.gdn_fold(
        conv_pool=near.conv.tensor, ssm_pool=near.ssm.tensor, cache_indices=problem.rows["cache_indices"],
        record=near.record, last_steps=steps,
    )  # fmt: skip
    assert_same_bits(
        (o, ssm[far.long()], conv[far.long()]), (near.o, near.ssm.tensor[[1, 2]], near.conv.tensor[[1, 2]])
    )


def test_nothing_synchronises(no_wait_for_the_device):
    run = Rounds(3, 4)
    run.round()
    with no_wait_for_the_device():
        run.round()
