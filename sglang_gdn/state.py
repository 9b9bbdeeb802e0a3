"""Slots of another tensor-parallel size: splits and merges the states of GDN layers, bit for bit.

With R ranks, rank r owns the r-th of R equal runs of key heads and of value heads. An SSM state is cut by value head. A
conv state is cut within each of its parts q, k and v, because every rank holds its own channels in that order. From one
number of ranks to another: ``split(merge(shards))``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sglang_gdn.errors import GdnValueError

__all__ = ["merge_conv_state", "merge_ssm_state", "split_conv_state", "split_ssm_state"]


def split_conv_state(
    state: Tensor, ranks: int, *, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int
) -> list[Tensor]:
    """The conv state of each rank.

    Args:
        state: ``[..., D, W-1]`` with D = 2*H*K + HV*V channels in the order q, k, v; any dtype and device.
        ranks: must divide H and HV.
        num_k_heads, num_v_heads, head_k_dim, head_v_dim: H, HV, K, V of all ranks together.

    Returns:
        ``ranks`` new contiguous tensors ``[..., D/ranks, W-1]``.

    Raises:
        GdnValueError: the channels are not those of the heads, or the ranks do not divide them.
    """
    op = "split_conv_state"
    _check_ranks(op, ranks, num_k_heads=num_k_heads, num_v_heads=num_v_heads)
    parts = _conv_parts(num_k_heads, num_v_heads, head_k_dim, head_v_dim)
    if state.dim() < 2 or state.shape[-2] != sum(parts):
        raise GdnValueError(f"{op}: state must be [..., {sum(parts)}, W-1]; got {list(state.shape)}", op, "state")
    shards = zip(*(part.chunk(ranks, dim=-2) for part in state.split(parts, dim=-2)), strict=True)
    return [torch.cat(shard, dim=-2) for shard in shards]


def merge_conv_state(
    shards: Sequence[Tensor], *, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int
) -> Tensor:
    """What ``split_conv_state`` splits into ``shards``, which are in the order of their ranks; heads as there.

    Returns:
        ``[..., D, W-1]`` contiguous.

    Raises:
        GdnValueError: as ``split_conv_state``, or the shards have different shapes.
    """
    op = "merge_conv_state"
    ranks = len(shards)
    _check_ranks(op, ranks, num_k_heads=num_k_heads, num_v_heads=num_v_heads)
    parts = [part // ranks for part in _conv_parts(num_k_heads, num_v_heads, head_k_dim, head_v_dim)]
    for shard in shards:
        if shard.dim() < 2 or shard.shape[-2] != sum(parts) or shard.shape != shards[0].shape:
            raise GdnValueError(
                f"{op}: shards must be {ranks} of [..., {sum(parts)}, W-1]; got {[list(s.shape) for s in shards]}",
                op,
                "shards",
            )
    merged = zip(*(shard.split(parts, dim=-2) for shard in shards), strict=True)
    return torch.cat([torch.cat(part, dim=-2) for part in merged], dim=-2)


def split_ssm_state(state: Tensor, ranks: int) -> list[Tensor]:
    """The SSM state of each rank.

    Args:
        state: ``[..., HV, V, K]``; any dtype and device.
        ranks: must divide HV.

    Returns:
        ``ranks`` new contiguous tensors ``[..., HV/ranks, V, K]``.

    Raises:
        GdnValueError: the ranks do not divide the heads.
    """
    op = "split_ssm_state"
    if state.dim() < 3:
        raise GdnValueError(f"{op}: state must be [..., HV, V, K]; got {list(state.shape)}", op, "state")
    _check_ranks(op, ranks, num_v_heads=state.shape[-3])
    return [shard.clone(memory_format=torch.contiguous_format) for shard in state.chunk(ranks, dim=-3)]


def merge_ssm_state(shards: Sequence[Tensor]) -> Tensor:
    """What ``split_ssm_state`` splits into ``shards``, which are in the order of their ranks.

    Returns:
        ``[..., HV, V, K]`` contiguous.

    Raises:
        GdnValueError: there is no shard, or they have different shapes.
    """
    op = "merge_ssm_state"
    shapes = [list(shard.shape) for shard in shards]
    if not shapes or len(shapes[0]) < 3 or any(shape != shapes[0] for shape in shapes):
        raise GdnValueError(f"{op}: shards must be of one shape [..., HV/ranks, V, K]; got {shapes}", op, "shards")
    return torch.cat(list(shards), dim=-3)


def _conv_parts(num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int) -> list[int]:
    return [num_k_heads * head_k_dim, num_k_heads * head_k_dim, num_v_heads * head_v_dim]


def _check_ranks(op: str, ranks: int, **heads: int) -> None:
    for name, count in heads.items():
        if ranks < 1 or count % ranks:
            raise GdnValueError(f"{op}: ranks must divide {name} = {count}; got {ranks}", op, "ranks")
