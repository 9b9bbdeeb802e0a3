"""States split and merged across tensor-parallel sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from compare import assert_bit_equal
from sglang_gdn import ops
from sglang_gdn.errors import GdnValueError
from sglang_gdn.state import merge_conv_state, merge_ssm_state, split_conv_state, split_ssm_state

HEADS = [(16, 32), (16, 48), (16, 64), (16, 16)]
W = 4


def sizes(num_k_heads: int, num_v_heads: int, head: int) -> dict[str, int]:
    return {"num_k_heads": num_k_heads, "num_v_heads": num_v_heads, "head_k_dim": head, "head_v_dim": head}


def channels(num_k_heads: int, num_v_heads: int, head: int) -> int:
    return (2 * num_k_heads + num_v_heads) * head


def random(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 8), (8, 2), (4, 16), (16, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_round_trip(heads: tuple[int, int], before: int, after: int, dtype: torch.dtype) -> None:
    head = sizes(*heads, 8)
    conv, ssm = random(dtype, 3, channels(*heads, 8), W - 1), random(dtype, 3, heads[1], 8, 8)
    conv_shards, ssm_shards = split_conv_state(conv, before, **head), split_ssm_state(ssm, before)
    conv_shards = split_conv_state(merge_conv_state(conv_shards, **head), after, **head)
    ssm_shards = split_ssm_state(merge_ssm_state(ssm_shards), after)
    assert len(conv_shards) == len(ssm_shards) == after
    assert all(shard.is_contiguous() for shard in (*conv_shards, *ssm_shards))
    assert_bit_equal(merge_conv_state(conv_shards, **head), conv)
    assert_bit_equal(merge_ssm_state(ssm_shards), ssm)


@pytest.mark.needs("cpu_kernels")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_decode_from_split_states(ranks: int) -> None:
    """Each rank's heads go on from its shard exactly as they do when all heads are together."""
    H, HV, K, rows = 4, 8, 32, 3
    head, shard_head = sizes(H, HV, K), sizes(H // ranks, HV // ranks, K)
    D = channels(H, HV, K)
    conv_pool, ssm_pool = random(torch.float32, rows, D, W - 1), random(torch.float32, rows, HV, K, K)
    qkv, gates, weight = (
        random(torch.float32, rows, D),
        random(torch.float32, 2, rows, HV),
        random(torch.float32, D, W),
    )
    A_log, dt_bias = random(torch.float32, 2, HV)
    conv_shards, ssm_shards = split_conv_state(conv_pool, ranks, **head), split_ssm_state(ssm_pool, ranks)
    # Inputs and weights have the channels of the conv state, in the same order.
    qkv_shards = [x.squeeze(-1) for x in split_conv_state(qkv.unsqueeze(-1), ranks, **head)]
    weight_shards = split_conv_state(weight, ranks, **head)

    def decode(conv: Any, ssm: Any, x: Any, gate: Any, conv_weight: Any, logs: Any, heads: dict[str, int]) -> Any:
        return ops.gdn_decode(
            x,
            *gate,
            conv_weight=conv_weight,
            A_log=logs[0],
            dt_bias=logs[1],
            **heads,
            conv_pool=conv,
            ssm_pool=ssm,
            cache_indices=torch.arange(rows),
        )

    logs = torch.stack([A_log, dt_bias])
    outputs = [
        decode(conv, ssm, x, gate, w, log, shard_head)
        for conv, ssm, x, gate, w, log in zip(
            conv_shards,
            ssm_shards,
            qkv_shards,
            gates.chunk(ranks, -1),
            weight_shards,
            logs.chunk(ranks, -1),
            strict=True,
        )
    ]
    together = decode(conv_pool, ssm_pool, qkv, gates, weight, logs, head)
    assert_bit_equal(torch.cat(outputs, dim=2), together)
    assert_bit_equal(merge_conv_state(conv_shards, **head), conv_pool)
    assert_bit_equal(merge_ssm_state(ssm_shards), ssm_pool)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: split_conv_state(torch.zeros(2, 96, 3), 3, **sizes(2, 2, 16)), "ranks"),
        (lambda: split_conv_state(torch.zeros(2, 96, 3), 0, **sizes(2, 2, 16)), "ranks"),
        (lambda: split_conv_state(torch.zeros(2, 95, 3), 2, **sizes(2, 2, 16)), "state"),
        (lambda: merge_conv_state([], **sizes(2, 2, 16)), "ranks"),
        (lambda: merge_conv_state([torch.zeros(48, 3), torch.zeros(48, 2)], **sizes(2, 2, 16)), "shards"),
        (lambda: split_ssm_state(torch.zeros(6, 4, 4), 4), "ranks"),
        (lambda: split_ssm_state(torch.zeros(4, 4), 1), "state"),
        (lambda: merge_ssm_state([]), "shards"),
        (lambda: merge_ssm_state([torch.zeros(1, 4, 4), torch.zeros(2, 4, 4)]), "shards"),
    ],
)
def test_bad_input(call: Any, argument: str) -> None:
    with pytest.raises(GdnValueError) as refused:
        call()
    assert refused.value.argument == argument
