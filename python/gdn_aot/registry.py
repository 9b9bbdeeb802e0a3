"""Kernels and their specializations, as data that needs no compiler to be read.

A *kernel* is an algorithm; a *specialization* is one choice of its compile-time constants. Everything else (rows,
tokens, heads, pitches, the number of blocks) is a run-time argument, so that few variants serve every model.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from gdn_aot.kernels import ascend


class DType(StrEnum):
    """Element types; the value is the name that TileLang, torch and the manifest use."""

    F32 = "float32"
    BF16 = "bfloat16"
    F16 = "float16"
    I32 = "int32"
    U8 = "uint8"

    @property
    def tag(self) -> str:
        return {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "int32": "i32", "uint8": "u8"}[self.value]


class Role(StrEnum):
    """What a kernel does with the memory behind a tensor argument."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


@dataclass(frozen=True)
class Tensor:
    """One tensor argument: its name in the kernel, its element type, what happens to it, and its shape in words."""

    name: str
    dtype: DType
    role: Role
    shape: str


class Kernel(Protocol):
    """What a class under ``@register_kernel`` provides. CONSTANTS are sizes that the C++ wrapper needs too."""

    NAME: ClassVar[str]
    SPECIALIZATIONS: ClassVar[Sequence[Any]]
    CONSTANTS: ClassVar[dict[str, int]]

    @staticmethod
    def tensors(spec: Any) -> list[Tensor]: ...

    @staticmethod
    def generate_source(**spec: Any) -> str: ...


_KERNELS: dict[str, type[Kernel]] = {}


def register_kernel(kernel: type[Kernel]) -> type[Kernel]:
    """Class decorator: makes a kernel known under its NAME.

    Raises:
        ValueError: the name is taken, there is no specialization, or two specializations have the same name.
    """
    if kernel.NAME in _KERNELS:
        raise ValueError(f"register_kernel: NAME must be unused; got {kernel.NAME}")
    if not kernel.SPECIALIZATIONS:
        raise ValueError(f"register_kernel: {kernel.NAME} must have at least one specialization; got none")
    names = [variant_name(kernel, spec) for spec in kernel.SPECIALIZATIONS]
    if len(set(names)) != len(names):
        raise ValueError(f"register_kernel: specializations of {kernel.NAME} must differ; got {names}")
    _KERNELS[kernel.NAME] = kernel
    return kernel


def registered_kernels() -> dict[str, type[Kernel]]:
    """Kernels by name, after importing every module of ``gdn_aot.kernels.ascend``."""
    for module in pkgutil.iter_modules(ascend.__path__):
        importlib.import_module(f"{ascend.__name__}.{module.name}")
    return dict(sorted(_KERNELS.items()))


def spec_fields(spec: Any) -> dict[str, Any]:
    """A specialization as JSON values."""
    return {name: value.value if isinstance(value, StrEnum) else value for name, value in asdict(spec).items()}


def variant_name(kernel: type[Kernel], spec: Any) -> str:
    """``causal_conv1d_update_act_bf16_window_f32``: also the stem of the source file and the C symbol."""
    fields = (f"{name}_{value.tag if isinstance(value, DType) else value}" for name, value in asdict(spec).items())
    return "_".join([kernel.NAME, *fields])
