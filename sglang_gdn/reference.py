"""The definition of the operators, one token after another in float64.

Written to be read and to judge kernels: no chunks, no padding, no identities. Every function handles one sequence;
pools, slots and batches are the caller's. Notation as in ``sglang_gdn.ops``: L tokens, H key heads, HV value heads,
K and V head sizes, D conv channels, W conv width. Inputs may have any dtype; results are float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

L2NORM_EPS = 1e-6


def causal_conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None, window: Tensor, silu: bool = True
) -> tuple[Tensor, Tensor]:
    """Depthwise causal convolution.

    Args:
        x: ``[L, D]``.
        weight: ``[D, W]``.
        bias: ``[D]`` or None.
        window: ``[D, W-1]``, the tokens before ``x``, oldest first.

    Returns:
        ``y [L, D]`` and the window after the last token.
    """
    window, weight = window.double(), weight.double()
    y = torch.empty(x.shape, dtype=torch.float64)
    for t, token in enumerate(x.double()):
        taps = torch.cat([window, token.unsqueeze(1)], dim=1)
        y[t] = (weight * taps).sum(dim=1)
        if bias is not None:
            y[t] += bias.double()
        window = taps[:, 1:]
    return (y * y.sigmoid() if silu else y), window


def gates(A_log: Tensor, a: Tensor, b: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """Log gate ``g = -exp(A_log) * softplus(a + dt_bias)`` and ``beta = sigmoid(b)``, shapes of ``a`` and ``b``."""
    x = a.double() + dt_bias.double()
    softplus = torch.where(x > 20, x, x.clamp(max=20).exp().log1p())
    return -A_log.double().exp() * softplus, b.double().sigmoid()


def l2norm(x: Tensor) -> Tensor:
    """``x / sqrt(sum(x^2) + 1e-6)`` over the last dimension."""
    x = x.double()
    return x / (x.square().sum(dim=-1, keepdim=True) + L2NORM_EPS).sqrt()


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """The recurrence ``S = exp(g) S;  S += beta (v - S k) k^T;  o = scale S q``.

    Args:
        q, k: ``[L, H, K]``; value head h reads key head ``h // (HV // H)``.
        v: ``[L, HV, V]``.
        g, beta: ``[L, HV]``.
        state: ``[HV, V, K]`` before the first token.

    Returns:
        ``o [L, HV, V]`` and the state after the last token.
    """
    ratio = v.shape[1] // q.shape[1]
    q, k = (x.double().repeat_interleave(ratio, dim=1) for x in (q, k))
    v, g, beta, state = (x.double() for x in (v, g, beta, state))
    o = torch.empty(v.shape, dtype=torch.float64)
    for t in range(q.shape[0]):
        state = g[t].exp()[:, None, None] * state
        predicted = (state @ k[t].unsqueeze(-1)).squeeze(-1)
        delta = beta[t].unsqueeze(-1) * (v[t] - predicted)
        state = state + delta.unsqueeze(-1) * k[t].unsqueeze(-2)
        o[t] = scale * (state @ q[t].unsqueeze(-1)).squeeze(-1)
    return o, state
