"""The definition of a Gated DeltaNet layer in float64, one token after another.

Every function reads its inputs as they are strided, starts a row from the values its slot stores, and returns fresh
float64 tensors on the CPU. Nothing is written in place or padded to a chunk, and only what a layer stores is rounded:
the output of the convolution, in the activation dtype, and the state after a draft token, in the dtype of the pool, so
that a token finds what decoding one by one would have left (``rounded=False``: states that are not stored). Pools come
back whole, with the slots that no row names unchanged. Shapes are those of ``sglang_gdn.ops`` without the batch
dimension of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

CHUNK = 64


def f64(x: Tensor) -> Tensor:
    return x.detach().cpu().double()


def row_bounds(query_start_loc: Tensor) -> list[tuple[int, int]]:
    return list(pairwise(query_start_loc.tolist()))


def resumes(has_initial_state: Tensor | None, n: int) -> bool:
    return has_initial_state is None or bool(has_initial_state[n])


def l2norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def gating(A_log: Tensor, a: Tensor, b: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    x = f64(a) + f64(dt_bias)
    softplus = torch.where(x > 20, x, torch.log1p(torch.exp(x.clamp(max=20))))
    return -torch.exp(f64(A_log)) * softplus, torch.sigmoid(f64(b))


def conv_token(window: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> tuple[Tensor, Tensor]:
    """window [D, W-1] oldest first, x [D] -> the window after x, y [D]."""
    taps = torch.cat([window, x[:, None]], dim=1)
    y = (taps * weight).sum(1)
    if bias is not None:
        y = y + bias
    return taps[:, 1:], y * torch.sigmoid(y) if silu else y


def causal_conv1d(
    x, weight, bias=None, *, query_start_loc, conv_pool=None, cache_indices=None, has_initial_state=None,
    track_slots=None, track_lens=None, silu=True,
):  # fmt: skip
    """-> y [T, D], the pool afterwards (None without a pool)."""
    x, weight, bias = f64(x), f64(weight), None if bias is None else f64(bias)
    before = None if conv_pool is None else f64(conv_pool)
    after = None if before is None else before.clone()
    y = torch.zeros_like(x)
    for n, (begin, end) in enumerate(row_bounds(query_start_loc)):
        slot = None if before is None else int(cache_indices[n])
        if slot == -1:
            continue
        stored = slot is not None and resumes(has_initial_state, n)
        windows = [before[slot] if stored else x.new_zeros(x.shape[1], weight.shape[1] - 1)]
        for t in range(begin, end):
            window, y[t] = conv_token(windows[-1], x[t], weight, bias, silu)
            windows.append(window)
        if slot is not None:
            after[slot] = windows[-1]
        if track_slots is not None and int(track_slots[n]) >= 0:
            after[int(track_slots[n])] = windows[int(track_lens[n])]
    return y, after


def causal_conv1d_update(x, weight, bias=None, *, conv_pool, cache_indices, parent_tokens=None, commit=True, silu=True):
    """x [N, T_d, D] -> y, the pool afterwards, the window after each token [N, T_d, D, W-1] (NaN: slot -1)."""
    x, weight, bias = f64(x), f64(weight), None if bias is None else f64(bias)
    before = f64(conv_pool)
    after, y = before.clone(), torch.zeros_like(x)
    windows = x.new_full((*x.shape[:2], *before.shape[1:]), torch.nan)
    for n, slot in enumerate(cache_indices.tolist()):
        if slot == -1:
            continue
        for t in range(x.shape[1]):
            parent = t - 1 if parent_tokens is None else int(parent_tokens[n, t])
            window = before[slot] if parent < 0 else windows[n, parent]
            windows[n, t], y[n, t] = conv_token(window, x[n, t], weight, bias, silu)
        if commit:
            after[slot] = windows[n, -1]
    return y, after, windows


def delta_token(S, q, k, v, g, beta, scale):
    """S [HV, V, K]; q, k [HV, K]; v [HV, V]; g, beta [HV] -> S after the token, o [HV, V]."""
    S = torch.exp(g)[:, None, None] * S
    d = beta[:, None] * (v - (S @ k[:, :, None]).squeeze(-1))
    S = S + d[:, :, None] * k[:, None, :]
    return S, scale * (S @ q[:, :, None]).squeeze(-1)


def heads_of_values(x: Tensor, value_heads: int, norm: bool) -> Tensor:
    """[..., H, K] -> [..., HV, K]: value head h reads key head h // r."""
    x = l2norm(f64(x)) if norm else f64(x)
    return x[..., torch.arange(value_heads) // (value_heads // x.shape[-2]), :]


@dataclass
class Prefill:
    o: Tensor  # [T, HV, V]
    pool: Tensor  # [slots, HV, V, K]
    boundaries: list[Tensor | None]  # row n: [chunks + 1, HV, V, K], before each chunk, then final; None: slot -1


def chunk_gated_delta_rule(
    q, k, v, g, beta, *, ssm_pool, query_start_loc, cache_indices, has_initial_state=None, scale=None, norm=False
) -> Prefill:
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k = (heads_of_values(x, v.shape[-2], norm) for x in (q, k))
    v, g, beta, before = f64(v), f64(g), f64(beta), f64(ssm_pool)
    after, o, boundaries = before.clone(), torch.zeros_like(v), []
    for n, (begin, end) in enumerate(row_bounds(query_start_loc)):
        slot = int(cache_indices[n])
        if slot == -1:
            boundaries.append(None)
            continue
        S = before[slot] if resumes(has_initial_state, n) else torch.zeros_like(before[slot])
        states = []
        for t in range(begin, end):
            if (t - begin) % CHUNK == 0:
                states.append(S)
            S, o[t] = delta_token(S, q[t], k[t], v[t], g[t], beta[t], scale)
        after[slot] = S
        boundaries.append(torch.stack([*states, S]))
    return Prefill(o, after, boundaries)


def delta_rule_update(
    A_log, a, dt_bias, q, k, v, b, *, ssm_pool, cache_indices, scale=None, norm=True, parent_tokens=None, commit=True,
    rounded=True,
):  # fmt: skip
    """q [N, T_d, H, K], ... -> o, the pool afterwards, the state after each token [N, T_d, HV, V, K] (NaN: slot -1)."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    g, beta = gating(A_log, a, b, dt_bias)
    q, k = (heads_of_values(x, v.shape[-2], norm) for x in (q, k))
    v, before = f64(v), f64(ssm_pool)
    after, o = before.clone(), torch.zeros_like(v)
    states = v.new_full((*v.shape[:2], *before.shape[1:]), torch.nan)
    for n, slot in enumerate(cache_indices.tolist()):
        if slot == -1:
            continue
        for t in range(v.shape[1]):
            parent = t - 1 if parent_tokens is None else int(parent_tokens[n, t])
            S = before[slot] if parent < 0 else states[n, parent]
            S, o[n, t] = delta_token(S, q[n, t], k[n, t], v[n, t], g[n, t], beta[n, t], scale)
            states[n, t] = S.to(ssm_pool.dtype) if rounded else S
        if commit:
            after[slot] = states[n, -1]
    return o, after, states


def split_heads(y: Tensor, layer) -> tuple[Tensor, Tensor, Tensor]:
    """[..., D] -> q, k [..., H, K], v [..., HV, V]."""
    key_dim = layer.H * layer.K
    q, k, v = y.split([key_dim, key_dim, layer.HV * layer.V], dim=-1)
    q, k = (x.unflatten(-1, (layer.H, layer.K)) for x in (q, k))
    return q, k, v.unflatten(-1, (layer.HV, layer.V))


def gdn_frontend(layer, mixed_qkv, a, b, *, conv_pool, norm=True, **rows):
    """-> (q, k, v, g, beta), the conv pool afterwards. ``layer`` has the weights and head counts (``cases.Layer``)."""
    y, conv_after = causal_conv1d(
        mixed_qkv, layer.conv_weight, layer.conv_bias, conv_pool=conv_pool, silu=layer.activation is not None, **rows
    )
    q, k, v = (f64(x) for x in split_heads(y.to(mixed_qkv.dtype), layer))
    if norm:
        q, k = l2norm(q), l2norm(k)
    return (q, k, v, *gating(layer.A_log, a, b, layer.dt_bias)), conv_after


def gdn_prefill(layer, mixed_qkv, a, b, *, conv_pool, ssm_pool, track_slots=None, track_lens=None, **rows):
    """-> Prefill, the conv pool afterwards."""
    tensors, conv_after = gdn_frontend(
        layer, mixed_qkv, a, b, conv_pool=conv_pool, track_slots=track_slots, track_lens=track_lens, **rows
    )
    return chunk_gated_delta_rule(*tensors, ssm_pool=ssm_pool, **rows), conv_after


def gdn_update(
    layer, mixed_qkv, a, b, *, conv_pool, ssm_pool, cache_indices, parent_tokens=None, commit=True, rounded=True
):
    """mixed_qkv [N, T_d, D] -> o, conv pool and ssm pool afterwards, windows and states after each token."""
    rows = {"cache_indices": cache_indices, "parent_tokens": parent_tokens, "commit": commit}
    y, conv_after, windows = causal_conv1d_update(
        mixed_qkv, layer.conv_weight, layer.conv_bias, conv_pool=conv_pool, silu=layer.activation is not None, **rows
    )
    q, k, v = split_heads(y.to(mixed_qkv.dtype), layer)
    o, ssm_after, states = delta_rule_update(
        layer.A_log, a, layer.dt_bias, q, k, v, b, ssm_pool=ssm_pool, rounded=rounded, **rows
    )
    return o, conv_after, ssm_after, windows, states


def gated_norm(o: Tensor, z: Tensor, weight: Tensor, eps: float, activation: str) -> Tensor:
    """o, z [.., V]: RMSNorm times the weight, gated by z."""
    o, z, weight = f64(o), f64(z), f64(weight)
    gate = torch.sigmoid(z) * (z if activation == "silu" else 1)
    return o / (o.square().mean(-1, keepdim=True) + eps).sqrt() * weight * gate


def gdn_commit(pool: Tensor, intermediate: Tensor, cache_indices, intermediate_state_indices, last_steps) -> Tensor:
    """One pool and its intermediate buffer, in their stored dtype -> the pool afterwards."""
    after = pool.detach().cpu().clone()
    rows = zip(cache_indices.tolist(), intermediate_state_indices.tolist(), last_steps.tolist(), strict=True)
    for slot, source, step in rows:
        if slot >= 0 and source >= 0 and 0 <= step < intermediate.shape[1]:
            after[slot] = intermediate[source, step].cpu()
    return after
