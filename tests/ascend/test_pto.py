"""Cube cores on the CPU simulator of TileLang-Ascend's wheel: another code generator and another machine than ours.

Of float16 only: that simulator takes bfloat16 for float16. And of kernels whose statements cover whole buffers: the
lowering to PTO takes sizes from the buffers and ignores the counts that our vector statements give.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from ascend import simulated
from ascend.chunk_stages import C, Stages
from cases import F16, F32, Heads
from compare import assert_close
from gdn_aot.generator.run import FOLDER, interpreter
from problems import delta_rule

CLANG = "clang++-19"
EXACT = 1e-6  # float32 sums of exact products
LENS, HEADS = [70, 0, 64, 1], Heads(2, 4)
HOST_FUNCTION = 'extern "C" void call('
DEVICE_FUNCTION = 'extern "C" __global__'
# That simulator cannot round what it stores, and the lowering sizes a load to the start of a buffer like the buffer.
WY_FAST = {
    "half *w_handle = reinterpret_cast<__gm__ half *>": "float *w_handle = reinterpret_cast<__gm__ float *>",
    "copy_l0c_to_gm_dynamic<half,": "copy_l0c_to_gm_dynamic<float,",
    "1, 1, 1, 128, 64, -1, 8192, 4096, 64, 1, 128, 64>": "1, 1, 1, 64, 64, -1, 8192, 4096, 64, 1, 64, 64>",
    "Shape<1, 1, 1, 128, 64>": "Shape<1, 1, 1, 64, 64>",
}  # fmt: skip

pytestmark = [
    pytest.mark.generator,
    pytest.mark.usefixtures("generator"),
    pytest.mark.skipif(shutil.which(CLANG) is None, reason=f"no {CLANG}"),
]


def build(folder: Path, kernel: str, changes: dict[str, str]) -> ctypes.CDLL:
    command, environment = interpreter()
    script = Path(__file__).with_name("lower_pto.py")
    text = subprocess.run(
        [*command, script, kernel, json.dumps({"act": "float16"})],
        env=environment, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    text = text[text.index(DEVICE_FUNCTION) : text.index(HOST_FUNCTION)]
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "kernel.hpp").write_text(text)
    wheel = (simulated.ROOT / FOLDER / "site/tilelang").resolve()
    subprocess.run(
        [CLANG, "-std=c++20", "-O1", "-w", "-fPIC", "-shared", "-D__CPU_SIM", '-DDEVICE_FUNCTION="kernel.hpp"',
         f"-I{folder}", f"-I{wheel}/src", f"-I{wheel}/3rdparty/pto-isa/include", Path(__file__).with_name("pto.cpp"),
         "-o", folder / "kernel.so"], check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(folder / "kernel.so"))


def launch(library: ctypes.CDLL, blocks: int, tensors: list[Tensor | None], int32: list[int], int64: list[int]) -> None:
    pointers = [ctypes.c_void_p(x.data_ptr() if x is not None else None) for x in tensors]
    sizes = [ctypes.c_int32(x) for x in (blocks, *int32)] + [ctypes.c_int64(x) for x in int64]
    for block in range(blocks):
        ctypes.c_int64.in_dll(library, "block").value = block
        library.main_kernel(*pointers, *sizes, ctypes.c_uint64(0))


@pytest.fixture
def stages() -> Stages:
    """Inputs of the stages, and what they must make; nothing is launched on our simulator."""
    run = Stages(SimpleNamespace(workspace=lambda: None), delta_rule("cpu", HEADS, LENS, act=F16, norm=False))
    run.args["cu_seqlens"] = run.args["cu_seqlens"].to(torch.int32)
    return run


def test_wy_fast(stages, tmp_path):
    gen = torch.Generator().manual_seed(0)
    k, starts = stages.args["k"], stages.args["cu_seqlens"]
    erase = stages.between["erase"].copy_(torch.randn(stages.between["erase"].shape, generator=gen))
    for chunk in stages.chunks():
        erase[chunk.number, :, :, chunk.valid :] = 0  # as solve_tril leaves it past the end of a row
    w = stages.between["w"] = torch.full_like(stages.between["w"], torch.nan, dtype=F32)
    chunks, heads = w.shape[:2]
    launch(
        build(tmp_path, "wy_fast", WY_FAST), 3, [k, erase, starts, w],
        [len(LENS), 1, k.stride(1), HEADS.ratio], [k.shape[0], k.stride(0), chunks, heads, len(starts)],
    )  # fmt: skip
    assert_close(stages.found("w"), stages.expected("wy_fast")["w"], EXACT, "w")


def test_products_of_scaled_dot_kkt(stages, tmp_path):
    """A block a task, because nothing waits for the vector cores: each keeps its product in its workspace."""
    k, starts, lower = stages.args["k"], stages.args["cu_seqlens"], stages.between["lower"]
    stages.between["head_gates"].zero_()
    stages.between["head_beta"].fill_(1)
    chunks, heads = lower.shape[:2]
    tasks = chunks * HEADS.H
    workspace = torch.full((tasks, 2, C, C), torch.nan)
    launch(
        build(tmp_path, "scaled_dot_kkt", {}), tasks, [k, None, None, starts, None, workspace],
        [len(LENS), 1, k.stride(1), HEADS.H, HEADS.ratio],
        [k.shape[0], k.stride(0), len(starts), chunks, heads, 2 * tasks],
    )  # fmt: skip
    products = workspace[:, 0].view(chunks, HEADS.H, C, C).repeat_interleave(HEADS.ratio, 1)
    stages.between["lower"] = products.tril(-1)
    assert_close(stages.found("lower"), stages.expected("scaled_dot_kkt")["lower"], EXACT, "products")
