"""The chunked gated delta rule in one launch, as the operator and stage by stage, on the simulated NPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import cases
from ascend.chunk_stages import STAGES, Stages
from cases import BF16, F16, F32, Heads, name_of
from compare import assert_bit_equal, assert_close, assert_zero, rel_l2
from problems import delta_rule, live, randn
from sglang_gdn.errors import GdnNoKernelError, GdnUnsupportedError
from tolerances import ONE_TOKEN_PREFILL, SPLIT, limit

TWO = Heads(1, 2)
SHARDS = sorted({heads for heads in cases.QWEN_TP if heads.HV <= 4}, key=str)
pytestmark = pytest.mark.usefixtures("npu")


def rule(heads, lens, **options):
    return delta_rule("cpu", heads, lens, **({"act": BF16} | options))


def check(problem, run):
    replace(problem, device="npu").check(run, problem.expected())


@pytest.mark.parametrize("heads", SHARDS, ids=str)
def test_head_pairs(heads):
    problem = rule(heads, [70])
    check(problem, problem.run())


@pytest.mark.parametrize("heads", [Heads(16, 32), Heads(16, 48), Heads(16, 64)], ids=str)
def test_many_heads(npu, heads):
    npu.set_cores(20)
    problem = rule(heads, [65])
    check(problem, problem.run())


@pytest.mark.parametrize("length", cases.CHUNK_EDGES)
def test_lengths(length):
    problem = rule(TWO, [length])
    check(problem, problem.run())


@pytest.mark.parametrize(
    "lens", [cases.VARLEN[name] for name in ("empty-middle", "all-empty", "mixed", "sevens", "57-2-5")], ids=str
)
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=name_of)
def test_varlen(lens, index_dtype):
    problem = rule(TWO, lens, ids=list(range(len(lens))), index_dtype=index_dtype, pad_tokens=2)
    check(problem, problem.run())


@pytest.mark.parametrize("act", [BF16, F16], ids=name_of)
@pytest.mark.parametrize("norm", [True, False])
def test_dtypes_and_norm(act, norm):
    problem = rule(Heads(1, 3), [130], act=act, norm=norm)
    run = problem.run()
    check(problem, run)
    expected = problem.expected()
    assert_close(run.o, expected.o, limit("cuda", "prefill_o", act), "o")


@pytest.mark.parametrize("ids", cases.ID_PATTERNS.values(), ids=cases.ID_PATTERNS)
def test_slots(ids):
    problem = rule(TWO, [3, 65, 0, 64], ids=ids, initial=[True, False, True, True])
    run = problem.run()
    check(problem, run)
    for n, slot in enumerate(ids):
        if slot < 0:
            begin, end = problem.args["cu_seqlens"][n : n + 2].tolist()
            assert_zero(run.o[begin:end], "o of a padded row")


@pytest.mark.parametrize("gates", cases.GATES)
def test_gates(gates):
    problem = rule(TWO, [100], gates=gates)
    check(problem, problem.run())


@pytest.mark.parametrize("extra_pitch", cases.EXTRA_PITCH)
def test_pitches_do_not_change_a_bit(extra_pitch):
    problem = rule(Heads(2, 4), [70, 3])
    plain = problem.run()
    for name in ("q", "k", "v", "g", "beta"):
        x = problem.args[name][0]
        wide = torch.full((x.shape[0], *(size + 3 for size in x.shape[1:])), torch.nan, dtype=x.dtype)
        view = wide[(slice(None), *(slice(0, size) for size in x.shape[1:]))]
        problem.args[name] = view.copy_(x)[None]
    pitched = problem.run(extra_pitch)
    assert_bit_equal(pitched.o, plain.o, "o")
    assert_bit_equal(pitched.ssm.tensor, plain.ssm.tensor, "ssm_pool")
    pitched.ssm.assert_only_wrote(live(problem.args["cache_indices"]))


@pytest.mark.parametrize("cores", [1, 3, 24])
def test_number_of_cores_does_not_change_a_bit(npu, cores):
    problem = rule(Heads(2, 6), [130, 65, 3])
    plain = problem.run()
    npu.set_cores(cores)
    other = problem.run()
    assert_bit_equal(other.o, plain.o, "o")
    assert_bit_equal(other.ssm.storage, plain.ssm.storage, "ssm_pool")


def test_rows_do_not_know_each_other():
    """Packed rows have the bits of the same rows alone."""
    lens = [130, 65, 3]
    problem = rule(TWO, lens)
    together = problem.run()
    begin = 0
    for n, length in enumerate(lens):
        alone = {name: problem.args[name][:, begin : begin + length] for name in ("q", "k", "v", "g", "beta")}
        run = problem.run(
            **alone, cu_seqlens=torch.tensor([0, length]), cache_indices=problem.args["cache_indices"][n : n + 1].long()
        )
        slot = int(problem.args["cache_indices"][n])
        assert_bit_equal(together.o[begin : begin + length], run.o, "o")
        assert_bit_equal(together.ssm.tensor[slot], run.ssm.tensor[slot], "state")
        begin += length


@pytest.mark.parametrize("split", [1, 2, 3, 63, 64, 65, 500, 999])
def test_a_row_in_two_calls(split):
    problem = rule(TWO, [1000], ids=[4])
    whole = problem.run()
    first = problem.run(
        **{name: problem.args[name][:, :split] for name in ("q", "k", "v", "g", "beta")},
        cu_seqlens=torch.tensor([0, split]), cache_indices=torch.tensor([4]),
    )  # fmt: skip
    second = problem.run(
        **{name: problem.args[name][:, split:] for name in ("q", "k", "v", "g", "beta")},
        cu_seqlens=torch.tensor([0, 1000 - split]), cache_indices=torch.tensor([4]), ssm_pool=first.ssm.tensor.clone(),
    )  # fmt: skip
    o = torch.cat([first.o, second.o])
    if split % 64 == 0:
        assert_bit_equal(o, whole.o, "o")
        assert_bit_equal(second.ssm.tensor[4], whole.ssm.tensor[4], "state")
    assert rel_l2(second.ssm.tensor[4], whole.ssm.tensor[4]) <= SPLIT[BF16]
    assert_close(o, whole.o, limit("npu", "prefill_o", BF16), "o")


def test_states_that_are_not_read_may_be_nan():
    problem = rule(TWO, [70, 70], ids=[2, 5], initial=[False, True])
    problem.ssm[2] = torch.nan
    run = problem.run()
    assert run.o.isfinite().all()
    assert run.ssm.tensor[[2, 5]].isfinite().all()


def test_nan_stays_in_its_row():
    problem = rule(TWO, [70, 70])
    clean = problem.run()
    problem.args["v"][0, 3] = torch.nan
    run = problem.run()
    assert run.o[3].isnan().all()
    assert_bit_equal(run.o[70:], clean.o[70:], "o of the other row")


def test_one_token_is_a_decode_step():
    problem = rule(TWO, [1], ids=[3], norm=False)
    run = problem.run()
    expected = problem.expected()
    assert_close(run.ssm.tensor[3], expected.pool[3], ONE_TOKEN_PREFILL, "state")


def test_huge_states():
    problem = rule(TWO, [64], gates="none", state_scale=1e5)
    problem.args["beta"].fill_(1)
    problem.args["k"][:] = problem.args["k"][:, :1]
    run = problem.run()
    assert run.o.isfinite().all()
    ids = live(problem.args["cache_indices"])
    assert_close(run.ssm.tensor[ids], problem.expected().pool[ids], limit("npu", "prefill_state", F32), "state")


def test_inputs_are_read_once_a_head(npu):
    """No launch but one, no byte of a tensor of all tokens written but ``out`` and the states."""
    problem = rule(Heads(1, 1), [512])
    problem.run()
    assert npu.launches() == 1
    written = npu.bytes_moved()["MTE3"] + npu.bytes_moved()["FIX"]
    assert written < 8 * 300 * 1024


@pytest.mark.parametrize("last", STAGES)
def test_stops_after_a_stage(npu, last):
    """Everything up to a stage in one launch has the bits of the stages one by one."""
    options = {"ids": [3, 1, -1, 5], "norm": False, "initial": [True, False, True, True]}
    step_by_step = Stages(npu, rule(TWO, [70, 0, 64, 130], **options))
    step_by_step.run(*STAGES[: STAGES.index(last) + 1])
    at_once = Stages(npu, rule(TWO, [70, 0, 64, 130], **options))
    at_once.run(last, in_one_launch=True)
    results = {
        "cumsum": [], "transpose": ["head_gates", "head_beta"], "scaled_dot_kkt": ["lower"],
        "solve_tril": ["write", "erase"], "wy_fast": ["w"], "chunk_h": ["h", "v_new"], "chunk_o": [],
    }[last]  # fmt: skip
    for chunk in at_once.chunks():
        if at_once.args["cache_indices"][chunk.row] < 0:
            continue
        for name in results:
            ours, theirs = at_once.between[name][chunk.number], step_by_step.between[name][chunk.number]
            if name in ("lower", "write", "erase"):  # nothing of the launch is meant above the diagonal
                ours, theirs = ours.tril(-1 if name == "lower" else 0), theirs.tril(-1 if name == "lower" else 0)
            assert_bit_equal(ours, theirs, f"{name} of chunk {chunk.number}")
    if last in ("chunk_h", "chunk_o"):
        assert_bit_equal(at_once.pool.storage, step_by_step.pool.storage, "ssm_pool")
    else:
        at_once.pool.assert_untouched("ssm_pool")
    if last == "chunk_o":
        assert_bit_equal(at_once.out, step_by_step.out, "o")
    else:
        assert at_once.out.isnan().all()


def test_snapshots():
    """States before a chunk, at the end, of no chunk, of a padded row, of a row without tokens; and of all chunks."""
    problem = rule(TWO, [130, 64, 70, 65, 0], ids=[3, 1, 2, -1, 5])
    plain, expected = problem.run(), problem.expected()
    chunks = torch.tensor([2, 1, -1, 1, 0])
    track = torch.full((5, 2, 128, 128), torch.nan)
    run = problem.run(track_state=track, track_chunk_idx=chunks, output_h=True)
    assert_bit_equal(run.o, plain.o, "o")
    assert_bit_equal(run.ssm.storage, plain.ssm.storage, "ssm_pool")
    bound = limit("npu", "prefill_state", F32)
    for n in (0, 1):
        assert_close(track[n], expected.boundaries[n][chunks[n]], bound, f"snapshot of row {n}")
    assert track[2].isnan().all(), "a row that asks for no snapshot"
    assert_zero(track[3], "snapshot of a padded row")
    assert_bit_equal(track[4], problem.ssm[5], "snapshot of a row without tokens")
    states = [before[:-1] for before in expected.boundaries if before is not None]
    assert_close(run.h[:6], torch.cat(states), bound, "h")
    assert_zero(run.h[6:], "h of a padded row")
    assert_bit_equal(run.h[2], track[0], "state before the last chunk")


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.3])
@pytest.mark.parametrize("act", [BF16, F16], ids=name_of)
def test_nearly_identical_keys_cost_no_accuracy(act, spread):
    """Everything cancels; the limits are those of a GPU, of which an NPU is only asked four times as much."""
    problem = rule(TWO, [200], gates="none", act=act)
    gen = torch.Generator().manual_seed(5)
    k = randn(gen, 1, 1, 1, 128) + spread * randn(gen, 1, 200, 1, 128)
    problem.args |= {"k": k.to(act), "beta": torch.full((1, 200, 2), 0.99)}
    run, expected = problem.run(), problem.expected()
    ids = live(problem.args["cache_indices"])
    assert_close(run.o, expected.o, limit("cuda", "prefill_o", act), "o")
    assert_close(run.ssm.tensor[ids], expected.pool[ids], limit("cuda", "prefill_state", F32), "state")


def test_slots_past_the_pool_reach_no_memory():
    problem = rule(TWO, [70, 5], ids=[cases.SLOTS, 3], slots=cases.SLOTS)
    run = problem.run()
    assert_zero(run.o[:70], "o of a row whose slot does not exist")
    run.ssm.assert_only_wrote([3])


def test_refusals():
    with pytest.raises(GdnUnsupportedError, match="v must have at most 64 value heads on npu"):
        rule(Heads(65, 65), [1]).run()
    with pytest.raises(GdnNoKernelError, match="head_k_dim must be one of 128; got 64"):
        rule(Heads(1, 1, 64, 128), [3]).run()
    with pytest.raises(GdnNoKernelError, match="ssm_pool dtype must be one of float32; got bfloat16"):
        rule(TWO, [3], state=BF16).run()
    with pytest.raises(GdnNoKernelError, match="activation dtype must be one of bfloat16, float16; got float32"):
        rule(TWO, [3], act=F32).run()
