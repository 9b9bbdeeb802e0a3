"""Draft tokens of speculative decoding: where their record lies, and which token is whose parent."""

from __future__ import annotations

import torch
from torch import Tensor

from sglang_gdn.ops import DraftRecord


def record_in(
    states: Tensor, *, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int, conv_dtype: torch.dtype
) -> DraftRecord | None:
    """A record in the memory of the states after each draft token, which it makes unnecessary.

    Args:
        states: ``[layers, rows, T_d, HV, V, K]`` contiguous, any dtype; SGLang allots it for every server that drafts.

    Returns:
        The record of all layers, a view of ``states``; None where a token's state has less room than its record.
    """
    channels = 2 * num_k_heads * head_k_dim + num_v_heads * head_v_dim
    x_words = -(-channels * conv_dtype.itemsize // 4)
    sizes = [num_k_heads * head_k_dim, num_v_heads * head_v_dim, x_words, num_v_heads]
    words = states.view(*states.shape[:3], -1).view(torch.float32)
    if sum(sizes) > words.shape[-1]:
        return None
    k, d, x, g = words[..., : sum(sizes)].split(sizes, dim=-1)
    return DraftRecord(
        x.view(conv_dtype)[..., :channels],
        k.unflatten(-1, (num_k_heads, head_k_dim)),
        d.unflatten(-1, (num_v_heads, head_v_dim)),
        g,
    )


def parents_of(first_child: Tensor, next_sibling: Tensor) -> Tensor:
    """Parent of each token of draft trees.

    Args:
        first_child, next_sibling: ``[N, T_d]`` integer, an index into the row or -1 for none.

    Returns:
        ``[N, T_d]`` int64; -1 for the root.
    """
    tokens = first_child.shape[1]
    own = torch.arange(tokens, device=first_child.device).expand_as(first_child)
    nowhere = torch.full_like(first_child, tokens)

    def inverted(links: Tensor, unlinked: Tensor) -> Tensor:
        padded = torch.cat([unlinked, unlinked[:, :1]], dim=1)
        return padded.scatter(1, torch.where(links < 0, nowhere, links).long(), own)[:, :tokens]

    eldest = inverted(next_sibling, own)
    for _ in range((tokens - 1).bit_length()):
        eldest = eldest.gather(1, eldest)
    return inverted(first_child, torch.full_like(own, -1)).gather(1, eldest)
