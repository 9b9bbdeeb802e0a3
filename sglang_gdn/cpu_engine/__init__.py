"""What SGLang lacks to serve Gated DeltaNet hybrids on a machine without a GPU.

Active only in processes started with ``environment()`` (``python -m sglang_gdn serve --device cpu``). It consists of a
package that stands in for ``sgl_kernel``, whose wheel needs a CUDA driver to be imported, and of torch functions in
place of the GPU-only ones on the path of Qwen3-Next and Qwen3.5 (``torch_functions``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

REQUEST = "SGLANG_GDN_CPU_ENGINE"
STAND_IN_PATH = str(Path(__file__).parent / "stand_in")


def requested() -> bool:
    """Whether this process was started with ``environment()``."""
    return os.environ.get(REQUEST, "0") == "1"


def environment() -> dict[str, str]:
    """The variables that a process needs before it imports SGLang; its children inherit them."""
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != STAND_IN_PATH]
    return {
        REQUEST: "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        # SGLang compiles small functions with torch; that needs a C++ compiler and gains nothing here.
        "TORCHDYNAMO_DISABLE": os.environ.get("TORCHDYNAMO_DISABLE", "1"),
        "PYTHONPATH": os.pathsep.join([STAND_IN_PATH, *inherited]),
    }


def enable() -> None:
    """Prepares this process, before it imports SGLang, to build ``sglang.Engine(device="cpu", ...)``."""
    if "sglang" in sys.modules:
        raise RuntimeError("sglang_gdn.cpu_engine.enable() must be called before sglang is imported")
    os.environ.update(environment())
    if STAND_IN_PATH not in sys.path:
        sys.path.insert(0, STAND_IN_PATH)


def install() -> None:
    """Registers the torch functions; called by the plugin when ``requested()``."""
    from sglang_gdn.cpu_engine import torch_functions

    torch_functions.install()
