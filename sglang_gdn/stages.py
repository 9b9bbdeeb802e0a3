"""The chunked gated delta rule in its seven classical stages, one readable call each.

For looking into a kernel: every stage takes what the ones before it return, so an intermediate of an engine can be
compared, or replaced, on its own. Any device and dtype of torch; whatever the inputs' dtype, results are float64. The
formulas are those of "Gated Delta Networks" (Yang, Kautz, Hatamizadeh, 2024), section 3, with the names that its
published kernels use.

Notation as in ``sglang_gdn.ops``: T tokens of N rows behind each other, row n from ``cu_seqlens[n]`` to
``cu_seqlens[n + 1]``; H key heads, HV value heads, value head h reads key head ``h // (HV // H)``; K and V head sizes.
A row is cut into chunks of C = 64 tokens from its first one on; M chunks of all rows, row after row. Past the end of a
chunk ``[M, HV, C]`` tensors repeat its last token, all others hold zeros. Shapes that do not fit raise errors of torch.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

CHUNK = 64
STAGES = ("cumsum", "transpose", "scaled_dot_kkt", "solve_tril", "wy_fast", "chunk_h", "chunk_o")


def chunk_bounds(cu_seqlens: Tensor) -> list[tuple[int, int, int]]:
    """Row, first token and end of every chunk; rows without tokens have none."""
    return [
        (row, first, min(first + CHUNK, end))
        for row, (begin, end) in enumerate(pairwise(cu_seqlens.tolist()))
        for first in range(begin, end, CHUNK)
    ]


def _by_chunk(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """``[T, HV, ...]`` to ``[M, HV, C, ...]``."""
    bounds = chunk_bounds(cu_seqlens)
    padded = x.new_zeros(len(bounds), CHUNK, *x.shape[1:], dtype=torch.float64)
    for chunk, (_, first, end) in enumerate(bounds):
        padded[chunk, : end - first] = x[first:end]
    return padded.transpose(1, 2)


def _by_token(x: Tensor, cu_seqlens: Tensor, tokens: int) -> Tensor:
    """``[M, HV, C, ...]`` to ``[T, HV, ...]``; zeros for tokens of no row."""
    out = x.new_zeros(tokens, x.shape[1], *x.shape[3:])
    for chunk, (_, first, end) in enumerate(chunk_bounds(cu_seqlens)):
        out[first:end] = x[chunk].transpose(0, 1)[: end - first]
    return out


def _for_value_heads(x: Tensor, value_heads: int) -> Tensor:
    return x.double().repeat_interleave(value_heads // x.shape[1], dim=1)


def cumsum(g: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Inclusive sums ``G`` of the log gates ``g [T, HV]`` within each chunk: ``[T, HV]``."""
    return _by_token(_by_chunk(g, cu_seqlens).cumsum(2), cu_seqlens, g.shape[0])


def transpose(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Values of tokens ``x [T, HV]`` (gates, betas) by head and chunk: ``[M, HV, C]``."""
    by_chunk = _by_chunk(x, cu_seqlens)
    for chunk, (_, first, end) in enumerate(chunk_bounds(cu_seqlens)):
        by_chunk[chunk, :, end - first :] = x[end - 1].double()[:, None]
    return by_chunk


def scaled_dot_kkt(k: Tensor, gates: Tensor, beta: Tensor, cu_seqlens: Tensor) -> Tensor:
    """``L_ij = beta_i exp(G_i - G_j) k_i . k_j`` below the diagonal, zero elsewhere.

    Args:
        k: ``[T, H, K]``, normalised if the model does.
        gates, beta: ``[M, HV, C]``, of :func:`transpose`.

    Returns:
        ``[M, HV, C, C]``.
    """
    keys = _by_chunk(_for_value_heads(k, gates.shape[1]), cu_seqlens)
    decay = (gates[..., :, None] - gates[..., None, :]).tril().exp()
    return (beta[..., None] * decay * (keys @ keys.mT)).tril(-1)


def solve_tril(lower: Tensor) -> Tensor:
    """``A = (I + L)^-1`` of ``L [M, HV, C, C]``, by substitution."""
    identity = torch.eye(CHUNK, dtype=torch.float64, device=lower.device).expand_as(lower)
    return torch.linalg.solve_triangular(lower + identity, identity, upper=False, unitriangular=True)


def wy_fast(
    k: Tensor, v: Tensor, gates: Tensor, beta: Tensor, inverse: Tensor, cu_seqlens: Tensor
) -> tuple[Tensor, Tensor]:
    """The WY representation of a chunk: ``w = A (beta e^G k)`` and ``u = A (beta v)``.

    Args:
        k: ``[T, H, K]``.
        v: ``[T, HV, V]``.
        gates, beta: ``[M, HV, C]``.
        inverse: ``A [M, HV, C, C]``.

    Returns:
        ``w [T, HV, K]`` and ``u [T, HV, V]``.
    """
    keys = _by_chunk(_for_value_heads(k, gates.shape[1]), cu_seqlens)
    w = inverse @ ((beta * gates.exp())[..., None] * keys)
    u = inverse @ (beta[..., None] * _by_chunk(v, cu_seqlens))
    return _by_token(w, cu_seqlens, k.shape[0]), _by_token(u, cu_seqlens, v.shape[0])


def chunk_h(
    k: Tensor, w: Tensor, u: Tensor, gates: Tensor, initial_state: Tensor, cu_seqlens: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """States from chunk to chunk: ``v_new = u - w S^T``, then ``S = e^{G_C} S + sum_j e^{G_C - G_j} v_new_j k_j^T``.

    Args:
        k: ``[T, H, K]``.
        w, u: of :func:`wy_fast`.
        gates: ``[M, HV, C]``.
        initial_state: ``[N, HV, V, K]``.

    Returns:
        ``h [M, HV, V, K]``, the states before every chunk, ``v_new [T, HV, V]`` and ``final_state [N, HV, V, K]``.
    """
    tokens, state = u.shape[0], initial_state.double().clone()
    keys = _by_chunk(_for_value_heads(k, gates.shape[1]), cu_seqlens)
    w, u = _by_chunk(w, cu_seqlens), _by_chunk(u, cu_seqlens)
    h, v_new = state.new_empty(len(u), *state.shape[1:]), torch.empty_like(u)
    for chunk, (row, _, _) in enumerate(chunk_bounds(cu_seqlens)):
        h[chunk] = state[row]
        v_new[chunk] = u[chunk] - w[chunk] @ state[row].mT
        last = gates[chunk, :, -1:]
        left = (last - gates[chunk]).exp()[..., None] * v_new[chunk]
        state[row] = last.exp()[..., None] * state[row] + left.mT @ keys[chunk]
    return h, _by_token(v_new, cu_seqlens, tokens), state


def chunk_o(q: Tensor, k: Tensor, v_new: Tensor, h: Tensor, gates: Tensor, scale: float, cu_seqlens: Tensor) -> Tensor:
    """``o_i = scale (e^{G_i} q_i S^T + sum_{j <= i} e^{G_i - G_j} (q_i . k_j) v_new_j)``: ``[T, HV, V]``.

    Args:
        q, k: ``[T, H, K]``.
        v_new, h: of :func:`chunk_h`.
        gates: ``[M, HV, C]``.
    """
    heads = gates.shape[1]
    queries, keys = (_by_chunk(_for_value_heads(x, heads), cu_seqlens) for x in (q, k))
    decay = (gates[..., :, None] - gates[..., None, :]).tril().exp()
    from_state = gates.exp()[..., None] * (queries @ h.mT)
    inside = (decay * (queries @ keys.mT)).tril() @ _by_chunk(v_new, cu_seqlens)
    return _by_token(scale * (from_state + inside), cu_seqlens, q.shape[0])


def run(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor, cu_seqlens: Tensor, *,
    scale: float | None = None, stop_after: str = "chunk_o",
) -> dict[str, Tensor]:  # fmt: skip
    """The stages in order, up to and with ``stop_after``.

    Args:
        q, k: ``[T, H, K]``, normalised if the model does.
        v: ``[T, HV, V]``.
        g, beta: ``[T, HV]``, log gates and betas.
        initial_state: ``[N, HV, V, K]``.
        cu_seqlens: ``[N + 1]``.
        scale: of q; ``K ** -0.5`` by default.
        stop_after: one of :data:`STAGES`.

    Returns:
        What the stages returned, by name: ``G``, ``gates`` and ``beta``, ``lower``, ``inverse``, ``w`` and ``u``,
        ``h``, ``v_new`` and ``final_state``, ``o``.

    Raises:
        ValueError: ``stop_after`` is no stage.
    """
    if stop_after not in STAGES:
        raise ValueError(f"stages: stop_after must be one of {', '.join(STAGES)}; got {stop_after!r}")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    found: dict[str, Tensor] = {}
    for stage in STAGES[: STAGES.index(stop_after) + 1]:
        match stage:
            case "cumsum":
                found["G"] = cumsum(g, cu_seqlens)
            case "transpose":
                found["gates"], found["beta"] = (transpose(x, cu_seqlens) for x in (found["G"], beta))
            case "scaled_dot_kkt":
                found["lower"] = scaled_dot_kkt(k, found["gates"], found["beta"], cu_seqlens)
            case "solve_tril":
                found["inverse"] = solve_tril(found["lower"])
            case "wy_fast":
                found["w"], found["u"] = wy_fast(k, v, found["gates"], found["beta"], found["inverse"], cu_seqlens)
            case "chunk_h":
                found["h"], found["v_new"], found["final_state"] = chunk_h(
                    k, found["w"], found["u"], found["gates"], initial_state, cu_seqlens
                )
            case "chunk_o":
                found["o"] = chunk_o(q, k, found["v_new"], found["h"], found["gates"], scale, cu_seqlens)
    return found
