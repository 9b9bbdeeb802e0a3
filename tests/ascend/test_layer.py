"""A layer's prefill, decode and verify step, composed of the kernels that exist, on the simulated NPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import oracle
from cases import BF16, F32, Heads
from compare import GuardedPool, assert_bit_equal, assert_close
from problems import Run, assert_rows, fused_layer, token_rows
from sglang_gdn import ops
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
