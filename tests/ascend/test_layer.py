"""A layer's prefill, decode and verify step, composed of the kernels that exist, on the simulated NPU.

What they compute is also tested by the contract suite with ``--device simulated-npu``.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import oracle
from cases import BF16, F16, F32, Heads, name_of
from compare import GuardedPool, assert_bit_equal, assert_close
from problems import Run, assert_rows, fused_layer, gate_of, norm_of, projections, randn, token_rows
from sglang_gdn import ops
from sglang_gdn.errors import GdnNoKernelError, GdnUnsupportedError
from sglang_gdn.stats import reset, stats
from tolerances import draft_output_limit, limit

pytestmark = pytest.mark.usefixtures("npu")


@pytest.mark.parametrize("heads", [Heads(1, 2), Heads(1, 3), Heads(1, 4), Heads(2, 2)], ids=str)
def test_decode(heads):
    problem = fused_layer("cpu", heads, batch=4, ids=[3, -1, 0, 8], act=BF16, conv=BF16)
    conv, ssm = GuardedPool(problem.conv.mT.contiguous(), "cpu"), GuardedPool(problem.ssm, "cpu")
    o = ops.gdn_decode(
        **problem.tokens, **problem.rows, **problem.layer.kwargs(), conv_pool=conv.tensor.mT, ssm_pool=ssm.tensor
    )
    windows = GuardedPool(problem.conv, "cpu")
    windows.tensor.copy_(conv.tensor.mT)
    replace(problem, device="npu").check_decode(Run(o[0], ssm=ssm, conv=windows), problem.expected_decode())


@pytest.mark.parametrize("drafts", [1, 4])
def test_verify_leaves_the_pools_alone(drafts):
    heads = Heads(1, 2)
    problem = fused_layer("cpu", heads, batch=3, drafts=drafts, ids=[3, -1, 0], act=BF16, conv=BF16)
    conv, ssm = GuardedPool(problem.conv.mT.contiguous(), "cpu"), GuardedPool(problem.ssm, "cpu")
    windows = torch.full((3, drafts, 3, heads.conv_dim), torch.nan, dtype=BF16)
    states = torch.full((3, drafts, 2, 128, 128), torch.nan)
    o = ops.gdn_verify(
        **problem.tokens, **problem.rows, **problem.layer.kwargs(), conv_pool=conv.tensor.mT, ssm_pool=ssm.tensor,
        intermediate_ssm=states, intermediate_conv_window=windows.mT,
        intermediate_state_indices=torch.arange(3, dtype=torch.int32),
    )  # fmt: skip
    conv.assert_untouched("conv_pool")
    ssm.assert_untouched("ssm_pool")
    expected = oracle.gdn_update(
        problem.layer, **problem.tokens, **problem.rows, conv_pool=problem.conv, ssm_pool=problem.ssm, commit=False
    )
    rows = [0, 2]
    assert_close(o[rows], expected[0][rows], draft_output_limit("npu", BF16, F32), "o")
    assert_bit_equal(windows[rows], expected[3][rows].to(BF16).mT.contiguous(), "windows")
    assert_close(states[rows], expected[4][rows], limit("npu", "decode_state", BF16), "states")


def test_prefill():
    """The convolution, the gates and the chunked rule of a layer: three launches."""
    heads = Heads(1, 2)
    problem = fused_layer(
        "cpu", heads, lens=[70, 0, 3, 64], ids=[3, 1, -1, 0], initial=[True, True, True, False], act=BF16, conv=BF16,
        pad_tokens=2,
    )  # fmt: skip
    conv, ssm = GuardedPool(problem.conv.mT.contiguous(), "cpu"), GuardedPool(problem.ssm, "cpu")
    o = ops.gdn_prefill(
        **problem.tokens, **problem.rows, **problem.layer.kwargs(), conv_pool=conv.tensor.mT, ssm_pool=ssm.tensor
    )
    expected, windows = problem.expected_prefill()
    rows = token_rows(problem.rows["query_start_loc"], problem.rows["cache_indices"])
    assert_rows(o[0], expected.o, rows, limit("npu", "prefill_o", BF16), "o")
    live = [3, 1, 0]
    assert_close(ssm.tensor[live], expected.pool[live], limit("npu", "prefill_state", F32), "ssm_pool")
    ssm.assert_only_wrote(live)
    assert_bit_equal(conv.tensor[live], windows.to(BF16).mT[live].contiguous(), "conv_pool")


# --- what no kernel does is refused before the first launch ---------------------------------------------------------

TWO = Heads(1, 2)
UPDATE = "fused_sigmoid_gating_delta_rule_update"
TOKENS = {"gdn_prefill": {"lens": [3, 66]}, "gdn_decode": {"batch": 2}, "gdn_verify": {"batch": 2, "drafts": 3}}


def layer_call(op, heads=TWO, **options):
    """Arguments of ``op`` with windows as an NPU keeps them and everything that it writes NaN."""
    problem = fused_layer("cpu", heads, ids=[3, 0], **(TOKENS[op] | {"act": BF16, "conv": BF16} | options))
    call = problem.tokens | problem.rows | problem.layer.kwargs()
    call |= {"conv_pool": problem.conv.mT.contiguous().mT, "ssm_pool": problem.ssm}
    if op == "gdn_verify":
        call |= {
            "intermediate_ssm": torch.full((2, 3, *problem.ssm.shape[1:]), torch.nan, dtype=problem.ssm.dtype),
            "intermediate_conv_window": torch.full((2, 3, 3, heads.conv_dim), torch.nan, dtype=BF16).mT,
            "intermediate_state_indices": torch.tensor([1, 0], dtype=torch.int32),
        }
    return call


def to(dtype, *names):
    return lambda call: {name: call[name].to(dtype) for name in names}


PARTS = {
    "gdn_prefill": {"conv": "causal_conv1d", "gates": "gdn_gating", "rule": "chunk_gated_delta_rule"},
    "gdn_decode": {"conv": "causal_conv1d_update", "gates": UPDATE, "rule": UPDATE},
    "gdn_verify": {"conv": "causal_conv1d_update", "gates": UPDATE, "rule": UPDATE},
}
# What is asked for that no kernel does, and which part says so.
UNSERVED = {
    "state-bfloat16": ({"state": BF16}, None, "rule"),
    "state-float16": ({"state": F16}, None, "rule"),
    "activations-float32": ({"act": F32}, None, "conv"),
    "heads-of-64": ({"heads": Heads(1, 2, 64, 64)}, None, "rule"),
    "65-value-heads": ({"heads": Heads(1, 65)}, None, "gates"),
    "A_log-bfloat16": ({}, to(BF16, "A_log"), "gates"),
    "dt_bias-float16": ({}, to(F16, "dt_bias"), "gates"),
    "gates-float32": ({}, to(F32, "a", "b"), "gates"),
    "b-float16": ({}, to(F16, "b"), "gates"),
    "weight-float32": ({}, to(F32, "conv_weight"), "conv"),
    "bias-float32": ({}, to(F32, "conv_bias"), "conv"),
}
UNSERVED_DRAFTS = {
    "tree": ({}, lambda call: {"parent_tokens": torch.tensor([[-1, 0, 0]] * 2)}, "conv"),
}


@pytest.mark.parametrize(
    ("op", "options", "change", "part"),
    [
        pytest.param(op, *case, id=f"{op}-{name}")
        for op in TOKENS
        for name, case in (UNSERVED | (UNSERVED_DRAFTS if op == "gdn_verify" else {})).items()
    ],
)
def test_what_a_part_does_not_serve_is_refused_before_any_writes(op, options, change, part):
    call = layer_call(op, **options)
    call |= change(call) if change else {}
    before = {name: x.clone() for name, x in call.items() if isinstance(x, torch.Tensor)}
    reset()
    with pytest.raises(GdnUnsupportedError) as refused:
        getattr(ops, op)(**call)
    assert refused.value.op == PARTS[op][part]
    for name, x in before.items():
        assert_bit_equal(call[name], x, name)
    assert stats() == {"calls": {}, "fallbacks": {}, "phases": {}}


@pytest.mark.parametrize("op", ["gdn_frontend", "gdn_fold", "gdn_verify"])
def test_operators_without_a_kernel_touch_nothing(op):
    """Records of drafts, and the front end alone."""
    problem = fused_layer("cpu", TWO, ids=[3, 0], batch=2, drafts=3, act=BF16, conv=BF16)
    record = problem.nan_record(2, 3)
    call = layer_call("gdn_prefill" if op == "gdn_frontend" else "gdn_verify")
    match op:
        case "gdn_frontend":
            del call["ssm_pool"]
        case "gdn_fold":
            call = {name: call[name] for name in ("conv_pool", "ssm_pool", "cache_indices")}
            call |= {"record": record, "last_steps": torch.tensor([2, 1])}
        case _:
            call = {name: x for name, x in call.items() if not name.startswith("intermediate")} | {"record": record}
    before = {name: x.clone() for name, x in call.items() if isinstance(x, torch.Tensor)}
    with pytest.raises(GdnNoKernelError) as refused:
        getattr(ops, op)(**call)
    assert refused.value.op == op
    for name, x in before.items():
        assert_bit_equal(call[name], x, name)
    assert all(part.isnan().all() for part in record)


@pytest.mark.parametrize("steps", [[2, 0, 1, 2], [-1, -1, 3, -(2**31)], [0, 1, 2, 2]], ids=str)
@pytest.mark.parametrize("slots", [[3, -1, 0, 8], [-1, -1, -1, -1], [9, 2**31 - 1, 0, -2]], ids=str)
@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=name_of)
def test_commit_without_a_kernel(steps, slots, index):
    """Copies of every row that may store, and of nothing else."""
    problem = fused_layer("cpu", TWO, batch=4, drafts=3, act=BF16, conv=BF16)
    conv, ssm = GuardedPool(problem.conv.mT.contiguous(), "cpu"), GuardedPool(problem.ssm, "cpu", extra_pitch=96)
    gen = torch.Generator().manual_seed(0)
    states, windows = randn(gen, 5, 3, 2, 128, 128), randn(gen, 5, 3, 3, TWO.conv_dim, dtype=BF16)
    sources = [4, 1, 0, 2]
    indices = {
        name: torch.tensor(values, dtype=index)
        for name, values in (("cache_indices", slots), ("intermediate_state_indices", sources), ("last_steps", steps))
    }
    ops.gdn_commit(
        conv_pool=conv.tensor.mT, ssm_pool=ssm.tensor, intermediate_ssm=states, intermediate_conv_window=windows.mT,
        **indices,
    )  # fmt: skip
    stored = [n for n in range(4) if 0 <= slots[n] < len(problem.ssm) and 0 <= steps[n] < 3]
    for n in stored:
        assert_bit_equal(ssm.tensor[slots[n]], states[sources[n], steps[n]], f"state of row {n}")
        assert_bit_equal(conv.tensor[slots[n]], windows[sources[n], steps[n]], f"window of row {n}")
    for pool in (conv, ssm):
        pool.assert_only_wrote([slots[n] for n in stored])


# --- what a stream of launches may not do ---------------------------------------------------------------------------


class NoReadingOperators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put", "index_put_") and any(x.dtype == torch.bool for x in args[1])
        reads = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2")
        assert not by_mask and name not in reads, f"{func} reads the device"
        return func(*args, **(kwargs or {}))


class NoReadingMethods(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func.__name__ not in ("tolist", "cpu", "numpy"), f"{func} reads the device"
        return func(*args, **(kwargs or {}))


@contextmanager
def no_host_reads():
    """Fails where a value of a tensor, or a size that depends on one, would be waited for."""
    with NoReadingMethods(), NoReadingOperators():
        yield


@pytest.mark.parametrize(
    "read", [lambda x: x.item(), lambda x: x.tolist(), lambda x: x.cpu(), lambda x: x[x > 0], lambda x: x or 1]
)
def test_host_reads_are_noticed(read):
    with pytest.raises(AssertionError, match="reads the device"), no_host_reads():
        read(torch.ones(1))


def test_nothing_reads_the_device_on_the_host():
    prefill = layer_call("gdn_prefill") | {
        "track_slots": torch.tensor([7, -1]), "track_lens": torch.tensor([3, 0]),
        "track_state": torch.empty(2, 2, 128, 128), "track_chunk_idx": torch.tensor([1, 0]),
    }  # fmt: skip
    problem = fused_layer("cpu", TWO, ids=[3, 0], batch=2, act=BF16, conv=BF16)
    decode = layer_call("gdn_decode") | projections(problem, gate_of(problem), "interleaved") | norm_of(problem)
    decode["track_slots"] = torch.tensor([7, -1])
    verify = layer_call("gdn_verify")
    commit = {
        name: x for name, x in verify.items() if "pool" in name or "indices" in name or name.startswith("intermediate")
    }
    with no_host_reads():
        ops.gdn_prefill(**prefill)
        ops.gdn_decode(**decode)
        ops.gdn_verify(**verify)
        ops.gdn_commit(**commit, last_steps=torch.tensor([2, -1]))
