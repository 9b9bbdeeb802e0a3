"""``lower_pto.py KERNEL SPECIALIZATION``, in the generator's interpreter: prints a kernel, lowered to PTO."""

from __future__ import annotations

import json
import sys
from typing import Any

import gdn_aot.generator.boot  # noqa: F401  must come before TileLang
from gdn_aot import lowering
from gdn_aot.registry import registered_kernels


def lower(function: Any) -> str:
    import tilelang

    with tilelang.transform.PassContext(opt_level=3, config=lowering.PASSES):
        return tilelang.engine.lower(function, target="pto", platform="A2").kernel_source


lowering.lower = lower  # before a kernel imports it
print(registered_kernels()[sys.argv[1]].generate_source(**json.loads(sys.argv[2])))
