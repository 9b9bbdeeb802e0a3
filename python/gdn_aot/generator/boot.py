"""Makes ``import tilelang`` work without PyTorch, CANN, Cython and an NPU: only its lowering is used.

Importing this module replaces the run-time modules that TileLang imports by names without behaviour. What lowers the
kernels is the package's own, unmodified code.
"""

from __future__ import annotations

import sys
import types

FLOATS = ("float16", "float32", "float64", "bfloat16", "half", "float", "double")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "int", "long")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


class TorchDType:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Anything:
    """Stands for any function, class or decorator of an absent package."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __call__(self, *args: object, **kwargs: object) -> object:
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: object) -> Anything:
        return self

    __ror__ = __or__


class AbsentModule(types.ModuleType):
    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


def absent(name: str, **attributes: object) -> None:
    module = AbsentModule(name)
    module.__path__ = []
    module.__dict__.update(attributes)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)


absent(
    "torch", Tensor=type("Tensor", (), {}), dtype=TorchDType, __version__="2.6.0",
    **{name: TorchDType(name) for name in FLOATS + INTEGERS + FLOAT8},
)  # fmt: skip
for submodule in ("nn", "nn.functional", "utils", "utils.dlpack", "testing"):
    absent(f"torch.{submodule}")
# One pass of the lowering asks whether there is an NPU; with one it takes the path that a machine with CANN takes.
absent("torch.npu", is_available=lambda: True, current_device=lambda: 0)
absent("torch.cuda", is_available=lambda: False)
absent("torch_npu")
for tool in ("pytest", "matplotlib", "pandas", "scipy"):
    absent(tool)
absent("tilelang.jit.adapter.cython", CythonKernelAdapter=type("CythonKernelAdapter", (), {}))
