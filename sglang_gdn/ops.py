"""The operators, on torch tensors.

Notation: N sequences (rows), T packed tokens, H key heads, HV value heads (HV = r * H), K and V head sizes,
D = 2*H*K + HV*V conv channels, W conv width, T_d draft tokens a row, C = 64 tokens a chunk.

Shared by all operators:

* **Pools** are updated in place, by slot. ``conv_pool`` is ``[slots, D, W-1]`` (raw inputs, oldest first) and
  ``ssm_pool`` is ``[slots, HV, V, K]`` (K contiguous); the slot pitch ``stride(0)`` is free, inner strides are dense.
* ``cache_indices[n]`` is the slot of row n, int32 or int64. -1 touches no state and yields zeros. Slots of live rows
  are unique and below ``slots``; that is the caller's duty, because checking would read device memory.
* ``query_start_loc`` is ``[N+1]``, int32 or int64, non-decreasing from 0; output rows at and after
  ``query_start_loc[N]`` are zero. Rows are packed; a batch padded to the left or right is not supported.
* Value head h reads key head ``h // r``.
* Gates, beta and state accumulation are float32; every stored value is rounded once. The state after a token of a
  multi-token update is a stored value, so that update equals the same tokens in one call each (but for draft tokens
  kept as a ``DraftRecord``, whose states are not stored).
* Nothing reads device memory on the host, and work is ordered on the current stream.

Raises, for every operator, before any launch and with no state touched: ``GdnValueError`` (shape, stride, device,
value), ``GdnTypeError`` (dtype), ``GdnUnsupportedError`` (an option that is not implemented, or inputs that require a
gradient), ``GdnNoKernelError`` (no kernel is built for this specialization).

Formula (per token and value head; S is ``[V, K]``)::

    g = -exp(A_log) * softplus(a + dt_bias)         beta = sigmoid(b)
    S = exp(g) * S;  d = beta * (v - S k);  S = S + d k^T;  o = scale * S q

Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024, with the gate
parametrisation of Qwen3-Next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sglang_gdn import _C, context_parallel
from sglang_gdn.errors import GdnNoKernelError, GdnTypeError, GdnUnsupportedError, GdnValueError
from sglang_gdn.stats import count_call, fallback

CHUNK_SIZE = context_parallel.CHUNK_SIZE

__all__ = [
    "CHUNK_SIZE",
    "DraftRecord",
    "causal_conv1d",
    "causal_conv1d_update",
    "chunk_gated_delta_rule",
    "fused_sigmoid_gating_delta_rule_update",
    "gdn_commit",
    "gdn_decode",
    "gdn_fold",
    "gdn_frontend",
    "gdn_gating",
    "gdn_prefill",
    "gdn_verify",
]


class DraftRecord(NamedTuple):
    """What ``gdn_verify`` keeps of draft tokens, so that ``gdn_fold`` can commit any of them.

    Row n belongs to row n of the batch; there may be more rows than the batch has. For all layers of a model, put a
    dimension for the layer in front of each tensor: ``gdn_verify`` takes one layer (``record.layer(i)``), ``gdn_fold``
    all of them.

    Attributes:
        x: ``[rows, T_d, D]`` dtype of ``conv_pool``: inputs of the convolution; unit stride on D.
        k: ``[rows, T_d, H, K]`` float32: normalised keys; the last two dimensions are dense.
        d: ``[rows, T_d, HV, V]`` float32: ``d`` of the formula; the last two dimensions are dense.
        g: ``[rows, T_d, HV]`` float32: log gates; unit stride on HV.
    """

    x: Tensor
    k: Tensor
    d: Tensor
    g: Tensor

    @classmethod
    def empty(
        cls, *shape: int, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int, conv_dtype: torch.dtype,
        device: torch.device | str,
    ) -> DraftRecord:  # fmt: skip
        """Uninitialised, for ``shape`` = ``rows, T_d`` or ``layers, rows, T_d``."""
        channels = 2 * num_k_heads * head_k_dim + num_v_heads * head_v_dim

        def floats(*sizes: int) -> Tensor:
            return torch.empty((*shape, *sizes), dtype=torch.float32, device=device)

        return cls(
            torch.empty((*shape, channels), dtype=conv_dtype, device=device),
            floats(num_k_heads, head_k_dim),
            floats(num_v_heads, head_v_dim),
            floats(num_v_heads),
        )

    def layer(self, index: int) -> DraftRecord:
        return DraftRecord(*(part[index] for part in self))


_NO_RECORD: tuple[Tensor | None, ...] = (None, None, None, None)


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    query_start_loc: Tensor,
    conv_pool: Tensor | None = None,
    cache_indices: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    track_slots: Tensor | None = None,
    track_lens: Tensor | None = None,
    activation: str | None = "silu",
    out: Tensor | None = None,
) -> Tensor:
    """Depthwise causal convolution over packed sequences, reading and writing conv states by slot.

    ``y[t, c] = act(bias[c] + sum_j weight[c, j] * x[t - (W-1) + j, c])``; the W-1 tokens before a row come from its
    slot, or are zero where ``has_initial_state`` is False (whatever the slot holds).

    Args:
        x: ``[T, D]`` float32, bfloat16 or float16; unit stride on D, any row pitch.
        weight: ``[D, W]`` dtype of ``x`` or float32; W in 2..4.
        bias: ``[D]`` dtype of ``x`` or float32.
        query_start_loc: ``[N+1]``.
        conv_pool: ``[slots, D, W-1]`` float32, bfloat16 or float16. Without it every row starts from zeros.
        cache_indices: ``[N]``; required with ``conv_pool``.
        has_initial_state: ``[N]`` bool; default all True.
        track_slots: ``[N]`` int32/int64; rows with a slot >= 0 also store the window that ends after
            ``track_lens[n]`` tokens of the row to that slot of ``conv_pool``.
        track_lens: ``[N]`` int32/int64, in tokens, within the row.
        activation: ``"silu"``, ``"swish"`` or None.
        out: ``[T, D]`` contiguous, dtype of ``x``; allocated if not given.

    Returns:
        ``[T, D]`` dtype of ``x``.

    Writes in place: the named slots of ``conv_pool``.
    """
    op = "causal_conv1d"
    _check_inputs(op, ("bias", bias), ("out", out), x=x, weight=weight)
    silu = _is_silu(op, activation)
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _C.causal_conv1d(
        _stream(x), x, weight, bias, conv_pool, query_start_loc, cache_indices, has_initial_state, track_slots,
        track_lens, out, silu,
    )  # fmt: skip
    count_call(op, x.device.type)
    return out


def causal_conv1d_update(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    conv_pool: Tensor,
    cache_indices: Tensor,
    activation: str | None = "silu",
    parent_tokens: Tensor | None = None,
    intermediate_conv_window: Tensor | None = None,
    intermediate_state_indices: Tensor | None = None,
    disable_state_update: bool = False,
    cache_seqlens: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The convolution of ``causal_conv1d`` for one or a few new tokens a row.

    Args:
        x: ``[N, D]`` or ``[N, T_d, D]``; unit stride on D.
        weight, bias, activation: as in ``causal_conv1d``.
        conv_pool: ``[slots, D, W-1]``.
        cache_indices: ``[N]``.
        parent_tokens: ``[N, T_d]`` int32/int64 for draft trees: index of the parent token, which must come earlier in
            the row; -1 for the committed state. Default: a chain. Requires ``disable_state_update``.
        intermediate_conv_window: ``[spec_slots, T_d, D, W-1]`` dtype of ``conv_pool``; receives the window after each
            token at row ``intermediate_state_indices[n]``. Strides are free except the last, and windows of one row may
            overlap in memory (then no tree).
        intermediate_state_indices: ``[N]``; -1 stores nothing.
        disable_state_update: leave ``conv_pool`` alone.
        cache_seqlens: not supported (circular windows); must be None.
        out: shape of ``x``, contiguous; allocated if not given.

    Returns:
        Shape and dtype of ``x``.

    Writes in place: the named slots of ``conv_pool`` unless ``disable_state_update``; ``intermediate_conv_window``.
    """
    op = "causal_conv1d_update"
    _check_inputs(op, ("bias", bias), ("out", out), x=x, weight=weight)
    _refuse_option(op, "cache_seqlens", cache_seqlens)
    _check_flags(op, disable_state_update=disable_state_update)
    silu = _is_silu(op, activation)
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, out_rows = (x, out) if x.dim() == 3 else (_with_token_dim(x), _with_token_dim(out))
    _C.causal_conv1d_update(
        _stream(x), rows, weight, bias, conv_pool, cache_indices, parent_tokens, intermediate_conv_window,
        intermediate_state_indices, out_rows, silu, disable_state_update,
    )  # fmt: skip
    count_call(op, x.device.type)
    return out


def gdn_gating(A_log: Tensor, a: Tensor, b: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """Log gates and write strengths: ``g = -exp(A_log) * softplus(a + dt_bias)`` and ``beta = sigmoid(b)``.

    softplus has beta 1 and is linear above 20. Neither result is ever rounded to the dtype of ``a`` or ``b``.

    Args:
        A_log: ``[HV]`` float32, bfloat16 or float16.
        a, b: ``[T, HV]`` float32, bfloat16 or float16; unit stride on HV, any row pitch.
        dt_bias: ``[HV]`` float32, bfloat16 or float16.

    Returns:
        ``(g, beta)``, each ``[1, T, HV]`` float32; ``g <= 0``, natural log.
    """
    op = "gdn_gating"
    _check_inputs(op, A_log=A_log, a=a, b=b, dt_bias=dt_bias)
    g = torch.empty(a.shape, dtype=torch.float32, device=a.device)
    beta = torch.empty_like(g)
    _C.gdn_gating(_stream(a), A_log, a, b, dt_bias, g, beta)
    count_call(op, a.device.type)
    return g.unsqueeze(0), beta.unsqueeze(0)


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    use_qk_l2norm_in_kernel: bool = False,
    state_layout: str = "kv",
    head_first: bool = False,
    ssm_pool: Tensor | None = None,
    cache_indices: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    track_state: Tensor | None = None,
    track_chunk_idx: Tensor | None = None,
    output_h: bool = False,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor | None] | tuple[Tensor, Tensor | None, Tensor]:
    """Chunked (WY) prefill of the gated delta rule.

    Two forms. **Dense**: ``initial_state`` in, ``final_state`` out, as in flash-linear-attention. **Pool**: pass
    ``ssm_pool`` and ``cache_indices``; states are read and written in place by slot; ``initial_state`` must be None.

    Args:
        q, k: ``[B, T, H, K]`` (B = 1 with ``cu_seqlens``) or ``[T, H, K]``; float32, bfloat16 or float16; unit stride
            on K.
        v: ``[B, T, HV, V]`` or ``[T, HV, V]``, dtype of ``q``; unit stride on V.
        g: ``[B, T, HV]`` or ``[T, HV]`` float32, log gate (<= 0).
        beta: shape of ``g``, float32.
        scale: default ``K ** -0.5``.
        initial_state: dense form only; float32, ``[N, HV, K, V]`` or ``[N, HV, V, K]`` as ``state_layout`` says.
        output_final_state: dense form only; return the final states.
        cu_seqlens: ``[N+1]`` int32/int64 offsets of packed rows; default: B rows of T tokens.
        use_qk_l2norm_in_kernel: ``q * rsqrt(sum(q^2) + 1e-6)``, the same for k.
        state_layout: ``"kv"`` (flash-linear-attention's default) or ``"vk"`` (that of the pool); dense form only.
        head_first: not supported; must be False.
        ssm_pool: ``[slots, HV, V, K]`` float32, bfloat16 or float16.
        cache_indices: ``[N]``; required with ``ssm_pool``.
        has_initial_state: ``[N]`` bool, pool form; False starts from zeros whatever the slot holds. Default all True.
        track_state: ``[N, HV, V, K]`` float32 contiguous; receives, unrounded, the state before chunk
            ``track_chunk_idx[n]`` of row n.
        track_chunk_idx: ``[N]`` int32/int64, in chunks of 64 tokens from the start of the row; -1 = none. The index
            ``ceil(L_n / 64)`` is the final state.
        output_h: also return the state before every chunk.
        out: ``[B, T, HV, V]`` or ``[T, HV, V]`` contiguous, dtype of ``v``; allocated if not given.

    Returns:
        ``(o, final_state)``, or ``(o, final_state, h)`` with ``output_h``. ``o`` has the shape and dtype of ``v``;
        ``final_state`` is None in the pool form and without ``output_final_state``, else float32 in ``state_layout``;
        ``h`` is ``[1, sum_n ceil(L_n / 64), HV, V, K]`` in the pool's dtype (float32 in the dense form). On devices
        other than the CPU its length is the upper bound ``T // 64 + N``, zero-filled past the last chunk.

    Writes in place: the named slots of ``ssm_pool``; ``track_state``.
    """
    op = "chunk_gated_delta_rule"
    _check_inputs(
        op, ("initial_state", initial_state), ("ssm_pool", ssm_pool), ("cu_seqlens", cu_seqlens), ("out", out),
        q=q, k=k, v=v, g=g, beta=beta,
    )  # fmt: skip
    _check_flags(
        op, output_final_state=output_final_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        head_first=head_first, output_h=output_h,
    )  # fmt: skip
    if head_first:
        raise GdnUnsupportedError(f"{op}: head_first must be False; got True", op, "head_first")
    if state_layout not in ("kv", "vk"):
        raise GdnValueError(f"{op}: state_layout must be 'kv' or 'vk'; got {state_layout!r}", op, "state_layout")
    batch = q.shape[0] if q.dim() == 4 else 1
    tokens = q.shape[1] if q.dim() == 4 else q.shape[0]
    if cu_seqlens is None:
        cu_seqlens = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * tokens
    elif batch != 1:
        raise GdnValueError(f"{op}: q must be [1, T, H, K] with cu_seqlens; got batch {batch}", op, "q")
    rows = cu_seqlens.shape[0] - 1
    dense = ssm_pool is None
    if ssm_pool is None:
        _refuse_option(op, "cache_indices", cache_indices, "without ssm_pool")
        _refuse_option(op, "has_initial_state", has_initial_state, "without ssm_pool")
        ssm_pool = _dense_states(op, q, v, rows, initial_state, state_layout)
        cache_indices = torch.arange(rows, dtype=torch.int32, device=q.device)
    else:
        _refuse_option(op, "initial_state", initial_state, "with ssm_pool")
        if output_final_state:
            raise GdnValueError(
                f"{op}: output_final_state must be False with ssm_pool (states are written in place); got True",
                op, "output_final_state",
            )  # fmt: skip
        if cache_indices is None:
            raise GdnValueError(f"{op}: cache_indices must be given with ssm_pool; got None", op, "cache_indices")
    packed_q, packed_k, packed_v, packed_g, packed_beta = (
        _pack_batch(op, name, x) for name, x in (("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta))
    )
    if out is None:
        out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    h = _empty_chunk_states(cu_seqlens, packed_v, ssm_pool) if output_h else None
    segment_states, segment_chunks = _segments(packed_q, rows, packed_v.shape[1], packed_q.shape[2], packed_v.shape[2])
    _C.chunk_gated_delta_rule(
        _stream(q), packed_q, packed_k, packed_v, packed_g, packed_beta, ssm_pool, cu_seqlens, cache_indices,
        has_initial_state, track_state, track_chunk_idx, h, segment_states, segment_chunks,
        _pack_batch(op, "out", out), _chunk_workspace(q), _scale(op, scale, q), use_qk_l2norm_in_kernel,
        not dense or output_final_state,
    )  # fmt: skip
    count_call(op, q.device.type)
    final_state = None
    if dense and output_final_state:
        final_state = ssm_pool.transpose(-1, -2).contiguous() if state_layout == "kv" else ssm_pool
    return (out, final_state) if h is None else (out, final_state, h.unsqueeze(0))


def fused_sigmoid_gating_delta_rule_update(
    A_log: Tensor,
    a: Tensor,
    dt_bias: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    b: Tensor,
    *,
    ssm_pool: Tensor,
    cache_indices: Tensor,
    scale: float | None = None,
    use_qk_l2norm_in_kernel: bool = True,
    parent_tokens: Tensor | None = None,
    intermediate_ssm: Tensor | None = None,
    intermediate_state_indices: Tensor | None = None,
    disable_state_update: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Gates, l2norm and delta update for one or a few tokens a row, in one pass over each state.

    Args:
        A_log, dt_bias: ``[HV]``, as in ``gdn_gating``.
        a, b: ``[N, HV]`` or ``[N, T_d, HV]``; unit stride on HV.
        q, k: ``[1, N, H, K]`` (one token a row) or ``[N, T_d, H, K]`` (with ``a`` ``[N, T_d, HV]``); unit stride on K.
        v: ``[1, N, HV, V]`` or ``[N, T_d, HV, V]``, dtype of ``q``; unit stride on V.
        ssm_pool: ``[slots, HV, V, K]`` float32, bfloat16 or float16.
        cache_indices: ``[N]``.
        scale: default ``K ** -0.5``.
        use_qk_l2norm_in_kernel: as in ``chunk_gated_delta_rule``.
        parent_tokens: ``[N, T_d]``, as in ``causal_conv1d_update``. Requires ``disable_state_update``.
        intermediate_ssm: ``[spec_slots, T_d, HV, V, K]`` dtype of ``ssm_pool``; receives the state after each token.
        intermediate_state_indices: ``[N]``; -1 stores nothing.
        disable_state_update: leave ``ssm_pool`` alone.
        out: shape of ``v``, contiguous; allocated if not given.

    Returns:
        Shape and dtype of ``v``.

    Writes in place: the named slots of ``ssm_pool`` unless ``disable_state_update``; ``intermediate_ssm``.
    """
    op = "fused_sigmoid_gating_delta_rule_update"
    _check_inputs(op, ("out", out), A_log=A_log, a=a, dt_bias=dt_bias, q=q, k=k, v=v, b=b)
    _check_flags(op, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, disable_state_update=disable_state_update)
    if out is None:
        out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    if a.dim() == 3:
        rows = (q, k, v, a, b, out)
    elif a.dim() != 2:
        raise GdnValueError(f"{op}: a must have 2 or 3 dimensions; got {list(a.shape)}", op, "a")
    else:
        for name, x in (("q", q), ("k", k), ("v", v), ("out", out)):
            if x.dim() != 4 or x.shape[0] != 1:
                raise GdnValueError(
                    f"{op}: {name} must be [1, N, heads, head size] when a is [N, HV]; got {list(x.shape)}", op, name
                )
        q_row, k_row, v_row, out_row = (x.transpose(0, 1) for x in (q, k, v, out))
        rows = (q_row, k_row, v_row, _with_token_dim(a), _with_token_dim(b), out_row)
    _C.fused_sigmoid_gating_delta_rule_update(
        _stream(q), *rows[:5], A_log, dt_bias, ssm_pool, cache_indices, parent_tokens, intermediate_ssm,
        intermediate_state_indices, rows[5], _scale(op, scale, q), use_qk_l2norm_in_kernel, disable_state_update,
    )  # fmt: skip
    count_call(op, q.device.type)
    return out


def gdn_frontend(
    mixed_qkv: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    conv_weight: Tensor,
    conv_bias: Tensor | None = None,
    A_log: Tensor,
    dt_bias: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_pool: Tensor,
    query_start_loc: Tensor,
    cache_indices: Tensor,
    has_initial_state: Tensor | None = None,
    track_slots: Tensor | None = None,
    track_lens: Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = True,
    activation: str | None = "silu",
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The part of ``gdn_prefill`` before the chunk rule: conv, SiLU, split, l2norm of q and k, gates.

    Equals ``causal_conv1d`` and ``gdn_gating``, then ``x * rsqrt(sum(x^2) + 1e-6)`` over each head of q and k as they
    are stored.

    Args:
        mixed_qkv, a, b, conv_weight, conv_bias, A_log, dt_bias, num_k_heads, num_v_heads, head_k_dim, head_v_dim,
            conv_pool, query_start_loc, cache_indices, has_initial_state, activation: as in ``gdn_prefill``.
        track_slots, track_lens: as in ``causal_conv1d``.
        use_qk_l2norm_in_kernel: False leaves q and k as the convolution stores them.
        out: ``[T, D]`` contiguous, dtype of ``mixed_qkv``, which ``q``, ``k`` and ``v`` are views of; allocated if not
            given.

    Returns:
        ``(q, k, v, g, beta)``, the arguments of ``chunk_gated_delta_rule``: ``[1, T, H, K]`` twice and
        ``[1, T, HV, V]`` in the dtype of ``mixed_qkv``, ``[1, T, HV]`` float32 twice. Rows of slot -1 and those at and
        after ``query_start_loc[N]`` are zero in q, k and v, and ordinary gates in g and beta.

    Writes in place: the named slots of ``conv_pool``.
    """
    op = "gdn_frontend"
    _check_inputs(
        op, ("conv_bias", conv_bias), ("out", out), mixed_qkv=mixed_qkv, a=a, b=b, conv_weight=conv_weight,
        A_log=A_log, dt_bias=dt_bias, conv_pool=conv_pool, query_start_loc=query_start_loc,
    )  # fmt: skip
    _check_heads(op, num_k_heads, num_v_heads, head_k_dim, head_v_dim)
    _check_flags(op, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel)
    silu = _is_silu(op, activation)
    if out is None:
        out = mixed_qkv.new_empty(mixed_qkv.shape)
    gates = torch.empty((2, *a.shape), dtype=torch.float32, device=a.device)
    _C.gdn_frontend(
        _stream(mixed_qkv), num_k_heads, num_v_heads, head_k_dim, head_v_dim, conv_weight, conv_bias, A_log, dt_bias,
        mixed_qkv, a, b, conv_pool, query_start_loc, cache_indices, has_initial_state, track_slots, track_lens, out,
        gates[0], gates[1], use_qk_l2norm_in_kernel, silu,
    )  # fmt: skip
    count_call(op, mixed_qkv.device.type)
    q, k, v = _split_heads(out.unsqueeze(0), num_k_heads, num_v_heads, head_k_dim, head_v_dim)
    return q, k, v, gates[0].unsqueeze(0), gates[1].unsqueeze(0)


def gdn_prefill(
    mixed_qkv: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    conv_weight: Tensor,
    conv_bias: Tensor | None = None,
    A_log: Tensor,
    dt_bias: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_pool: Tensor,
    ssm_pool: Tensor,
    query_start_loc: Tensor,
    cache_indices: Tensor,
    has_initial_state: Tensor | None = None,
    track_slots: Tensor | None = None,
    track_lens: Tensor | None = None,
    track_state: Tensor | None = None,
    track_chunk_idx: Tensor | None = None,
    output_h: bool = False,
    activation: str | None = "silu",
    scale: float | None = None,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """A whole GDN layer between its projections, for packed rows: conv, SiLU, split, l2norm, gates, chunk rule.

    Equals ``causal_conv1d`` -> ``gdn_gating`` -> ``chunk_gated_delta_rule(use_qk_l2norm_in_kernel=True)``, and is
    composed of them (counted as a fallback) on a device that has no fused kernel.

    Args:
        mixed_qkv: ``[T, D]`` channel order q, k, v; unit stride on D, any row pitch.
        a, b: ``[T, HV]``; unit stride on HV, any row pitch.
        conv_weight, conv_bias, activation: as ``weight``, ``bias``, ``activation`` of ``causal_conv1d``.
        A_log, dt_bias: ``[HV]``.
        num_k_heads, num_v_heads, head_k_dim, head_v_dim: H, HV, K, V.
        conv_pool: ``[slots, D, W-1]``.
        ssm_pool: ``[slots, HV, V, K]``.
        query_start_loc: ``[N+1]``.
        cache_indices: ``[N]``.
        has_initial_state: ``[N]`` bool, for both states. Default all True.
        track_slots, track_lens: as in ``causal_conv1d``.
        track_state, track_chunk_idx, output_h: as in ``chunk_gated_delta_rule``.
        scale: default ``K ** -0.5``.
        out: ``[1, T, HV, V]`` contiguous; allocated if not given.

    Returns:
        ``o`` ``[1, T, HV, V]`` dtype of ``mixed_qkv``, or ``(o, h)`` with ``output_h``.

    Writes in place: the named slots of both pools; ``track_state``.
    """
    op = "gdn_prefill"
    _check_inputs(
        op, ("conv_bias", conv_bias), ("out", out), mixed_qkv=mixed_qkv, a=a, b=b, conv_weight=conv_weight,
        A_log=A_log, dt_bias=dt_bias, ssm_pool=ssm_pool, conv_pool=conv_pool, query_start_loc=query_start_loc,
    )  # fmt: skip
    _check_heads(op, num_k_heads, num_v_heads, head_k_dim, head_v_dim)
    _check_flags(op, output_h=output_h)
    silu = _is_silu(op, activation)
    tokens = mixed_qkv.shape[0]
    if out is None:
        out = mixed_qkv.new_empty((1, tokens, num_v_heads, head_v_dim))
    packed_out = _pack_batch(op, "out", out)
    qkv_scratch = mixed_qkv.new_empty(mixed_qkv.shape)
    gates_scratch = torch.empty((2, *a.shape), dtype=torch.float32, device=a.device)
    h = _empty_chunk_states(query_start_loc, packed_out, ssm_pool) if output_h else None
    segment_states, segment_chunks = _segments(
        mixed_qkv, query_start_loc.numel() - 1, num_v_heads, head_k_dim, head_v_dim
    )
    try:
        _C.gdn_prefill(
            _stream(mixed_qkv), num_k_heads, num_v_heads, head_k_dim, head_v_dim, conv_weight, conv_bias, A_log,
            dt_bias, mixed_qkv, a, b, conv_pool, ssm_pool, query_start_loc, cache_indices, has_initial_state,
            track_slots, track_lens, track_state, track_chunk_idx, h, qkv_scratch, gates_scratch[0], gates_scratch[1],
            segment_states, segment_chunks, packed_out, _scale(op, scale, head_k_dim), silu,
        )  # fmt: skip
        count_call(op, mixed_qkv.device.type)
    except GdnNoKernelError as error:
        q, k, v = _split_heads(qkv_scratch, num_k_heads, num_v_heads, head_k_dim, head_v_dim)
        _compose(
            op, error, mixed_qkv,
            causal_conv1d=(
                mixed_qkv, conv_weight, conv_bias, conv_pool, query_start_loc, cache_indices, has_initial_state,
                track_slots, track_lens, qkv_scratch, silu,
            ),
            gdn_gating=(A_log, a, b, dt_bias, gates_scratch[0], gates_scratch[1]),
            chunk_gated_delta_rule=(
                q, k, v, gates_scratch[0], gates_scratch[1], ssm_pool, query_start_loc, cache_indices,
                has_initial_state, track_state, track_chunk_idx, h, segment_states, segment_chunks, packed_out,
                _chunk_workspace(mixed_qkv), _scale(op, scale, head_k_dim), True, True,
            ),
        )  # fmt: skip
    return out if h is None else (out, h.unsqueeze(0))


def gdn_decode(
    mixed_qkv: Tensor | None = None,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    qkvz: Tensor | None = None,
    ba: Tensor | None = None,
    projection_layout: str | None = None,
    conv_weight: Tensor,
    conv_bias: Tensor | None = None,
    A_log: Tensor,
    dt_bias: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_pool: Tensor,
    ssm_pool: Tensor,
    cache_indices: Tensor,
    track_slots: Tensor | None = None,
    z: Tensor | None = None,
    norm_weight: Tensor | None = None,
    norm_eps: float = 1e-6,
    norm_activation: str = "silu",
    activation: str | None = "silu",
    scale: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """A whole GDN layer between its projections, for one new token a row.

    Equals ``causal_conv1d_update`` -> ``fused_sigmoid_gating_delta_rule_update``, and is composed of them (counted as a
    fallback) on a device that has no fused kernel.

    The inputs are either ``mixed_qkv``, ``a``, ``b`` (and ``z`` for the norm), or what the two projections of a layer
    return, ``qkvz`` and ``ba``. Of those, the contiguous layout is read like views of its columns; the interleaved one
    needs no copy either, because every key head with its value heads is computed by itself.

    Args:
        mixed_qkv: ``[N, D]`` channel order q, k, v; unit stride on D, any row pitch.
        a, b: ``[N, HV]``; unit stride on HV, any row pitch.
        qkvz: ``[N, D + HV*V]`` unit stride, any row pitch. Instead of ``mixed_qkv``, ``a``, ``b`` and ``z``.
        ba: ``[N, 2*HV]``; unit stride, any row pitch.
        projection_layout: order of the columns of ``qkvz`` and ``ba``, required with them. ``"contiguous"`` (Qwen3.5):
            q, k, v, z of all heads, and b, a of all heads. ``"interleaved"`` (Qwen3-Next): for each key head its q, k,
            the r heads of v and the r heads of z, and likewise r of b and r of a.
        conv_pool, ssm_pool, cache_indices: as in ``gdn_prefill``; the others too.
        track_slots: ``[N]`` int32/int64; rows with a slot >= 0 also store their new state and conv window, the same
            bits, to that slot of both pools. No row may name it in ``cache_indices``.
        z: ``[N, HV, V]`` gate of the norm, dtype of ``mixed_qkv``; unit stride on V. Required with ``norm_weight``
            unless ``qkvz`` is given.
        norm_weight: ``[V]`` float32, bfloat16 or float16. With it the output is normalised and gated:
            ``o * rsqrt(mean(o^2) + norm_eps) * norm_weight * act(z)``, per value head, from the o that no store has
            rounded. For a zero-centred weight pass ``1 + weight``, for a gate with a factor the weight times the factor
            (in float32, where nothing is rounded).
        norm_eps: inside the root.
        norm_activation: ``"silu"`` or ``"sigmoid"``.
        out: ``[1, N, HV, V]`` contiguous; allocated if not given.

    Returns:
        ``[1, N, HV, V]`` dtype of ``mixed_qkv`` or ``qkvz``.

    Writes in place: the named slots of both pools.
    """
    op = "gdn_decode"
    name, x = ("mixed_qkv", mixed_qkv) if qkvz is None else ("qkvz", qkvz)
    if not isinstance(x, Tensor):
        raise GdnTypeError(f"{op}: {name} must be a torch.Tensor; got {_type_name(x)}", op, name)
    layout = _projection_layout(op, projection_layout, raw=qkvz is not None)
    silu = _is_silu(op, activation)
    if norm_activation not in ("silu", "sigmoid"):
        raise GdnValueError(
            f"{op}: norm_activation must be 'silu' or 'sigmoid'; got {norm_activation!r}", op, "norm_activation"
        )
    if out is None:
        out = _empty_heads(x, num_v_heads, head_v_dim)
    try:
        _C.gdn_decode(
            _stream(x), num_k_heads, num_v_heads, head_k_dim, head_v_dim, conv_weight, conv_bias, A_log, dt_bias,
            mixed_qkv, a, b, z, qkvz, ba, conv_pool, ssm_pool, cache_indices, track_slots, norm_weight, out, layout,
            scale, norm_eps, silu, norm_activation == "silu",
        )  # fmt: skip
        count_call(op, _device_type(x))
        assert out is not None  # refused above
        return out
    except GdnNoKernelError as error:
        no_kernel = error
    if qkvz is not None:
        assert ba is not None and projection_layout is not None
        mixed_qkv, z, b, a = _split_projections(
            qkvz, ba, projection_layout, num_k_heads, num_v_heads, head_k_dim, head_v_dim
        )
        a, b = a.contiguous(), b.contiguous()
    assert mixed_qkv is not None and a is not None and b is not None and out is not None
    tokens, a, b, out_rows = (_with_token_dim(t) for t in (mixed_qkv, a, b, out.view(out.shape[-3:])))
    qkv = torch.empty(tokens.shape, dtype=tokens.dtype, device=tokens.device)
    q, k, v = _split_heads(qkv, num_k_heads, num_v_heads, head_k_dim, head_v_dim)
    # Rows that are tracked keep what they would keep of a draft token in another slot of the pools.
    tracked_windows, tracked_states = (
        None if track_slots is None else _with_token_dim(pool) for pool in (conv_pool, ssm_pool)
    )
    tracked = None if track_slots is None else track_slots.to(cache_indices.dtype)
    _compose(
        op, no_kernel, x,
        causal_conv1d_update=(
            tokens, conv_weight, conv_bias, conv_pool, cache_indices, None, tracked_windows, tracked, qkv, silu, False,
        ),
        fused_sigmoid_gating_delta_rule_update=(
            q, k, v, a, b, A_log, dt_bias, ssm_pool, cache_indices, None, tracked_states, tracked, out_rows,
            _scale(op, scale, head_k_dim), True, False,
        ),
    )  # fmt: skip
    if norm_weight is not None and ssm_pool.shape[0] > 0:
        assert z is not None
        rounded = out.dtype != torch.float32
        o = _outputs(ssm_pool, cache_indices, q[:, 0], _scale(op, scale, head_k_dim)) if rounded else out
        _normalise(o, z, norm_weight, norm_eps, norm_activation, cache_indices, out)
    return out


def gdn_verify(
    mixed_qkv: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    conv_weight: Tensor,
    conv_bias: Tensor | None = None,
    A_log: Tensor,
    dt_bias: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_pool: Tensor,
    ssm_pool: Tensor,
    cache_indices: Tensor,
    intermediate_ssm: Tensor | None = None,
    intermediate_conv_window: Tensor | None = None,
    intermediate_state_indices: Tensor | None = None,
    record: DraftRecord | None = None,
    parent_tokens: Tensor | None = None,
    activation: str | None = "silu",
    scale: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """``gdn_decode`` for T_d draft tokens a row that commits nothing.

    Two forms. With ``record`` it reads each state once and keeps some percent of its size a token, from which
    ``gdn_fold`` commits any of them. With the three ``intermediate_*``, which are SGLang's, it stores the state after
    every token, and ``gdn_commit`` copies one.

    Args:
        mixed_qkv: ``[N, T_d, D]``; unit stride on D; T_d in 1..16.
        a, b: ``[N, T_d, HV]``; unit stride on HV.
        conv_pool, ssm_pool: as in ``gdn_decode``; only read.
        intermediate_ssm: ``[spec_slots, T_d, HV, V, K]`` dtype of ``ssm_pool``: state after each draft token.
        intermediate_conv_window: ``[spec_slots, T_d, D, W-1]`` dtype of ``conv_pool``: window after each draft token;
            may be an overlapping view for chains.
        intermediate_state_indices: ``[N]`` row of the intermediate buffers; -1 stores nothing.
        record: of at least N rows and T_d tokens; rows of padding are left alone.
        parent_tokens: ``[N, T_d]`` int32/int64 for trees, as in ``causal_conv1d_update``; default a chain.
        out: ``[N, T_d, HV, V]`` contiguous; allocated if not given.

    Returns:
        ``[N, T_d, HV, V]`` dtype of ``mixed_qkv``.

    Writes in place: the record, or the two intermediate buffers.
    """
    op = "gdn_verify"
    _check_inputs(
        op, ("conv_bias", conv_bias), ("out", out), mixed_qkv=mixed_qkv, a=a, b=b, conv_weight=conv_weight,
        A_log=A_log, dt_bias=dt_bias, ssm_pool=ssm_pool, conv_pool=conv_pool,
    )  # fmt: skip
    _check_heads(op, num_k_heads, num_v_heads, head_k_dim, head_v_dim)
    silu = _is_silu(op, activation)
    if out is None:
        out = mixed_qkv.new_empty((*mixed_qkv.shape[:2], num_v_heads, head_v_dim))
    if record is not None and not isinstance(record, DraftRecord):
        raise GdnTypeError(f"{op}: record must be a DraftRecord or None; got {type(record).__name__}", op, "record")
    x, k, d, g = record or _NO_RECORD
    qkv_scratch = mixed_qkv.new_empty(mixed_qkv.shape) if record is None or mixed_qkv.is_cpu else None
    try:
        _C.gdn_verify(
            _stream(mixed_qkv), num_k_heads, num_v_heads, head_k_dim, head_v_dim, conv_weight, conv_bias, A_log,
            dt_bias, mixed_qkv, a, b, conv_pool, ssm_pool, cache_indices, parent_tokens, intermediate_ssm,
            intermediate_conv_window, intermediate_state_indices, x, k, d, g, qkv_scratch, out,
            _scale(op, scale, head_k_dim), silu,
        )  # fmt: skip
        count_call(op, mixed_qkv.device.type)
    except GdnNoKernelError as error:
        if qkv_scratch is None or record is not None:
            raise
        assert intermediate_state_indices is not None  # refused above
        stored_at = intermediate_state_indices.to(cache_indices.dtype)
        q, k, v = _split_heads(qkv_scratch, num_k_heads, num_v_heads, head_k_dim, head_v_dim)
        _compose(
            op, error, mixed_qkv,
            causal_conv1d_update=(
                mixed_qkv, conv_weight, conv_bias, conv_pool, cache_indices, parent_tokens, intermediate_conv_window,
                stored_at, qkv_scratch, silu, True,
            ),
            fused_sigmoid_gating_delta_rule_update=(
                q, k, v, a, b, A_log, dt_bias, ssm_pool, cache_indices, parent_tokens, intermediate_ssm, stored_at, out,
                _scale(op, scale, head_k_dim), True, True,
            ),
        )  # fmt: skip
    return out


def gdn_commit(
    *,
    conv_pool: Tensor,
    ssm_pool: Tensor,
    cache_indices: Tensor,
    intermediate_ssm: Tensor,
    intermediate_conv_window: Tensor,
    intermediate_state_indices: Tensor,
    last_steps: Tensor,
) -> None:
    """Makes a state that ``gdn_verify`` stored after one token the committed state of its row.

    Gathered and scattered by torch (counted as a fallback) on a device that has no kernel for it.

    Args:
        conv_pool, ssm_pool, cache_indices, intermediate_*: those of ``gdn_verify``.
        last_steps: ``[N]`` int32/int64, index of the last accepted draft token; -1 (none accepted) and anything outside
            ``[0, T_d)`` leaves the slot alone.

    Writes in place: the named slots of both pools.
    """
    op = "gdn_commit"
    _check_inputs(op, ssm_pool=ssm_pool)
    try:
        _C.gdn_commit(
            _stream(ssm_pool), conv_pool, ssm_pool, cache_indices, intermediate_ssm, intermediate_conv_window,
            intermediate_state_indices, last_steps,
        )  # fmt: skip
        count_call(op, ssm_pool.device.type)
    except GdnNoKernelError as error:
        fallback(op, str(error))
        if 0 not in (*ssm_pool.shape, *conv_pool.shape, *intermediate_ssm.shape, len(cache_indices)):
            pools = ((conv_pool, intermediate_conv_window), (ssm_pool, intermediate_ssm))
            _copy_steps(pools, cache_indices.long(), intermediate_state_indices.long(), last_steps.long())


def gdn_fold(
    *,
    conv_pool: Tensor,
    ssm_pool: Tensor,
    cache_indices: Tensor,
    record: DraftRecord,
    last_steps: Tensor,
    parent_tokens: Tensor | None = None,
    track_slots: Tensor | None = None,
    track_steps: Tensor | None = None,
) -> None:
    """Commits the draft tokens of a record up to one of them, in one layer or in all layers at once.

    ``S = exp(G) S + sum_i exp(G - G_i) d_i k_i^T`` over the tokens on the path to that one, with G_i the sum of log
    gates up to token i: the state that feeding these tokens one by one would have left, rounded once. The window
    becomes the one after that token, bit for bit.

    Args:
        conv_pool: ``[slots, D, W-1]``, or ``[layers, slots, D, W-1]`` with any layer and slot pitch.
        ssm_pool: ``[slots, HV, V, K]``, or ``[layers, slots, HV, V, K]``.
        cache_indices, parent_tokens: those of ``gdn_verify``.
        record: that of ``gdn_verify``, with a dimension for the layers if the pools have one.
        last_steps: ``[N]`` int32/int64, index of the last accepted draft token; in a tree its path is accepted. -1
            (none accepted) and anything outside ``[0, T_d)`` leaves the slot alone.
        track_slots: ``[N]`` int32/int64; rows with a slot >= 0 also store the states after token ``track_steps[n]`` to
            that slot, whatever ``last_steps[n]`` is.
        track_steps: ``[N]`` int32/int64; outside ``[0, T_d)`` nothing is stored.

    Writes in place: the named slots of both pools.
    """
    op = "gdn_fold"
    _check_inputs(op, conv_pool=conv_pool, ssm_pool=ssm_pool)
    if not isinstance(record, DraftRecord):
        raise GdnTypeError(f"{op}: record must be a DraftRecord; got {type(record).__name__}", op, "record")
    if ssm_pool.dim() == 4:
        parts = {f"record.{name}": part for name, part in zip(record._fields, record, strict=True)}
        _check_inputs(op, **parts)
        ssm_pool, conv_pool = ssm_pool.unsqueeze(0), conv_pool.unsqueeze(0)
        record = DraftRecord(*(part.unsqueeze(0) for part in record))
    _C.gdn_fold(
        _stream(ssm_pool), conv_pool, ssm_pool, cache_indices, *record, last_steps, parent_tokens, track_slots,
        track_steps,
    )  # fmt: skip
    count_call(op, ssm_pool.device.type)


# Reads the stream without building a Stream object, some 4 us a call; absent from builds of torch without CUDA.
_raw_cuda_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _stream(x: Tensor) -> int:
    if x.is_cpu:
        return 0
    if x.is_cuda:
        if _raw_cuda_stream is not None:
            return _raw_cuda_stream(x.get_device())
        return torch.cuda.current_stream(x.device).cuda_stream
    if x.device.type == "npu":
        return torch.npu.current_stream(x.device).npu_stream  # type: ignore[attr-defined]
    return 0


def _chunk_workspace(x: Tensor) -> Tensor | None:
    """What the blocks of an NPU exchange while they work on chunks; other devices need nothing."""
    if x.device.type != "npu":
        return None
    return torch.empty(_C.npu_chunk_workspace_elements(x.device.index or 0), device=x.device)


def _device_type(x: Tensor) -> str:
    return "cuda" if x.is_cuda else "cpu" if x.is_cpu else x.device.type


def _empty_heads(x: Tensor, heads: int, size: int) -> Tensor | None:
    """``[1, N, heads, size]``; None for numbers that the operator is about to refuse."""
    if x.dim() == 0 or not (isinstance(heads, int) and isinstance(size, int) and heads >= 0 and size >= 0):
        return None
    return x.new_empty((1, x.shape[0], heads, size))


# The values of ProjectionLayout in csrc/core/operators.hpp.
_RAW_LAYOUTS = {"contiguous": 1, "interleaved": 2}


def _projection_layout(op: str, layout: str | None, raw: bool) -> int:
    if not raw and layout is None:
        return 0
    if not raw or layout not in _RAW_LAYOUTS:
        rule = "'contiguous' or 'interleaved' with qkvz" if raw else "None without qkvz"
        raise GdnValueError(f"{op}: projection_layout must be {rule}; got {layout!r}", op, "projection_layout")
    return _RAW_LAYOUTS[layout]


def _scale(op: str, scale: float | None, q: Tensor | int) -> float:
    if scale is not None:
        if not isinstance(scale, (int, float)):
            raise GdnTypeError(f"{op}: scale must be a number or None; got {scale!r}", op, "scale")
        return scale
    return (q if isinstance(q, int) else q.shape[-1]) ** -0.5


def _is_silu(op: str, activation: str | None) -> bool:
    if activation not in (None, "silu", "swish"):
        raise GdnValueError(f"{op}: activation must be 'silu', 'swish' or None; got {activation!r}", op, "activation")
    return activation is not None


def _refuse_option(op: str, name: str, value: object, when: str = "") -> None:
    if value is not None:
        raise GdnUnsupportedError(f"{op}: {name} must be None{' ' + when if when else ''}; got a value", op, name)


def _type_name(x: object) -> str:
    return "None" if x is None else type(x).__name__


def _check_inputs(op: str, *optional: tuple[str, Tensor | None], **required: Tensor) -> None:
    """Refuses what is no tensor, and inputs that want a gradient."""
    grad_enabled = torch.is_grad_enabled()
    for name, x in (*required.items(), *optional):
        if not isinstance(x, Tensor):
            if x is None and name not in required:
                continue
            raise GdnTypeError(f"{op}: {name} must be a torch.Tensor; got {_type_name(x)}", op, name)
        if grad_enabled and x.requires_grad:
            raise GdnUnsupportedError(
                f"{op}: {name} must not require a gradient (inference only; use torch.no_grad()); got requires_grad",
                op, name,
            )  # fmt: skip


def _check_flags(op: str, **flags: bool) -> None:
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise GdnTypeError(f"{op}: {name} must be True or False; got {flag!r}", op, name)


def _check_heads(op: str, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int) -> None:
    """What outputs are allocated from, before the operator itself can refuse it."""
    counts = {"num_k_heads": num_k_heads, "num_v_heads": num_v_heads}
    sizes = {"head_k_dim": head_k_dim, "head_v_dim": head_v_dim}
    for name, value in (*counts.items(), *sizes.items()):
        if not isinstance(value, int):
            raise GdnTypeError(f"{op}: {name} must be an integer; got {value!r}", op, name)
    for name, size in sizes.items():
        if size < 1:
            raise GdnValueError(f"{op}: {name} must be positive; got {size}", op, name)


def _with_token_dim(x: Tensor) -> Tensor:
    return x.unsqueeze(1)


def _pack_batch(op: str, name: str, x: Tensor) -> Tensor:
    """[B, T, ...] -> [B*T, ...] as a view; [T, ...] unchanged. Gates are 2-D packed, heads 3-D."""
    packed_dims = 2 if name in ("g", "beta") else 3
    if x.dim() == packed_dims:
        return x
    if x.dim() != packed_dims + 1:
        raise GdnValueError(
            f"{op}: {name} must have {packed_dims} or {packed_dims + 1} dimensions; got {list(x.shape)}", op, name
        )
    if x.shape[0] == 1:
        return x[0]
    try:
        return x.view(x.shape[0] * x.shape[1], *x.shape[2:])
    except RuntimeError:
        raise GdnValueError(
            f"{op}: {name} must have a batch stride of T * token stride; got shape {list(x.shape)} strides "
            f"{list(x.stride())}", op, name,
        ) from None  # fmt: skip


def _split_heads(
    qkv: Tensor, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """[..., T, D] -> q, k [..., T, H, K] and v [..., T, HV, V], as views."""
    key_dim = num_k_heads * head_k_dim
    q, k, v = qkv.split([key_dim, key_dim, num_v_heads * head_v_dim], dim=-1)
    return (
        q.unflatten(-1, (num_k_heads, head_k_dim)),
        k.unflatten(-1, (num_k_heads, head_k_dim)),
        v.unflatten(-1, (num_v_heads, head_v_dim)),
    )


def _split_projections(
    qkvz: Tensor, ba: Tensor, layout: str, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mixed_qkv ``[N, D]``, z ``[N, HV, V]``, b and a ``[N, HV]``."""
    key_heads = num_k_heads if layout == "interleaved" else 1
    key_size, value_size = (n // key_heads for n in (num_k_heads * head_k_dim, num_v_heads * head_v_dim))
    parts = qkvz.unflatten(1, (key_heads, -1)).split([key_size, key_size, value_size, value_size], dim=2)
    q, k, v, z = (part.flatten(1) for part in parts)
    b, a = (part.flatten(1) for part in ba.unflatten(1, (key_heads, -1)).chunk(2, dim=2))
    return torch.cat([q, k, v], dim=1), z.unflatten(1, (num_v_heads, head_v_dim)), b, a


def _compose(op: str, no_kernel: GdnNoKernelError, x: Tensor, **parts: tuple[object, ...]) -> None:
    """Calls the operators ``parts`` of ``_C`` in turn, if all of them serve: none may fail after another wrote."""
    stream = _stream(x)
    _C.set_checks_only(True)
    try:
        for part, arguments in parts.items():
            getattr(_C, part)(stream, *arguments)
    finally:
        _C.set_checks_only(False)
    fallback(op, str(no_kernel))
    for part, arguments in parts.items():
        getattr(_C, part)(stream, *arguments)
        count_call(part, x.device.type)


def _copy_steps(pools: Sequence[tuple[Tensor, Tensor]], slots: Tensor, sources: Tensor, steps: Tensor) -> None:
    """``gdn_commit`` for ``(pool, intermediate buffer)``, none of them empty, without reading indices on the host.

    A row that stores nothing repeats the store of one that does; if none does, what is in a slot is stored there.
    """
    stores = torch.ones_like(slots, dtype=torch.bool)
    for pool, buffer in pools:
        for index, size in ((slots, pool.shape[0]), (sources, buffer.shape[0]), (steps, buffer.shape[1])):
            stores &= (index >= 0) & (index < size)
    row = torch.where(stores, torch.arange(len(slots), device=slots.device), stores.int().argmax())
    slots, sources, steps = (torch.where(stores, index, 0)[row] for index in (slots, sources, steps))
    for pool, buffer in pools:
        pool[slots] = torch.where(stores.any(), buffer[sources, steps], pool[slots])


def _outputs(ssm_pool: Tensor, cache_indices: Tensor, q: Tensor, scale: float) -> Tensor:
    """``scale * S q`` ``[N, HV, V]`` float32 of new states and ``q`` ``[N, H, K]``. Rows without a slot: undefined."""
    q = q.float()
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6)
    q = q.repeat_interleave(ssm_pool.shape[1] // q.shape[1], dim=1)
    states = ssm_pool[cache_indices.long().clamp(0, ssm_pool.shape[0] - 1)].float()
    return scale * (states * q.unsqueeze(2)).sum(-1)  # a batched product could depend on the batch


def _normalise(
    o: Tensor, z: Tensor, weight: Tensor, eps: float, activation: str, cache_indices: Tensor, out: Tensor
) -> None:
    """The gated norm of ``gdn_decode`` on float32 ``[.., N, HV, V]``; zeros where a row has no slot."""
    gate = torch.nn.functional.silu(z.float()) if activation == "silu" else torch.sigmoid(z.float())
    o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + eps) * weight.float() * gate
    out.copy_(torch.where((cache_indices >= 0)[:, None, None], o, 0.0))


def _dense_states(op: str, q: Tensor, v: Tensor, rows: int, initial_state: Tensor | None, state_layout: str) -> Tensor:
    """A private [N, HV, V, K] float32 pool for the dense form."""
    heads, head_v_dim, head_k_dim = v.shape[-2], v.shape[-1], q.shape[-1]
    if initial_state is None:
        return torch.zeros((rows, heads, head_v_dim, head_k_dim), dtype=torch.float32, device=q.device)
    wanted = (rows, heads, *((head_k_dim, head_v_dim) if state_layout == "kv" else (head_v_dim, head_k_dim)))
    if tuple(initial_state.shape) != wanted:
        raise GdnValueError(
            f"{op}: initial_state must be {list(wanted)} for state_layout {state_layout!r}; got "
            f"{list(initial_state.shape)}", op, "initial_state",
        )  # fmt: skip
    states = initial_state.transpose(-1, -2) if state_layout == "kv" else initial_state
    return torch.empty(states.shape, dtype=torch.float32, device=q.device).copy_(states)


def _empty_chunk_states(query_start_loc: Tensor, packed_v: Tensor, ssm_pool: Tensor) -> Tensor:
    rows = query_start_loc.shape[0] - 1
    if query_start_loc.is_cpu:
        lengths = query_start_loc.diff()
        chunks = int(((lengths + CHUNK_SIZE - 1) // CHUNK_SIZE).sum())
        return torch.empty((chunks, *ssm_pool.shape[1:]), dtype=ssm_pool.dtype)
    bound = min(packed_v.shape[0], packed_v.shape[0] // CHUNK_SIZE + rows)
    return torch.zeros((bound, *ssm_pool.shape[1:]), dtype=ssm_pool.dtype, device=ssm_pool.device)


def _segments(x: Tensor, rows: int, num_v_heads: int, head_k_dim: int, head_v_dim: int) -> tuple[Tensor | None, int]:
    """Scratch for the states of segments of the tokens of ``x``, and their length in chunks; None and 0: whole rows."""
    tokens = x.shape[0]
    if not x.is_cuda or min(tokens, rows, num_v_heads) < 1:
        return None, 0
    chunks = context_parallel.segment_chunks(rows, tokens, num_v_heads, context_parallel.multiprocessors(x.device))
    if chunks == 0:
        return None, 0
    shape = (2, tokens // (CHUNK_SIZE * chunks) + rows, num_v_heads, head_v_dim, head_k_dim)
    return x.new_empty(shape, dtype=torch.float32), chunks
