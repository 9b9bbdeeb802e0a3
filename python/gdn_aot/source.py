"""From what TileLang lowers to what is committed: one name a variant, and a launch function with named arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gdn_aot.registry import DType, Kernel, Tensor, spec_fields, variant_name

DEVICE_FUNCTION = 'extern "C" __global__ __aicore__ void main_kernel('
HOST_PART = "void main_kernel_tiling("
TEMPLATES = '#include "tl_templates/ascend/common.h"\n'
OWN_TEMPLATES = "#include <gdn_ascend_tile.hpp>\n"  # for what tile.py emits and TileLang does not have
SYNC_ADDRESS = ("uint64_t", "fftsAddr")
SCALAR_TYPES = {"int32_t", "int64_t", "float"}
CPP_DTYPES = {DType.F32: "f32", DType.BF16: "bf16", DType.F16: "f16", DType.I32: "i32", DType.U8: "boolean"}


class SourceError(Exception):
    """The lowered text does not look as expected, or disagrees with the kernel's description."""


@dataclass(frozen=True)
class Scalar:
    type: str
    name: str


@dataclass(frozen=True)
class Signature:
    tensors: list[str]
    scalars: list[Scalar]


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def parse_signature(text: str) -> Signature:
    """Arguments of the lowered device function: tensors first, then scalars, then the address for core flags."""
    if text.count(DEVICE_FUNCTION) != 1 or text.count(HOST_PART) != 1:
        raise SourceError("lowered text must have one device function and one host function")
    begin = text.index(DEVICE_FUNCTION) + len(DEVICE_FUNCTION)
    arguments = [tuple(argument.split()) for argument in text[begin : text.index(")", begin)].split(",")]
    if arguments[-1] != SYNC_ADDRESS:
        raise SourceError(f"the last argument must be {SYNC_ADDRESS}; got {arguments[-1]}")
    tensors = [name.removesuffix("_handle") for kind, name in arguments if kind == "GM_ADDR"]
    scalars = [Scalar(kind, name) for kind, name in arguments[:-1] if kind != "GM_ADDR"]
    unknown = [scalar for scalar in scalars if scalar.type not in SCALAR_TYPES]
    if unknown or arguments[len(tensors) :] != [*((s.type, s.name) for s in scalars), SYNC_ADDRESS]:
        raise SourceError(f"arguments must be tensors, then {sorted(SCALAR_TYPES)}; got {arguments}")
    return Signature(tensors, scalars)


def check_tensors(variant: str, text: str, signature: Signature, tensors: list[Tensor]) -> None:
    """The kernel's own description must name the tensors of the lowered function, in order and with their types."""
    names = [tensor.name for tensor in tensors]
    if signature.tensors != names:
        raise SourceError(f"{variant}: tensors must be {names}; got {signature.tensors}")
    c_types = {DType.F32: "float", DType.BF16: "bfloat16_t", DType.F16: "half", DType.I32: "int", DType.U8: "uint8_t"}
    for tensor in tensors:
        declared = re.findall(rf"GlobalTensor<(\w+)> {tensor.name};", text)
        if declared != [c_types[tensor.dtype]]:
            raise SourceError(f"{variant}: {tensor.name} must be {c_types[tensor.dtype]}; got {declared}")


def provenance(kernel: type[Kernel]) -> str:
    return (
        f"// Generated from python/{kernel.__module__.replace('.', '/')}.py by `python -m gdn_aot compile-kernels`; "
        "not to be edited.\n"
    )


def variant_source(kernel: type[Kernel], spec: Any, lowered: str) -> tuple[str, Signature]:
    """The committed text of one variant, and the arguments it takes."""
    variant = variant_name(kernel, spec)
    signature = parse_signature(lowered)
    check_tensors(variant, lowered, signature, kernel.tensors(spec))
    device = lowered[: lowered.index(HOST_PART)].replace("main_kernel(", f"{variant}(").rstrip()
    if "gdn::ascend::device::" in device:
        device = device.replace(TEMPLATES, TEMPLATES + OWN_TEMPLATES)
    arguments = [f"a.{name}.data" for name in signature.tensors] + [f"a.{s.name}" for s in signature.scalars]
    launch = (
        f'extern "C" void gdn_ascend_{variant}(const gdn::ascend::{camel(kernel.NAME)}Arguments& a, '
        "aclrtStream stream) {\n"
        f"  GDN_ASCEND_LAUNCH({variant}, a.blocks, stream, {', '.join(arguments)});\n"
        "}\n"
    )
    includes = f'#include "ascend/generated/{kernel.NAME}.hpp"\n#include <gdn_ascend_launch.hpp>\n'
    return f"{provenance(kernel)}{device}\n\n{includes}\n{launch}", signature


def kernel_header(kernel: type[Kernel], signature: Signature) -> str:
    """The struct of named arguments, and the question which variant serves."""
    spec = kernel.SPECIALIZATIONS[0]
    name, fields = camel(kernel.NAME), list(spec_fields(spec))
    tensors = [f"  TensorArgument {t.name};  // {t.role}, {t.shape}" for t in kernel.tensors(spec)]
    scalars = [f"  {scalar.type} {scalar.name};" for scalar in signature.scalars]
    keys = ", ".join(f"DType {field}" for field in fields)
    constants = [f"  static constexpr int32_t k{camel(key)} = {value};" for key, value in kernel.CONSTANTS.items()]
    return (
        f'{provenance(kernel)}#pragma once\n\n#include "ascend/variant.hpp"\n\nnamespace gdn::ascend {{\n\n'
        f"struct {name}Arguments {{\n" + "\n".join([*constants, *tensors, *scalars]) + "\n};\n\n"
        f"// Null if no such variant is built.\nconst Variant<{name}Arguments>* find_{kernel.NAME}({keys});\n\n"
        f"// Refuses tensors whose element type is not that of the variant.\n"
        f"void launch(const Variant<{name}Arguments>& variant, const {name}Arguments& arguments, void* stream);\n\n"
        "}  // namespace gdn::ascend\n"
    )


def kernel_registry(kernel: type[Kernel]) -> str:
    """The table of variants."""
    name = camel(kernel.NAME)
    rows = []
    for spec in kernel.SPECIALIZATIONS:
        keys = ", ".join(f"DType::{CPP_DTYPES[DType(value)]}" for value in spec_fields(spec).values())
        dtypes = ", ".join(f"DType::{CPP_DTYPES[tensor.dtype]}" for tensor in kernel.tensors(spec))
        variant = variant_name(kernel, spec)
        rows.append(f'    {{"gdn_ascend_{variant}", {{{keys}}}, {{{dtypes}}}}},\n')
    fields = list(spec_fields(kernel.SPECIALIZATIONS[0]))
    checks = "".join(
        f'  expect_dtype(variant.name, "{tensor.name}", arguments.{tensor.name}, variant.tensors[{i}]);\n'
        for i, tensor in enumerate(kernel.tensors(kernel.SPECIALIZATIONS[0]))
    )
    return (
        f'{provenance(kernel)}#include "ascend/generated/{kernel.NAME}.hpp"\n\n'
        "namespace gdn::ascend {\nnamespace {\n\n"
        f"const Variant<{name}Arguments> kVariants[] = {{\n{''.join(rows)}}};\n\n}}  // namespace\n\n"
        f"const Variant<{name}Arguments>* find_{kernel.NAME}({', '.join(f'DType {field}' for field in fields)}) {{\n"
        f"  return find_variant(kVariants, {{{', '.join(fields)}}});\n}}\n\n"
        f"void launch(const Variant<{name}Arguments>& variant, const {name}Arguments& arguments, void* stream) {{\n"
        f"{checks}  launch_function<{name}Arguments>(variant.name)(arguments, stream);\n}}\n\n"
        "}  // namespace gdn::ascend\n"
    )
