"""TileLang function -> Ascend C text. Runs inside the generator's interpreter only."""

from __future__ import annotations

from typing import Any

# Synchronisation is written by hand in the kernels: the automatic pass orders every pipe against every other, which
# costs the overlap of copies and arithmetic. Buffers are placed by the compiler.
PASSES = {
    "tl.ascend_auto_sync": False,
    "tl.ascend_memory_planning": True,
    "tl.disable_safe_memory_legalize": True,
}
PLATFORMS = {"a2": "A2", "a3": "A3"}
device = "a2"


def lower(function: Any) -> str:
    import tilelang

    with tilelang.transform.PassContext(opt_level=3, config=PASSES):
        return tilelang.engine.lower(function, target="ascendc", platform=PLATFORMS[device]).kernel_source
