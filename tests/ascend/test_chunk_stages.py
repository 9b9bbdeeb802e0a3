"""Every stage of the chunked gated delta rule by itself, and all seven in a row, on the simulated NPU."""

from __future__ import annotations

import pytest
import torch

import cases
from ascend.chunk_stages import STAGES, TWO_PARTS, Stages
from cases import BF16, F16, Heads, name_of
from compare import assert_bit_equal, assert_close, assert_zero
from problems import delta_rule
from tolerances import limit

TWO = Heads(1, 2)
RATIOS = [Heads(2, 2), TWO, Heads(1, 3), Heads(1, 4)]
ROUNDED = {BF16: 2.5e-3, F16: 3.2e-4}  # one rounding to the activation dtype, and float32 arithmetic before it
ROUNDED_TWICE = {BF16: 1e-5, F16: 1e-5}  # the rest, too; or what float32 arithmetic costs


def stages(npu, lens, heads=TWO, **options):
    return Stages(npu, delta_rule("cpu", heads, lens, **({"act": BF16, "norm": False} | options)))


def check_stage(run, name):
    """Against float64 from this stage's inputs as they are."""
    bounds = {"gates": 1e-6, "head_gates": 0, "head_beta": 0, "lower": 1e-5}
    bounds |= dict.fromkeys(TWO_PARTS, ROUNDED_TWICE[run.problem.activation])
    act = run.problem.activation
    expected = run.expected(name)
    for m, chunk in enumerate(run.chunks()):
        if name in ("chunk_h", "chunk_o") and run.args["cache_indices"][chunk.row] < 0:
            continue
        for tensor, by_chunk in expected.items():
            if tensor == "o":
                actual, wanted = run.out[chunk.tokens], by_chunk[m, :, : chunk.valid].transpose(0, 1)
                bound = 2 * ROUNDED[act]  # the scaled q is rounded too
            else:
                actual, wanted, bound = run.found(tensor)[m], by_chunk[m], bounds.get(tensor, ROUNDED[act])
            assert_close(actual, wanted, bound, f"{tensor} of chunk {chunk.number}")


@pytest.mark.parametrize("act", [BF16, F16], ids=name_of)
@pytest.mark.parametrize("heads", RATIOS, ids=str)
def test_every_stage(npu, heads, act):
    run = stages(npu, [70, 0, 64, 1], heads, ids=[3, 1, -1, 5], act=act, pad_tokens=3)
    for name in STAGES:
        run.run(name)
        check_stage(run, name)


@pytest.mark.parametrize(
    "lens", [cases.VARLEN["mixed"], cases.VARLEN["around-chunk"], [15, 16, 17, 2]], ids=lambda lens: str(len(lens))
)
def test_all_stages(npu, lens):
    run = stages(npu, lens, initial=[n % 2 == 0 for n in range(len(lens))])
    expected = run.problem.expected()
    run.run(*STAGES)
    assert_close(run.out, expected.o, limit("cuda", "prefill_o", BF16), "o")
    ids = run.args["cache_indices"].tolist()
    assert_close(run.pool.tensor[ids], expected.pool[ids], limit("cuda", "prefill_state", cases.F32), "ssm_pool")
    run.pool.assert_only_wrote(ids)
    for chunk in run.chunks():
        before = expected.boundaries[chunk.row][chunk.index]
        assert_close(run.between["h"][chunk.number], before, limit("cuda", "prefill_state", BF16), "h")


@pytest.mark.parametrize("cores", [1, 3, 24])
def test_number_of_cores_does_not_change_a_bit(npu, cores):
    results = []
    for blocks in (2, cores):
        npu.set_cores(blocks)
        run = stages(npu, [130, 65, 3], Heads(2, 4))
        run.run(*STAGES)
        results.append([run.out, run.pool.storage])
    for ours, theirs in zip(*results, strict=True):
        assert_bit_equal(ours, theirs, "result")


def test_padded_rows_and_tokens_become_zero(npu):
    run = stages(npu, [70, 5], ids=[-1, 2], pad_tokens=40)
    run.run(*STAGES)
    assert_zero(run.out[:70], "o of a padded row")
    assert_zero(run.out[75:], "o past the last row")
    assert run.out[70:75].isfinite().all()
    run.pool.assert_only_wrote([2])


def test_a_row_without_tokens_keeps_or_clears_its_state(npu):
    run = stages(npu, [0, 0, 3], ids=[1, 2, 4], initial=[True, False, True])
    run.run(*STAGES)
    assert_bit_equal(run.pool.tensor[1], run.problem.ssm[1], "state that continues")
    assert_zero(run.pool.tensor[2], "state that starts")


@pytest.mark.parametrize("gates", ["forget", "none", "beta-0", "beta-1"])
def test_gates(npu, gates):
    run = stages(npu, [100], gates=gates)
    expected = run.problem.expected()
    run.run(*STAGES)
    assert_close(run.out, expected.o, limit("cuda", "prefill_o", BF16), "o")


def test_keys_that_repeat(npu):
    """The inverse's worst case: near-identical keys that nothing decays."""
    run = stages(npu, [64], gates="none")
    run.args["k"][:] = run.args["k"][:1] + 1e-2 * run.args["k"]
    run.args["beta"].fill_(0.99)
    run.run("cumsum", "transpose", "scaled_dot_kkt", "solve_tril")
    check_stage(run, "solve_tril")


def test_nan_of_a_slot_that_is_not_read(npu):
    run = stages(npu, [70], ids=[2], initial=[False])
    run.pool.tensor[2] = torch.nan
    run.run(*STAGES)
    assert run.out.isfinite().all() and run.pool.tensor[2].isfinite().all()
