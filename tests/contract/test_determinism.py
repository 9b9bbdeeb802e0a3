"""The same bits again: over repeats, thread counts, threads of the caller, batch composition and position."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from cases import BF16, F32, SMALL, TRIPLE, name_of, small
from compare import assert_bit_equal, bits
from problems import delta_rule, fused_layer, offsets, update
from sglang_gdn import _C


@pytest.fixture
def cpu_threads():
    """Sets the number of CPU threads; the default is back afterwards."""
    before = _C.get_num_threads()
    yield _C.set_num_threads
    _C.set_num_threads(before)


def digest(run) -> str:
    tensors = [run.o, *(pool.storage for pool in (run.ssm, run.conv) if pool is not None)]
    return hashlib.sha256(b"".join(bits(x).numpy().tobytes() for x in tensors)).hexdigest()


def runs(device):
    """Every operator once, as a function that returns a fresh run."""
    prefill = fused_layer(device, SMALL, lens=[130, 3, 0, 65], act=BF16, conv=BF16)
    decode = fused_layer(device, TRIPLE, batch=5, act=BF16, conv=BF16)
    return {
        "chunk_gated_delta_rule": delta_rule(device, TRIPLE, [130, 3, 0, 65]).run,
        "fused_sigmoid_gating_delta_rule_update": update(device, TRIPLE, 5, 2).run,
        "gdn_prefill": prefill.prefill,
        "gdn_decode": decode.decode,
    }


@pytest.mark.parametrize(
    "op", ["chunk_gated_delta_rule", "fused_sigmoid_gating_delta_rule_update", "gdn_prefill", "gdn_decode"]
)
def test_100_runs_have_one_hash(device, op):
    run = runs(device)[op]
    assert len({digest(run()) for _ in range(100)}) == 1


def test_the_hash_sees_one_bit(device):
    run = runs(device)["gdn_decode"]()
    before = digest(run)
    run.ssm.storage[0, 0] = 0
    assert digest(run) != before


@pytest.mark.needs("cpu_threads")
def test_thread_count(device, cpu_threads):
    for op, run in runs(device).items():
        digests = set()
        for threads in (1, 2, 3, 4, 7):
            cpu_threads(threads)
            digests.add(digest(run()))
        assert len(digests) == 1, op


def test_concurrent_callers(device):
    """Calls from several Python threads at once, on pools of their own."""
    tasks = list(runs(device).values()) * 4
    expected = [digest(run()) for run in tasks]
    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(lambda run: digest(run()), tasks)) == expected


# --- batch invariance ----------------------------------------------------------------------------------------------


def prefill_row_alone(problem, begin, length, slot):
    rows = slice(begin, begin + length)
    alone = {name: problem.args[name][:, rows] for name in ("q", "k", "v", "g", "beta")}
    alone["cu_seqlens"] = offsets([length]).to(problem.device)
    alone["cache_indices"] = torch.tensor([slot], dtype=torch.int32, device=problem.device)
    return problem.run(**alone)


@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
@pytest.mark.parametrize(
    "lens", [[130, 65, 3], [64, 64], [1, 70, 200], [63, 127, 64], [7] * 19, [64, 111, 192]], ids=str
)
def test_a_packed_row_equals_the_row_alone(device, lens, act):
    heads = small(4, 12)
    problem = delta_rule(device, heads, lens, act=act)
    packed, begin = problem.run(), 0
    for length, slot in zip(lens, problem.args["cache_indices"].tolist(), strict=True):
        alone = prefill_row_alone(problem, begin, length, slot)
        assert_bit_equal(packed.o[begin : begin + length], alone.o, "o")
        assert_bit_equal(packed.ssm.tensor[slot], alone.ssm.tensor[slot], "state")
        begin += length


@pytest.mark.parametrize("rows", [1, 2, 8, 62, 64, 127, 257])
@pytest.mark.parametrize("position", ["first", "middle", "last"])
def test_a_row_in_batches_of_every_size(device, rows, position):
    """One row of 70 tokens among others of 1 to 9 tokens, at several places."""
    place = {"first": 0, "middle": rows // 2, "last": rows - 1}[position]
    lens = [1 + n % 9 for n in range(rows)]
    lens[place] = 70
    ids = list(range(1, rows + 1))
    ids[place] = 0
    heads = small(1, 2)
    problem = delta_rule(device, heads, lens, act=BF16, ids=ids)
    begin = sum(lens[:place])
    single = delta_rule(device, heads, [70], act=BF16, ids=[0], seed=7)
    for name in ("q", "k", "v", "g", "beta"):
        problem.args[name][:, begin : begin + 70] = single.args[name]
    problem.ssm[0] = single.ssm[0]
    packed, alone = problem.run(), single.run()
    assert_bit_equal(packed.o[begin : begin + 70], alone.o, "o")
    assert_bit_equal(packed.ssm.tensor[0], alone.ssm.tensor[0], "state")


@pytest.mark.parametrize("batch", [2, 3, 8, 33, 62, 64, 127, 257])
def test_a_decoded_row_in_batches_of_every_size(device, batch):
    problem = fused_layer(device, small(1, 2), batch=batch, ids=list(range(batch)), act=BF16, conv=BF16)
    together = problem.decode()
    for n in (0, batch // 2, batch - 1):
        alone = problem.decode(
            **{name: x[n : n + 1] for name, x in problem.tokens.items()},
            cache_indices=problem.rows["cache_indices"][n : n + 1],
        )
        assert_bit_equal(together.o[n], alone.o[0], "o")
        assert_bit_equal(together.ssm.tensor[n], alone.ssm.tensor[n], "ssm state")
        assert_bit_equal(together.conv.tensor[n], alone.conv.tensor[n], "conv state")


def test_order_of_rows(device):
    problem = fused_layer(device, SMALL, batch=4, ids=[8, 2, 0, 5])
    order = torch.tensor([2, 0, 3, 1], device=device)
    plain = problem.decode()
    permuted = problem.decode(
        **{name: x[order] for name, x in problem.tokens.items()}, cache_indices=problem.rows["cache_indices"][order]
    )
    assert_bit_equal(permuted.o, plain.o[order], "o")
    assert_bit_equal(permuted.ssm.storage, plain.ssm.storage, "ssm_pool")
    assert_bit_equal(permuted.conv.storage, plain.conv.storage, "conv_pool")


@pytest.mark.needs("cpu_threads")
def test_floating_point_mode_of_the_caller_is_kept(device):
    """Kernels may flush subnormals for themselves, but not for whoever called them."""
    tiny = torch.tensor([1e-40])
    for run in runs(device).values():
        run()
        assert (tiny * 0.5).item() > 0
