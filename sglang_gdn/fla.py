"""flash-linear-attention's functions for Gated DeltaNet on our operators: the same arguments, results and errors.

``from sglang_gdn.fla import chunk_gated_delta_rule`` in place of ``from fla.ops.gated_delta_rule import ...``, and
``causal_conv1d`` in place of that of ``fla.modules.convolution``. Signatures are those of fla-core 0.6.0.

Inference only: inputs that require a gradient are refused, and so are context parallelism and decays per channel. Head
sizes without a kernel are padded with zeros to the next that has one. Inputs of different dtypes are computed in the
widest of them. Calls cost copies that the pools of ``sglang_gdn.ops`` avoid: states are returned, not updated in place.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sglang_gdn import ops
from sglang_gdn.errors import GdnTypeError, GdnUnsupportedError, GdnValueError

__all__ = ["causal_conv1d", "chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"]

_BACKENDS = ("triton", "cuda", "mix")


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The gated delta rule over B rows of T tokens, or over packed rows.

    Args:
        q, k: ``[B, T, H, K]``.
        v: ``[B, T, HV, V]``; HV a multiple of H.
        g: ``[B, T, HV]`` log decay, or the raw ``a`` with ``use_gate_in_kernel``.
        beta: ``[B, T, HV]``, or its logits with ``use_beta_sigmoid_in_kernel``.
        scale: default ``K ** -0.5``.
        initial_state: ``[N, HV, K, V]``, or ``[N, HV, V, K]`` with ``state_v_first``.
        output_final_state: return the states after the last tokens, float32.
        use_qk_l2norm_in_kernel: ``q * rsqrt(sum(q^2) + 1e-6)``, the same for k.
        allow_neg_eigval: doubles beta; requires ``use_beta_sigmoid_in_kernel``.
        cu_seqlens: ``[N+1]`` offsets of packed rows; then B = 1.
        cu_seqlens_cpu, chunk_indices: not needed.
        cp_context: must be None.
        **kwargs: ``use_gate_in_kernel`` with ``A_log`` and ``dt_bias`` ``[HV]``; ``chunk_size`` 16, 32 or 64, which
            changes nothing; the deprecated ``transpose_state_layout``.

    Returns:
        ``(o, final_state)``: ``[B, T, HV, V]`` in the dtype of ``v``; float32 or None.

    Raises:
        ValueError: shapes that do not fit, options that need others. DeprecationWarning: ``head_first``.
        GdnUnsupportedError: ``cp_context``, or inputs that require a gradient.
    """
    op = "chunk_gated_delta_rule"
    if cp_context is not None:
        raise GdnUnsupportedError(f"{op}: cp_context must be None; got a value", op, "cp_context")
    if "head_first" in kwargs:
        raise DeprecationWarning(f"{op}: head_first is gone; pass [B, T, H, ...]")
    chunk_size = kwargs.pop("chunk_size", 64)
    if chunk_size not in (16, 32, 64):
        raise GdnValueError(f"{op}: chunk_size must be 16, 32 or 64; got {chunk_size}", op, "chunk_size")
    gate = {name: kwargs.pop(name, None) for name in ("use_gate_in_kernel", "A_log", "dt_bias")}
    state_v_first = _state_v_first(op, state_v_first, kwargs)
    return _delta_rule(
        op, q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
        use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first, cu_seqlens, **gate,
    )  # fmt: skip


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """``chunk_gated_delta_rule`` with FLA's other argument order; the same kernel runs.

    Args:
        g: no decay if None.
        beta: ones if None.
        gk, gv: must be None.
        Others: as in ``chunk_gated_delta_rule``.

    Returns, raises: as ``chunk_gated_delta_rule``.
    """
    op = "fused_recurrent_gated_delta_rule"
    for name, value in (("gk", gk), ("gv", gv)):
        if value is not None:
            raise GdnUnsupportedError(f"{op}: {name} must be None; got a value", op, name)
    state_v_first = _state_v_first(op, state_v_first, kwargs)
    if use_gate_in_kernel and g is None:
        raise GdnValueError(f"{op}: g must be given with use_gate_in_kernel; got None", op, "g")
    return _delta_rule(
        op, q, k, v, v.new_zeros(v.shape[:3], dtype=torch.float32) if g is None else g,
        v.new_ones(v.shape[:3], dtype=torch.float32) if beta is None else beta, scale, initial_state,
        output_final_state, use_qk_l2norm_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first,
        cu_seqlens, use_gate_in_kernel, A_log, dt_bias,
    )  # fmt: skip


def causal_conv1d(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool | None = False,
    activation: str | None = None,
    backend: str | None = "triton",
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Depthwise causal convolution over B rows of T tokens, or over packed rows.

    Args:
        x: ``[B, T, D]``.
        weight: ``[D, W]``, W in 2..4.
        bias: ``[D]``.
        residual: ``[B, T, D]``, added after the activation.
        initial_state: ``[N, D, W]``, the last W inputs before each row, oldest first; zeros if None.
        output_final_state: return the last W inputs of each row.
        activation: ``"silu"``, ``"swish"`` or None.
        backend: ``"triton"``, ``"cuda"`` or ``"mix"``, which changes nothing.
        cu_seqlens: ``[N+1]`` offsets of packed rows; then B = 1.
        cu_seqlens_cpu, chunk_indices: not needed.
        cp_context: must be None.

    Returns:
        ``(y, final_state)``: ``[B, T, D]`` in the dtype of ``x``; ``[N, D, W]`` in the dtype of ``x``, or None.

    Raises:
        ValueError: another ``backend``, shapes that do not fit.
        GdnUnsupportedError: ``cp_context``, or inputs that require a gradient.
    """
    op = "causal_conv1d"
    if cp_context is not None:
        raise GdnUnsupportedError(f"{op}: cp_context must be None; got a value", op, "cp_context")
    if backend not in _BACKENDS:
        raise GdnValueError(f"{op}: backend must be one of {', '.join(_BACKENDS)}; got {backend!r}", op, "backend")
    _refuse_unknown(op, kwargs)
    if x.dim() != 3:
        raise GdnValueError(f"{op}: x must be [B, T, D]; got {list(x.shape)}", op, "x")
    if weight is None or weight.dim() != 2:
        got = None if weight is None else list(weight.shape)
        raise GdnValueError(f"{op}: weight must be [D, W]; got {got}", op, "weight")
    offsets = _row_offsets(op, x, cu_seqlens)
    rows, channels, width = offsets.shape[0] - 1, x.shape[2], weight.shape[1]
    wanted = (rows, channels, width)
    if initial_state is not None and tuple(initial_state.shape) != wanted:
        raise GdnValueError(
            f"{op}: initial_state must be {list(wanted)}; got {list(initial_state.shape)}", op, "initial_state"
        )
    packed = x.reshape(-1, channels)
    windows = None if initial_state is None else initial_state[..., 1:].to(x.dtype, copy=True).contiguous()
    y = ops.causal_conv1d(
        packed, weight, bias, query_start_loc=offsets, conv_pool=windows,
        cache_indices=None if windows is None else torch.arange(rows, dtype=torch.int32, device=x.device),
        activation=activation,
    ).view(x.shape)  # fmt: skip
    if residual is not None:
        y = y + residual
    return y, _last_inputs(packed, offsets, initial_state, width) if output_final_state else None


def _last_inputs(x: Tensor, offsets: Tensor, initial_state: Tensor | None, width: int) -> Tensor:
    """``[N, D, W]``: the last ``width`` inputs of each row of ``x`` ``[T, D]``, those of ``initial_state`` included."""
    starts, ends = offsets[:-1, None].long(), offsets[1:, None].long()
    positions = ends - width + torch.arange(width, device=x.device)
    if initial_state is None:
        before = x.new_zeros((offsets.shape[0] - 1, x.shape[1], width))
    else:
        shifted = (positions - starts + width).clamp(0, width - 1)
        before = initial_state.to(x.dtype).gather(2, shifted[:, None].expand(initial_state.shape))
    after = x[positions.clamp(min=0)].transpose(1, 2)
    return torch.where((positions >= starts)[:, None], after, before)


def _delta_rule(
    op: str, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None,
    initial_state: Tensor | None, output_final_state: bool, l2norm: bool, sigmoid: bool, allow_neg_eigval: bool,
    state_v_first: bool, cu_seqlens: Tensor | None, use_gate_in_kernel: bool | None, A_log: Tensor | None,
    dt_bias: Tensor | None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            raise GdnValueError(f"{op}: {name} must be [B, T, heads, head size]; got {list(x.shape)}", op, name)
    if q.shape[2] != k.shape[2]:
        raise GdnValueError(f"{op}: k must have the {q.shape[2]} heads of q; got {k.shape[2]}", op, "k")
    if v.shape[2] % q.shape[2]:
        raise GdnValueError(f"{op}: v must have a multiple of {q.shape[2]} heads; got {v.shape[2]}", op, "v")
    if allow_neg_eigval and not sigmoid:
        raise GdnValueError(
            f"{op}: allow_neg_eigval must be False without use_beta_sigmoid_in_kernel; got True", op, "allow_neg_eigval"
        )
    offsets = _row_offsets(op, q, cu_seqlens)
    rows = offsets.shape[0] - 1
    if initial_state is not None and initial_state.shape[0] != rows:
        raise GdnValueError(
            f"{op}: initial_state must hold {rows} states, one a row; got {initial_state.shape[0]}",
            op, "initial_state",
        )  # fmt: skip
    if use_gate_in_kernel:
        g = _gate(op, g, A_log, dt_bias)
    beta = torch.sigmoid(beta.float()) * (2 if allow_neg_eigval else 1) if sigmoid else beta.float()
    key_size, value_size = q.shape[3], v.shape[3]
    key_pad, value_pad = (-size % (8 if q.is_cpu else 128) for size in (key_size, value_size))
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    state_pad = (0, key_pad, 0, value_pad) if state_v_first else (0, value_pad, 0, key_pad)
    packed_g, packed_beta = (x.float().reshape(1, -1, x.shape[-1]) for x in (g, beta))
    o, final_state, *_ = ops.chunk_gated_delta_rule(
        _packed(q, dtype, key_pad), _packed(k, dtype, key_pad), _packed(v, dtype, value_pad), packed_g, packed_beta,
        key_size**-0.5 if scale is None else scale,
        None if initial_state is None else pad(initial_state.float(), state_pad), output_final_state, offsets,
        use_qk_l2norm_in_kernel=l2norm, state_layout="vk" if state_v_first else "kv",
    )  # fmt: skip
    if final_state is not None:
        inner = (value_size, key_size) if state_v_first else (key_size, value_size)
        final_state = final_state[..., : inner[0], : inner[1]].contiguous()
    return o[..., :value_size].reshape(v.shape).to(v.dtype), final_state


def _packed(x: Tensor, dtype: torch.dtype, padding: int) -> Tensor:
    """``[B, T, heads, size]`` -> ``[1, B*T, heads, size + padding]``."""
    return pad(x.to(dtype).reshape(1, -1, *x.shape[2:]), (0, padding))


def _row_offsets(op: str, x: Tensor, cu_seqlens: Tensor | None) -> Tensor:
    if cu_seqlens is None:
        return torch.arange(x.shape[0] + 1, dtype=torch.int32, device=x.device) * x.shape[1]
    if x.shape[0] != 1:
        raise GdnValueError(f"{op}: cu_seqlens must be None for a batch of {x.shape[0]}; got a value", op, "cu_seqlens")
    return cu_seqlens


def _gate(op: str, a: Tensor, A_log: Tensor | None, dt_bias: Tensor | None) -> Tensor:
    if A_log is None:
        raise GdnValueError(f"{op}: A_log must be given with use_gate_in_kernel; got None", op, "A_log")
    packed = a.reshape(-1, a.shape[-1])
    g, _ = ops.gdn_gating(A_log, packed, packed, torch.zeros_like(A_log) if dt_bias is None else dt_bias)
    return g.view(a.shape)


def _state_v_first(op: str, state_v_first: bool, kwargs: dict[str, Any]) -> bool:
    if "transpose_state_layout" in kwargs:
        if state_v_first:
            raise GdnValueError(
                f"{op}: transpose_state_layout must not be given with state_v_first; got both",
                op, "transpose_state_layout",
            )  # fmt: skip
        warnings.warn(f"{op}: transpose_state_layout is now state_v_first", DeprecationWarning, stacklevel=3)
        state_v_first = kwargs.pop("transpose_state_layout")
    _refuse_unknown(op, kwargs)
    return state_v_first


def _refuse_unknown(op: str, kwargs: dict[str, Any]) -> None:
    for name in kwargs:
        raise GdnTypeError(f"{op}: {name} must not be given; got an argument of another function", op, name)
