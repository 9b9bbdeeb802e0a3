"""The fused decode kernel beyond what the contract suite asks of every device: its tilings, alignment and ordering."""

from __future__ import annotations

import pytest
import torch

import sglang_gdn
from cases import ACTIVATIONS, BF16, F16, F32, ID_PATTERNS, RATIOS, STATES, Heads, name_of
from compare import assert_bit_equal
from problems import check_normalised, check_tracked, fused_layer, gate_of, norm_of, projections
from sglang_gdn import ops


def run_bits(problem, **changes) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    run = problem.decode(**changes)
    return run.o, run.ssm.tensor, run.conv.tensor


def assert_same_bits(actual, expected) -> None:
    for name, a, b in zip(("o", "ssm_pool", "conv_pool"), actual, expected, strict=True):
        assert_bit_equal(a, b, name)


@pytest.fixture(autouse=True)
def fused_kernel_serves():
    before = sglang_gdn.stats()
    yield
    assert sglang_gdn.stats()["fallbacks"] == before["fallbacks"]


@pytest.mark.parametrize("heads", RATIOS, ids=str)
@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("conv", [F32, BF16], ids=name_of)
def test_dtypes_and_ratios(heads, act, state, conv):
    problem = fused_layer("cuda", heads, batch=3, act=act, state=state, conv=conv, ids=[4, -1, 7])
    problem.check_decode(problem.decode(), problem.expected_decode())


@pytest.mark.parametrize(("width", "bias", "activation"), [(4, False, "silu"), (3, True, None), (2, True, "swish")])
@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_convolution_options(width, bias, activation, act):
    problem = fused_layer(
        "cuda", Heads(2, 4), batch=3, act=act, conv=act, width=width, bias=bias, activation=activation
    )
    problem.check_decode(problem.decode(), problem.expected_decode())


@pytest.mark.parametrize("ids", ID_PATTERNS.values(), ids=ID_PATTERNS)
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=name_of)
def test_slots(ids, index_dtype):
    problem = fused_layer("cuda", Heads(2, 4), batch=4, act=BF16, conv=BF16, ids=ids, index_dtype=index_dtype)
    problem.check_decode(problem.decode(), problem.expected_decode())


@pytest.mark.parametrize("heads", RATIOS, ids=str)
@pytest.mark.parametrize("batch", [1, 2, 33, 127, 257])
def test_batches_on_both_sides_of_the_change_of_tiling(heads, batch):
    problem = fused_layer("cuda", heads, batch=batch, act=BF16, conv=BF16)
    problem.check_decode(problem.decode(), problem.expected_decode())


def test_a_batch_of_4096():
    problem = fused_layer("cuda", Heads(1, 1), batch=4096, act=BF16, conv=BF16)
    problem.check_decode(problem.decode(), problem.expected_decode())


@pytest.mark.parametrize("heads", RATIOS, ids=str)
@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
@pytest.mark.parametrize("state", [F32, BF16], ids=name_of)
def test_a_row_has_the_same_bits_alone_and_in_any_batch(heads, act, state):
    problem = fused_layer("cuda", heads, batch=256, act=act, conv=act, state=state)
    o, ssm, conv = run_bits(problem)
    for row in (0, 100, 255):
        slot = int(problem.rows["cache_indices"][row])
        alone = run_bits(
            problem, **{name: x[row : row + 1] for name, x in (problem.tokens | problem.rows).items() if x is not None}
        )
        assert_same_bits((alone[0], alone[1][slot], alone[2][slot]), (o[row : row + 1], ssm[slot], conv[slot]))


@pytest.mark.parametrize("heads", RATIOS, ids=str)
@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
def test_a_normalised_row_has_the_same_bits_alone_and_in_any_batch(heads, act):
    problem = fused_layer("cuda", heads, batch=256, act=act, conv=act)
    z, norm = gate_of(problem), norm_of(problem)
    together = problem.decode(z=z, **norm)
    for row in (slice(0, 1), slice(100, 101), slice(255, 256), slice(10, 40)):
        tokens = {name: x[row] for name, x in problem.tokens.items()}
        alone = problem.decode(**tokens, cache_indices=problem.rows["cache_indices"][row], z=z[row], **norm)
        assert_bit_equal(alone.o, together.o[row], "o")


@pytest.mark.parametrize("heads", RATIOS, ids=str)
@pytest.mark.parametrize("batch", [1, 33, 127])
@pytest.mark.parametrize("layout", ["contiguous", "interleaved"])
def test_extras_on_both_sides_of_the_change_of_tiling(heads, batch, layout):
    problem = fused_layer("cuda", heads, batch=batch, act=BF16, conv=BF16)
    ids = problem.rows["cache_indices"].tolist()
    problem.ssm, problem.conv = torch.cat([problem.ssm] * 2), torch.cat([problem.conv] * 2)
    track = [len(problem.ssm) // 2 + slot if n % 3 else -1 for n, slot in enumerate(ids)]
    z, norm = gate_of(problem), norm_of(problem)
    run = problem.decode(
        **projections(problem, z, layout), **norm, track_slots=torch.tensor(track, dtype=torch.int32, device="cuda")
    )
    check_normalised(problem, run, z, norm)
    check_tracked(run, problem.decode(), ids, track)


def test_200_normalised_repeats_have_the_same_bits():
    problem = fused_layer("cuda", Heads(16, 32), batch=9, act=BF16, conv=BF16)
    options = norm_of(problem) | {"z": gate_of(problem)}
    first = run_bits(problem, **options)
    for _ in range(200):
        assert_same_bits(run_bits(problem, **options), first)


def test_normalised_steps_back_to_back():
    """A block's sums must not reach a block of the launch before or after."""
    problem = fused_layer("cuda", Heads(4, 12), batch=40, act=BF16, conv=BF16)
    options = norm_of(problem) | {"z": gate_of(problem)}
    bits = []
    for synchronise in (False, True):
        ssm, conv, outputs = problem.ssm.clone(), problem.conv.clone(), []
        for _ in range(40):
            outputs.append(
                ops.gdn_decode(
                    **problem.tokens, **problem.rows, **problem.layer.kwargs(), **options, conv_pool=conv, ssm_pool=ssm
                )
            )
            if synchronise:
                torch.cuda.synchronize()
        bits.append((torch.cat(outputs), ssm, conv))
    assert_same_bits(*bits)


@pytest.mark.parametrize("extra_pitch", [1, 2, 4, 96, 16384])
@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("act", [F16, BF16], ids=name_of)
def test_any_slot_pitch_gives_the_same_bits(extra_pitch, state, act):
    problem = fused_layer("cuda", Heads(2, 6), batch=4, act=act, conv=act, state=state)
    problem.check_decode(problem.decode(), problem.expected_decode())
    assert_same_bits(run_bits(problem, extra_pitch=extra_pitch), run_bits(problem))


def test_strided_projections_give_the_same_bits():
    problem = fused_layer("cuda", Heads(2, 4), batch=5, act=BF16, conv=BF16)
    tokens = {}
    for name, x in problem.tokens.items():
        wide = torch.full((x.shape[0], x.shape[1] + 37), torch.nan, dtype=x.dtype, device=x.device)
        wide[:, 5 : 5 + x.shape[1]] = x
        tokens[name] = wide[:, 5 : 5 + x.shape[1]]
    assert_same_bits(run_bits(problem, **tokens), run_bits(problem))


def test_200_repeats_have_the_same_bits():
    problem = fused_layer("cuda", Heads(16, 32), batch=9, act=BF16, conv=BF16)
    first = run_bits(problem)
    for _ in range(200):
        assert_same_bits(run_bits(problem), first)


def test_slots_past_two_to_the_31_elements():
    heads = Heads(16, 32)
    problem = fused_layer("cuda", heads, batch=2, act=BF16, conv=BF16, ids=[1, 2])
    slots = 2**31 // (heads.HV * heads.V * heads.K) + 3
    ssm = torch.empty((slots, heads.HV, heads.V, heads.K), dtype=F32, device="cuda")
    conv = torch.empty((slots, heads.conv_dim, 3), dtype=BF16, device="cuda")
    far = torch.tensor([slots - 1, slots - 2], dtype=torch.int32, device="cuda")
    for pool, values in ((ssm, problem.ssm), (conv, problem.conv)):
        pool[far.long()] = values[[1, 2]]
    o = ops.gdn_decode(**problem.tokens, cache_indices=far, **problem.layer.kwargs(), conv_pool=conv, ssm_pool=ssm)
    near = problem.decode()
    assert_same_bits(
        (o[0], ssm[far.long()], conv[far.long()]), (near.o, near.ssm.tensor[[1, 2]], near.conv.tensor[[1, 2]])
    )


class Steps:
    """Decode steps that feed their output into the next step's input: every launch depends on the one before."""

    def __init__(self, batch: int, seed: int = 0) -> None:
        self.problem = fused_layer("cuda", Heads(4, 8), batch=batch, act=BF16, conv=BF16, seed=seed)
        self.ssm, self.conv = self.problem.ssm.clone(), self.problem.conv.clone()
        self.x = self.problem.tokens["mixed_qkv"].clone()
        self.ids = self.problem.rows["cache_indices"].clone()
        self.out = torch.empty((1, batch, 8, 128), dtype=BF16, device="cuda")

    def step(self) -> None:
        ops.gdn_decode(
            **(self.problem.tokens | {"mixed_qkv": self.x}), cache_indices=self.ids, **self.problem.layer.kwargs(),
            conv_pool=self.conv, ssm_pool=self.ssm, out=self.out,
        )  # fmt: skip
        self.x[:, : 8 * 128] = self.out.reshape(len(self.x), -1) * 4

    def bits(self) -> tuple[torch.Tensor, ...]:
        return self.out, self.ssm, self.conv


def chained(batch: int, steps: int, synchronise: bool) -> tuple[torch.Tensor, ...]:
    run = Steps(batch)
    for _ in range(steps):
        run.step()
        if synchronise:
            torch.cuda.synchronize()
    return run.bits()


@pytest.mark.parametrize("batch", [1, 64])
def test_a_step_waits_for_the_one_before(batch):
    assert_same_bits(chained(batch, 50, synchronise=False), chained(batch, 50, synchronise=True))


def test_back_to_back_steps_on_one_pool():
    """No other kernel between two steps: the second is launched while the first still runs."""
    pipelined, ordered = Steps(64), Steps(64)
    for run, synchronise in ((pipelined, False), (ordered, True)):
        for _ in range(50):
            ops.gdn_decode(
                **run.problem.tokens, cache_indices=run.ids, **run.problem.layer.kwargs(), conv_pool=run.conv,
                ssm_pool=run.ssm, out=run.out,
            )  # fmt: skip
            if synchronise:
                torch.cuda.synchronize()
    assert_same_bits(pipelined.bits(), ordered.bits())


def test_graph_replay_with_other_slots_and_inputs():
    run, eager = Steps(5), Steps(5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            run.step()
    for start in (run, eager):
        start.x.copy_(start.problem.tokens["mixed_qkv"].flip(0))
        start.ids.copy_(torch.tensor([3, -1, 0, 8, -1]))
        start.ssm.copy_(start.problem.ssm)
        start.conv.copy_(start.problem.conv)
    graph.replay()
    for _ in range(3):
        eager.step()
    assert_same_bits(run.bits(), eager.bits())


def test_two_streams_with_a_copy_beside_them():
    expected = [chained(17, 40, synchronise=True)] * 2
    runs = [Steps(17), Steps(17)]
    streams = [torch.cuda.Stream() for _ in range(3)]
    blob = torch.empty(1 << 26, device="cuda")
    torch.cuda.synchronize()
    for _ in range(40):
        for run, stream in zip(runs, streams, strict=False):
            with torch.cuda.stream(stream):
                run.step()
        with torch.cuda.stream(streams[2]):
            blob.copy_(blob.flip(0))
    torch.cuda.synchronize()
    for run, bits in zip(runs, expected, strict=True):
        assert_same_bits(run.bits(), bits)


def test_nothing_synchronises(no_wait_for_the_device):
    run = Steps(3)
    run.step()
    with no_wait_for_the_device():
        run.step()
