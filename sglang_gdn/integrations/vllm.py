"""``register``: the GDN layers of vLLM's Qwen3-Next and Qwen3.5 models run on ``sglang_gdn.ops``.

Entry point of the group ``vllm.general_plugins``, which vLLM calls in each of its processes. Does nothing unless
``SGLANG_GDN_VLLM=1``; then it replaces one method of vLLM's layer class in memory, so that convolution, gates and delta
rule of prefill and decode are ours, on vLLM's own state blocks. Projections, gated norm, blocks and CUDA graphs stay
vLLM's. Written for the interface of one release; any other is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from sglang_gdn import ops
from sglang_gdn.errors import GdnUnsupportedError
from sglang_gdn.serving.seams import Seam, problems
from sglang_gdn.stats import fallback

__all__ = ["register"]

OP = "integrations.vllm"
SWITCH = "SGLANG_GDN_VLLM"
INTERFACE_OF = "0.33.0"

_LAYER = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn:QwenGatedDeltaNetAttention"
_METADATA = "vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadata"
_CORE = ("self", "mixed_qkv", "b", "a", "core_attn_out")
_METADATA_FIELDS = (
    "num_prefills", "num_decodes", "num_decode_tokens", "num_actual_tokens", "spec_sequence_masks",
    "flashinfer_checkpoint_plan", "non_spec_state_indices_tensor", "prefill_query_start_loc", "prefill_state_indices",
    "prefill_has_initial_state",
)  # fmt: skip

SEAMS = (
    Seam(f"{_LAYER}._forward_core", _CORE, "replaced"),
    *(Seam(f"{_METADATA}.{field}", None, "read") for field in _METADATA_FIELDS),
    Seam("vllm.forward_context:get_forward_context", (), "finds the metadata of a layer"),
    Seam("vllm.model_executor.layers.mamba.mamba_utils:is_conv_state_dim_first", (), "order of the conv states"),
    Seam("vllm.v1.attention.backends.utils:NULL_BLOCK_ID", None, "block of rows that are padding"),
    Seam("vllm.platforms:current_platform", None, "device"),
)


def register() -> None:
    """Replaces the kernels if ``SGLANG_GDN_VLLM=1``. Calling it twice is the same as once.

    Raises:
        GdnUnsupportedError: another release of vLLM or another interface than that of ``INTERFACE_OF``, a device other
            than a CUDA GPU, or conv states that are not stored channel by channel.
    """
    if os.environ.get(SWITCH, "0") != "1":
        return
    installed = version("vllm")
    if installed.split("+")[0] != INTERFACE_OF:
        raise _refusal("vllm", f"be {INTERFACE_OF} with {SWITCH}=1", installed)
    if found := problems(SEAMS):
        raise _refusal("vllm", f"have the interface of {INTERFACE_OF}", "\n  ".join(["another:", *found]))
    layers, mamba_utils, platforms = (
        import_module(seam.path.partition(":")[0]) for seam in (SEAMS[0], SEAMS[-3], SEAMS[-1])
    )
    if not platforms.current_platform.is_cuda():
        raise _refusal("device", "be a CUDA GPU: elsewhere vLLM does not call what is replaced", "another platform")
    if not mamba_utils.is_conv_state_dim_first():
        raise _refusal("VLLM_SSM_CONV_STATE_LAYOUT", "be DS", "SD, vLLM's default")
    layer_class = layers.QwenGatedDeltaNetAttention
    if not hasattr(layer_class._forward_core, "replaced"):
        layer_class._forward_core = _replacement(layer_class._forward_core)


def _refusal(argument: str, rule: str, got: str) -> GdnUnsupportedError:
    return GdnUnsupportedError(f"{OP}: {argument} must {rule}; got {got}", OP, argument)


def _replacement(stock: Callable[..., None]) -> Callable[..., None]:
    from vllm.forward_context import get_forward_context
    from vllm.v1.attention.backends.utils import NULL_BLOCK_ID

    def slots_of(blocks: Tensor) -> Tensor:
        return torch.where(blocks == NULL_BLOCK_ID, -1, blocks)

    def forward_core(self: Any, mixed_qkv: Tensor, b: Tensor, a: Tensor, core_attn_out: Tensor) -> None:
        """``[T, D]``, ``[T, HV]``, ``[T, HV]`` in, ``[T, HV, V]`` out; decoded tokens come before those of prompts."""
        of_layers = get_forward_context().attn_metadata
        metadata = of_layers.get(self.prefix) if isinstance(of_layers, dict) else None
        if metadata is None:
            return  # vLLM measures its memory; nothing of ours is compiled on a first call
        if metadata.spec_sequence_masks is not None:
            fallback(OP, "draft tokens keep vLLM's kernels")
            return stock(self, mixed_qkv, b, a, core_attn_out)
        if metadata.flashinfer_checkpoint_plan is not None:
            fallback(OP, "checkpoints inside a prompt keep vLLM's kernels")
            return stock(self, mixed_qkv, b, a, core_attn_out)
        conv_pool, ssm_pool = self.kv_cache[:2]
        arguments = {
            "conv_weight": self.conv1d.weight.squeeze(1),
            "conv_bias": self.conv1d.bias,
            "A_log": self.A_log,
            "dt_bias": self.dt_bias,
            "num_k_heads": self.num_k_heads // self.tp_size,
            "num_v_heads": self.num_v_heads // self.tp_size,
            "head_k_dim": self.head_k_dim,
            "head_v_dim": self.head_v_dim,
            "conv_pool": conv_pool,
            "ssm_pool": ssm_pool,
            "activation": self.activation,
        }
        tokens = metadata.num_actual_tokens
        decoded = metadata.num_decode_tokens if metadata.num_prefills > 0 else tokens
        if metadata.num_decodes > 0:
            ops.gdn_decode(
                mixed_qkv[:decoded], a[:decoded], b[:decoded],
                cache_indices=slots_of(metadata.non_spec_state_indices_tensor[:decoded]),
                out=core_attn_out[:decoded].unsqueeze(0), **arguments,
            )  # fmt: skip
        if metadata.num_prefills > 0:
            ops.gdn_prefill(
                mixed_qkv[decoded:tokens], a[decoded:tokens], b[decoded:tokens],
                query_start_loc=metadata.prefill_query_start_loc,
                cache_indices=slots_of(metadata.prefill_state_indices),
                has_initial_state=metadata.prefill_has_initial_state,
                out=core_attn_out[decoded:tokens].unsqueeze(0), **arguments,
            )  # fmt: skip

    forward_core.replaced = stock  # type: ignore[attr-defined]
    return forward_core
