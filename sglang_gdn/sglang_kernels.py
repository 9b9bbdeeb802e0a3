"""SGLang's own Triton kernels behind the calls of ``ops`` that ``integrations.transformers`` makes.

They are what ``python -m sglang_gdn eval --sglang`` compares with: convolution, gates and chunk rule of a prefill,
convolution update and packed decode of a step, called as SGLang's backend calls them. Without a GPU they run in
Triton's interpreter (``interpret`` before anything imports Triton). That computes wrongly in bfloat16, and SGLang's
chunk rule refuses float32, which leaves float16.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

__all__ = ["gdn_decode", "gdn_prefill", "interpret"]

_FLA = "sglang.kernels.ops.attention.fla"
_MODULES = (
    f"{_FLA}.chunk",
    f"{_FLA}.fused_recurrent",
    "sglang.kernels.ops.attention.linear.fused_gdn_gating",
    "sglang.kernels.ops.mamba.causal_conv1d_triton",
)


def interpret() -> None:
    """Lets this process run SGLang's kernels on CPU tensors.

    Raises:
        RuntimeError: Triton is loaded already, for compiling.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("sglang_kernels.interpret: must be called before triton is imported; got a loaded triton")
    os.environ["TRITON_INTERPRET"] = "1"
    for path in _MODULES:
        import_module(path)
    import triton.language as tl
    from triton.runtime.autotuner import Autotuner

    sys.modules[f"{_FLA}.utils"].custom_device_ctx = lambda index: nullcontext()  # type: ignore[attr-defined]
    Autotuner.run = _run_first_configuration
    # Triton puts interpreted functions into its own module; other modules hold the compiled ones under their own names.
    names = {id(getattr(tl, name)): name for name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt")}
    for path, module in list(sys.modules.items()):
        if path.startswith("sglang.kernels."):
            for attribute, value in list(vars(module).items()):
                if id(value) in names:
                    setattr(module, attribute, _Interpreted(names[id(value)]))


def _run_first_configuration(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Nothing is gained by timing configurations in the interpreter."""
    return self.fn.run(*args, **kwargs, **self.configs[0].all_kwargs())


class _Interpreted:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any) -> Any:
        import triton.language as tl

        return getattr(tl, self.name)(*args)


def gdn_prefill(
    mixed_qkv: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    conv_weight: Tensor,
    conv_bias: Tensor | None,
    A_log: Tensor,
    dt_bias: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_pool: Tensor,
    ssm_pool: Tensor,
    cache_indices: Tensor,
    query_start_loc: Tensor,
    has_initial_state: Tensor,
    activation: str,
) -> Tensor:
    """Arguments, result and effects of ``ops.gdn_prefill``."""
    from sglang.kernels.ops.attention.fla.chunk import chunk_gated_delta_rule
    from sglang.kernels.ops.attention.linear.fused_gdn_gating import fused_gdn_gating
    from sglang.kernels.ops.mamba.causal_conv1d_triton import causal_conv1d_fn

    ssm_pool[cache_indices[~has_initial_state].long()] = 0
    convolved = causal_conv1d_fn(
        mixed_qkv.transpose(0, 1), conv_weight, conv_bias, conv_states=conv_pool, query_start_loc=query_start_loc,
        seq_lens_cpu=query_start_loc.diff().tolist(), cache_indices=cache_indices, has_initial_state=has_initial_state,
        activation=activation,
    ).transpose(0, 1)  # fmt: skip
    key_dim = num_k_heads * head_k_dim
    parts = convolved[: len(mixed_qkv)].split([key_dim, key_dim, num_v_heads * head_v_dim], dim=1)
    q, k, v = (
        part.unflatten(1, (-1, size)).unsqueeze(0).contiguous()
        for part, size in zip(parts, (head_k_dim, head_k_dim, head_v_dim), strict=True)
    )
    g, beta = fused_gdn_gating(A_log, a, b, dt_bias)
    return chunk_gated_delta_rule(
        q=q, k=k, v=v, g=g, beta=beta, initial_state=ssm_pool, initial_state_indices=cache_indices,
        cu_seqlens=query_start_loc, head_first=False, use_qk_l2norm_in_kernel=True,
    )[0]  # fmt: skip


def gdn_decode(
    mixed_qkv: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    conv_weight: Tensor,
    conv_bias: Tensor | None,
    A_log: Tensor,
    dt_bias: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_pool: Tensor,
    ssm_pool: Tensor,
    cache_indices: Tensor,
    activation: str,
) -> Tensor:
    """Arguments, result and effects of ``ops.gdn_decode``."""
    from sglang.kernels.ops.attention.fla.fused_recurrent import fused_recurrent_gated_delta_rule_packed_decode
    from sglang.kernels.ops.mamba.causal_conv1d_triton import causal_conv1d_update

    convolved = causal_conv1d_update(
        mixed_qkv, conv_pool, conv_weight, conv_bias, activation, conv_state_indices=cache_indices
    )
    out = torch.empty((len(mixed_qkv), 1, num_v_heads, head_v_dim), dtype=mixed_qkv.dtype, device=mixed_qkv.device)
    fused_recurrent_gated_delta_rule_packed_decode(
        mixed_qkv=convolved, a=a, b=b, A_log=A_log, dt_bias=dt_bias, scale=head_k_dim**-0.5, initial_state=ssm_pool,
        out=out, ssm_state_indices=cache_indices, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    return out.transpose(0, 1)
