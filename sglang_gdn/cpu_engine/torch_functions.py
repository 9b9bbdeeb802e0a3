"""Torch functions in place of the parts of SGLang 0.5.23 that run only on a GPU."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu


def install() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if not torch.cuda.is_available():
        _use_cpu_device_module()
        _leave_memory_pageable()
    for target, function in REPLACEMENTS.items():
        HookRegistry.register(target, function, HookType.REPLACE)


def _use_cpu_device_module() -> None:
    """A CUDA build of torch names ``torch.cuda`` as the device module, driver or not; models ask it for a device."""
    stock = torch.get_device_module

    @functools.wraps(stock)
    def get_device_module(device: torch.device | str | None = None) -> Any:
        return torch.cpu if device is None else stock(device)

    torch.get_device_module = get_device_module  # type: ignore[assignment]


def _leave_memory_pageable() -> None:
    """The scheduler pins its track mask unconditionally; there is no device to copy it to."""
    torch.Tensor.pin_memory = lambda self, device=None: self  # type: ignore[method-assign, assignment, return-value]


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor | None, eps: float, activation: str) -> Tensor:
    """``rmsnorm(x) * weight * act(gate)`` over the last dimension, computed in float32, dtype of ``x``."""
    x32, gate32 = x.float(), gate.float()
    normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    if weight is not None:
        normed = normed * weight.float()
    return (normed * (gate32.sigmoid() if activation == "sigmoid" else silu(gate32))).to(x.dtype)


def fused_rms_norm_gated_forward(
    self: Any,
    x: Tensor,
    g: Tensor,
    residual: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
) -> Tensor:
    if residual is not None or prenorm:
        raise NotImplementedError("the CPU engine has no gated RMSNorm with a residual")
    return gated_rms_norm(x, g, self.weight, self.eps, self.activation)


def rms_norm_gated_forward(self: Any, x: Tensor, z: Tensor | None = None) -> Tensor:
    if z is None or not self.norm_before_gate or self.group_size is not None:
        raise NotImplementedError("the CPU engine has gated RMSNorm only with the norm first and one group")
    return gated_rms_norm(x, z, self.weight, self.eps, self.activation)


def fused_gate_sigmoid_mul_add(
    hidden_states: Tensor, gate_weight: Tensor, shared_output: Tensor, final_hidden_states: Tensor
) -> None:
    """Adds ``sigmoid(hidden_states @ gate_weight) * shared_output`` to ``final_hidden_states`` in place."""
    gate = torch.sigmoid(hidden_states.float() @ gate_weight.float()).unsqueeze(-1)
    final_hidden_states.add_((gate * shared_output.float()).to(final_hidden_states.dtype))


def track_mamba_states_all_layers(
    conv_states_pool: Tensor,
    ssm_states_pool: Tensor,
    cache_indices: Tensor,
    mamba_track_mask: Tensor,
    mamba_track_indices: Tensor,
    batch_size: int,
    check_freed_slots: bool = False,
) -> None:
    """Copies, in every layer, the slots ``cache_indices[mask]`` to ``mamba_track_indices[mask]``."""
    tracked = mamba_track_mask[:batch_size] & (cache_indices[:batch_size] >= 0)
    source = cache_indices[:batch_size][tracked].long()
    destination = mamba_track_indices[:batch_size][tracked].long()
    conv_states_pool[:, destination] = conv_states_pool[:, source]
    ssm_states_pool[:, destination] = ssm_states_pool[:, source]


def track_mamba_states_if_needed(conv_states: Tensor, ssm_states: Tensor, *arguments: Any, **keywords: Any) -> None:
    track_mamba_states_all_layers(conv_states.unsqueeze(0), ssm_states.unsqueeze(0), *arguments, **keywords)


def _platform_supports_mamba_cache_extra_buffer() -> bool:
    return True


_FLA = "sglang.kernels.ops.attention.fla"
_TRACK = "sglang.kernels.ops.mamba.mamba_state_scatter_triton"


# Target -> what replaces it.
def no_nccl(*_: Any, **__: Any) -> None:
    """In place of NCCL's communicator, which SGLang makes for several ranks whatever their device; gloo serves them."""


REPLACEMENTS = {
    "sglang.srt.distributed.device_communicators.pynccl.PyNcclCommunicator": no_nccl,
    f"{_FLA}.fused_norm_gate.FusedRMSNormGated.forward": fused_rms_norm_gated_forward,
    f"{_FLA}.layernorm_gated.RMSNorm.forward": rms_norm_gated_forward,
    "sglang.kernels.ops.elementwise.elementwise.fused_gate_sigmoid_mul_add": fused_gate_sigmoid_mul_add,
    f"{_TRACK}.track_mamba_states_all_layers": track_mamba_states_all_layers,
    f"{_TRACK}.track_mamba_states_if_needed": track_mamba_states_if_needed,
    "sglang.srt.arg_groups.mamba_hook._platform_supports_mamba_cache_extra_buffer": (
        _platform_supports_mamba_cache_extra_buffer
    ),
}
