"""What is installed and attached, found without initialising any device."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import TypedDict

PACKAGES = ("torch", "sglang", "transformers", "triton", "torch_npu")
NVML = "libnvidia-ml.so.1"
CUDA_DRIVER = "libcuda.so.1"
CANN_FOLDER_VARIABLES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
CANN_DEFAULT_FOLDER = "/usr/local/Ascend/ascend-toolkit/latest"


class Gpu(TypedDict):
    name: str
    compute_capability: str


class Nvidia(TypedDict):
    """``driver`` and ``cuda`` (the newest CUDA that the driver runs) are None without a driver."""

    driver: str | None
    cuda: str | None
    gpus: list[Gpu]


class Ascend(TypedDict):
    cann: str | None
    npus: int


def package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def torch_cuda_runtime() -> str | None:
    """The CUDA version that torch was built for."""
    import torch

    return torch.version.cuda


def load_library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def cuda_version(number: int) -> str:
    """12080 -> "12.8"."""
    return f"{number // 1000}.{number % 1000 // 10}"


def nvidia() -> Nvidia:
    """Driver and GPUs through NVML, which creates no CUDA context. Ignores ``CUDA_VISIBLE_DEVICES``."""
    found = Nvidia(driver=None, cuda=None, gpus=[])
    if driver := load_library(CUDA_DRIVER):
        number = ctypes.c_int()
        if driver.cuDriverGetVersion(ctypes.byref(number)) == 0:
            found["cuda"] = cuda_version(number.value)
    nvml = load_library(NVML)
    if nvml is None or nvml.nvmlInit_v2() != 0:
        return found
    try:
        text = ctypes.create_string_buffer(96)
        if nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0:
            found["driver"] = text.value.decode()
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return found
        for index in range(count.value):
            gpu, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            if (
                nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu)) == 0
                and nvml.nvmlDeviceGetName(gpu, text, len(text)) == 0
                and nvml.nvmlDeviceGetCudaComputeCapability(gpu, ctypes.byref(major), ctypes.byref(minor)) == 0
            ):
                capability = f"{major.value}.{minor.value}"
                found["gpus"].append(Gpu(name=text.value.decode(), compute_capability=capability))
    finally:
        nvml.nvmlShutdown()
    return found


def cann_version() -> str | None:
    """The version that CANN's installer writes below its folder."""
    folders = [os.environ.get(name) for name in CANN_FOLDER_VARIABLES] + [CANN_DEFAULT_FOLDER]
    for folder in filter(None, folders):
        for file in sorted(Path(folder).glob("*/version.info")) + sorted(Path(folder).glob("version.*")):
            if match := re.search(r"[Vv]ersion\s*=\s*\[?([\w.]+)", file.read_text(errors="replace")):
                return match[1]
    return None


def ascend() -> Ascend:
    return Ascend(cann=cann_version(), npus=len(list(Path("/dev").glob("davinci[0-9]*"))))


def cpu_name() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that matter here; None if absent."""
    return {"python": platform.python_version()} | {name: package_version(name) for name in PACKAGES}
