"""The ahead-of-time compiler, as far as it needs no generator: registry, signatures, manifest, committed files."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from ascend import simulated
from gdn_aot import manifest, registry, source
from gdn_aot.registry import DType, Role, Tensor, register_kernel, registered_kernels, variant_name
from problems import randn
from sglang_gdn import ops

GENERATED = simulated.ROOT / "csrc/ascend/generated"
LOWERED = """#include "tl_templates/ascend/common.h"
extern "C" __global__ __aicore__ void main_kernel( GM_ADDR x_handle,  GM_ADDR y_handle, int32_t n, float scale, int64_t pitch, uint64_t fftsAddr) {
  AscendC::GlobalTensor<float> x;
  AscendC::GlobalTensor<bfloat16_t> y;
}

void main_kernel_tiling(int64_t pitch) {
}
"""  # noqa: E501
TENSORS = [Tensor("x", DType.F32, Role.IN, "[N]"), Tensor("y", DType.BF16, Role.OUT, "[N]")]


def kernel(**attributes):
    @dataclass(frozen=True)
    class Spec:
        act: DType

    members = {"NAME": "toy", "CONSTANTS": {}, "SPECIALIZATIONS": (Spec(DType.BF16), Spec(DType.F16))}
    return type("Toy", (), members | attributes)


@pytest.fixture
def empty_registry(monkeypatch):
    monkeypatch.setattr(registry, "_KERNELS", {})


def test_names_and_specializations_are_unique(empty_registry):
    register_kernel(kernel())
    with pytest.raises(ValueError, match="NAME must be unused; got toy"):
        register_kernel(kernel())
    with pytest.raises(ValueError, match="must have at least one specialization"):
        register_kernel(kernel(NAME="other", SPECIALIZATIONS=()))
    twice = kernel().SPECIALIZATIONS[:1] * 2
    with pytest.raises(ValueError, match="must differ; got"):
        register_kernel(kernel(NAME="other", SPECIALIZATIONS=twice))


def test_signature_of_lowered_text():
    signature = source.parse_signature(LOWERED)
    assert signature.tensors == ["x", "y"]
    assert [(scalar.type, scalar.name) for scalar in signature.scalars] == [
        ("int32_t", "n"),
        ("float", "scale"),
        ("int64_t", "pitch"),
    ]
    source.check_tensors("toy", LOWERED, signature, TENSORS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LOWERED.replace("int32_t n", "double n"), "arguments must be tensors"),
        (LOWERED.replace("GM_ADDR y_handle, int32_t n", "int32_t n, GM_ADDR y_handle"), "arguments must be tensors"),
        (LOWERED.replace(", uint64_t fftsAddr", ""), "the last argument must be"),
        (LOWERED + LOWERED, "one device function"),
    ],
)
def test_unexpected_lowered_text_is_refused(text, message):
    with pytest.raises(source.SourceError, match=message):
        source.parse_signature(text)


def test_swapped_and_mistyped_tensors_are_refused():
    signature = source.parse_signature(LOWERED)
    with pytest.raises(source.SourceError, match=r"tensors must be \['y', 'x'\]; got \['x', 'y'\]"):
        source.check_tensors("toy", LOWERED, signature, TENSORS[::-1])
    half = [Tensor("x", DType.F16, Role.IN, "[N]"), TENSORS[1]]
    with pytest.raises(source.SourceError, match="x must be half; got"):
        source.check_tensors("toy", LOWERED, signature, half)


def test_committed_files_are_those_of_the_manifest():
    """And are generated from the kernels as they are now: `test_generator.py` lowers them again."""
    content = json.loads((GENERATED / "manifest.json").read_text())
    assert content["schema"] == manifest.SCHEMA
    assert content["tools"] == manifest.tool_versions()
    kernels = registered_kernels()
    assert content["kernels"].keys() == kernels.keys()
    files = {"manifest.json"}
    for name, entry in content["kernels"].items():
        files |= {f"{name}.hpp", f"{name}_registry.cpp"}
        specs = {variant_name(kernels[name], spec): spec for spec in kernels[name].SPECIALIZATIONS}
        assert entry["variants"].keys() == specs.keys()
        for variant, described in entry["variants"].items():
            files.add(described["file"])
            text = (GENERATED / described["file"]).read_bytes()
            assert manifest.sha256(text) == described["sha256"], variant
            assert manifest.inputs_hash(kernels[name], specs[variant]) == described["inputs"], (
                f"{variant} is older than its kernel: python -m gdn_aot compile-kernels --target ascend --device a2"
            )
    assert {path.name for path in GENERATED.iterdir()} == files


def test_manifest_has_no_absolute_path():
    assert not re.search(r'"/', (GENERATED / "manifest.json").read_text())


def configure(tmp_path: Path, *definitions: str) -> str:
    done = subprocess.run(
        ["cmake", "-S", simulated.SOURCES, "-B", tmp_path / "build", *definitions], capture_output=True, text=True
    )
    assert done.returncode != 0
    return " ".join(done.stderr.split())


def test_edited_and_missing_files_stop_the_build(tmp_path):
    folder = tmp_path / "generated"
    folder.mkdir()
    for path in GENERATED.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    edited = next(folder.glob("causal_conv1d_update_act_*.cpp"))
    edited.write_text(edited.read_text() + "\n")
    assert "must have SHA-256" in configure(tmp_path, f"-DGDN_ASCEND_GENERATED={folder}")
    edited.unlink()
    assert "got no file" in configure(tmp_path, f"-DGDN_ASCEND_GENERATED={folder}")
    (folder / "manifest.json").write_text(json.dumps({"schema": 1, "kernels": {}}))
    assert "must be a kernel of" in configure(tmp_path, f"-DGDN_ASCEND_GENERATED={folder}")
    (folder / "manifest.json").write_text(json.dumps({"schema": 0}))
    assert "schema must be 1; got 0" in configure(tmp_path, f"-DGDN_ASCEND_GENERATED={folder}")


def test_arguments_of_the_header_are_those_of_the_kernel():
    for name, each in registered_kernels().items():
        header = (GENERATED / f"{name}.hpp").read_text()
        assert re.findall(r"TensorArgument (\w+);", header) == [
            tensor.name for tensor in each.tensors(each.SPECIALIZATIONS[0])
        ]


def test_int64_indices_are_read_as_words(npu):
    gen = torch.Generator().manual_seed(0)
    x, weight = randn(gen, 2, 40, dtype=torch.bfloat16), randn(gen, 40, 4).to(torch.bfloat16)
    pools = [torch.zeros(3, 3, 40) for _ in range(2)]
    outs = [
        ops.causal_conv1d_update(x, weight, conv_pool=pool.mT, cache_indices=torch.tensor([2, -1], dtype=dtype))
        for pool, dtype in zip(pools, (torch.int32, torch.int64), strict=True)
    ]
    assert torch.equal(*outs) and torch.equal(*pools)
