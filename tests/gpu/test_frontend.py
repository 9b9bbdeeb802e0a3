"""The front-end's kernel beyond what the contract suite asks of every device: its tilings, far addresses, ordering."""

from __future__ import annotations

import pytest
import torch

from cases import BF16, F16, F32, QWEN, Heads
from compare import assert_bit_equal
from problems import Frontend, fused_layer, offsets
from sglang_gdn import ops


def bits(run: Frontend) -> dict[str, torch.Tensor]:
    return run.tensors() | {"conv_pool": run.conv.storage}


def assert_same_bits(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, x in expected.items():
        assert_bit_equal(actual[name], x, name)


@pytest.mark.parametrize(
    "lens", [[8191], [4096, 1, 0, 2, 3, 1000], [17] * 200, [1] * 400], ids=["1", "6", "200", "400"]
)
@pytest.mark.parametrize("options", [QWEN, {"act": F16, "conv": F32, "width": 3}], ids=["qwen", "generic"])
def test_tilings(lens, options):
    """From tiles of four tokens to several waves of them, and rows of one token to rows of many tiles."""
    ids = [-1 if n % 7 == 3 else n for n in range(len(lens))]
    problem = fused_layer(
        "cuda",
        Heads(2, 4),
        lens=lens,
        ids=ids,
        initial=[n % 3 != 1 for n in range(len(lens))],
        pad_tokens=70,
        **options,
    )
    problem.check_frontend(problem.frontend(extra_pitch=40))


@pytest.mark.parametrize("act", [F32, BF16])
def test_sanitized(act):
    """Small enough for compute-sanitizer."""
    problem = fused_layer("cuda", Heads(1, 2), lens=[30, 0, 2, 1], ids=[3, 1, -1, 0], act=act, conv=BF16, bias=False)
    problem.check_frontend(problem.frontend())


def test_200_repeats_have_the_same_bits():
    problem = fused_layer("cuda", Heads(4, 8), lens=[700, 3, 64], **QWEN)
    first = bits(problem.frontend())
    for _ in range(200):
        assert_same_bits(bits(problem.frontend()), first)


def test_addresses_past_two_to_the_31_elements():
    problem = fused_layer("cuda", Heads(1, 1), lens=[300], ids=[1], **QWEN)
    near = problem.frontend()
    pitch = 2**31 // 290
    far = torch.empty(300 * pitch, dtype=BF16, device="cuda").as_strided((300, 384), (pitch, 1))
    far.copy_(problem.tokens["mixed_qkv"])
    slots = 2**31 // (384 * 3) + 3
    pool = torch.empty((slots, 384, 3), dtype=BF16, device="cuda")
    pool[-1] = problem.conv[1]
    rows = problem.rows | {"cache_indices": torch.tensor([slots - 1], device="cuda")}
    tensors = ops.gdn_frontend(
        **(problem.tokens | {"mixed_qkv": far}), **rows, **problem.layer.kwargs(), conv_pool=pool
    )
    for actual, (name, expected) in zip(tensors, near.tensors().items(), strict=True):
        assert_bit_equal(actual[0], expected, name)
    assert_bit_equal(pool[-1], near.conv.tensor[1], "conv state")


class Steps:
    """Calls whose convolved values are the next call's inputs, on one pool: each launch depends on the one before."""

    def __init__(self) -> None:
        self.problem = fused_layer("cuda", Heads(2, 4), lens=[900, 2, 120], **QWEN)
        self.conv = self.problem.conv.clone()
        self.x = self.problem.tokens["mixed_qkv"].clone()
        self.rows = {name: x.clone() for name, x in self.problem.rows.items() if x is not None}
        self.out = torch.empty_like(self.x)

    def step(self) -> None:
        for source, destination in ((self.x, self.out), (self.out, self.x)):
            ops.gdn_frontend(
                **(self.problem.tokens | {"mixed_qkv": source}), **self.rows, **self.problem.layer.kwargs(),
                conv_pool=self.conv, out=destination,
            )  # fmt: skip

    def bits(self) -> dict[str, torch.Tensor]:
        return {"x": self.x, "out": self.out, "conv_pool": self.conv}


def test_a_call_waits_for_the_one_before():
    pipelined, ordered = Steps(), Steps()
    for run, synchronise in ((pipelined, False), (ordered, True)):
        for _ in range(30):
            run.step()
            if synchronise:
                torch.cuda.synchronize()
    assert_same_bits(pipelined.bits(), ordered.bits())


def test_graph_replay_with_other_lengths_and_slots():
    run, eager = Steps(), Steps()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run.step()
    for start in (run, eager):
        start.x.copy_(start.problem.tokens["mixed_qkv"].flip(0))
        start.conv.copy_(start.problem.conv)
        start.rows["query_start_loc"].copy_(offsets([1, 700, 250]))
        start.rows["cache_indices"].copy_(torch.tensor([8, -1, 0]))
    graph.replay()
    eager.step()
    assert_same_bits(run.bits(), eager.bits())


def test_nothing_synchronises(no_wait_for_the_device):
    run = Steps()
    run.step()
    with no_wait_for_the_device():
        run.step()
