"""Stands in for ``sgl_kernel``, which cannot be imported without a CUDA driver and has no CPU build.

Every attribute and submodule exists, because SGLang imports many names that a CPU run never calls; calling one raises.
The few CPU operators that SGLang does call for Qwen3.5 are implemented with torch. ``convert_weight_packed`` must stay
undefined: SGLang takes its presence as Intel AMX support and then packs weights.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__version__ = "0.0.0+sglang_gdn.cpu_engine"


class Missing:
    """A name that can be imported and nested, but not called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Missing:
        return _missing(self.__name__, name)

    def __call__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError(f"{self.__name__} has no CPU implementation")


def _missing(owner: str, name: str) -> Missing:
    if name.startswith("__"):
        raise AttributeError(name)
    return Missing(f"{owner}.{name}")


def __getattr__(name: str) -> Missing:
    return _missing(__name__, name)


class _MissingModule(types.ModuleType):
    def __getattr__(self, name: str) -> Missing:
        return _missing(self.__name__, name)


class _MissingModuleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith(f"{__name__}."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _MissingModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def fused_sigmoid_mul_cpu(x: Tensor, gate: Tensor) -> None:
    """``x *= sigmoid(gate)`` in place."""
    x.mul_(gate.reshape(x.shape).float().sigmoid().to(x.dtype))


def _gemma_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps) * (1 + weight.float())).to(x.dtype)


def fused_qk_gemma_rmsnorm_cpu(
    q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float, head_dim: int
) -> tuple[Tensor, Tensor]:
    """Per-head RMSNorm of q and k, each ``[tokens * heads, head_dim]``."""
    return (
        _gemma_rms_norm(q.reshape(-1, head_dim), q_weight, eps),
        _gemma_rms_norm(k.reshape(-1, head_dim), k_weight, eps),
    )


def fused_qk_gemma_rmsnorm_with_gate_cpu(
    q_gate: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float, head_dim: int, num_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """As above, for q interleaved per head with its output gate; also returns the gate."""
    q, gate = q_gate.reshape(-1, num_heads, 2 * head_dim).split(head_dim, dim=-1)
    q, k = fused_qk_gemma_rmsnorm_cpu(q, k, q_weight, k_weight, eps, head_dim)
    return q, k, gate.reshape(-1, head_dim).contiguous()


def fused_qkvzba_split_reshape_cat_contiguous_cpu(
    qkvz: Tensor, ba: Tensor, num_k_heads: int, num_v_heads: int, head_k_dim: int, head_v_dim: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Splits the projections: qkv ``[tokens, D]``, z ``[tokens, HV, V]``, b and a ``[tokens, HV]``."""
    value_dim = num_v_heads * head_v_dim
    qkv, z = qkvz.split([2 * num_k_heads * head_k_dim + value_dim, value_dim], dim=-1)
    b, a = ba.split([num_v_heads, num_v_heads], dim=-1)
    return qkv.contiguous(), z.unflatten(-1, (num_v_heads, head_v_dim)).contiguous(), b.contiguous(), a.contiguous()


# Names that SGLang looks up in torch.ops.sgl_kernel, most of them while its modules are imported.
_OPERATORS = {
    "fused_sigmoid_mul_cpu": fused_sigmoid_mul_cpu,
    "fused_qk_gemma_rmsnorm_cpu": fused_qk_gemma_rmsnorm_cpu,
    "fused_qk_gemma_rmsnorm_with_gate_cpu": fused_qk_gemma_rmsnorm_with_gate_cpu,
    "fused_qkvzba_split_reshape_cat_contiguous_cpu": fused_qkvzba_split_reshape_cat_contiguous_cpu,
    **{
        name: Missing(f"torch.ops.sgl_kernel.{name}")
        for name in (
            "fused_gdn_gating_cpu",
            "fused_sigmoid_gating_delta_rule_update_cpu",
        )
    },
}

sys.meta_path.insert(0, _MissingModuleFinder())
for _name, _operator in _OPERATORS.items():
    setattr(torch.ops.sgl_kernel, _name, _operator)
