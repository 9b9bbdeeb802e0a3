"""Adapters to SGLang, one module per line; each has ``LINE``."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_gdn.serving.compat.line import Line

ALLOW_UNTESTED = "SGLANG_GDN_ALLOW_UNTESTED_SGLANG"

NEWEST_TESTED = "0.5.23"

# SGLang version -> adapter.
_ADAPTERS = {"0.5.17": "sglang_0_5_17", NEWEST_TESTED: "sglang_0_5_23"}


def select() -> tuple[Line, str | None]:
    """The adapter for the installed SGLang and why it may not be used (None: it may)."""
    installed = version("sglang")
    name = _ADAPTERS.get(installed)
    line = import_module(f"{__name__}.{name or _ADAPTERS[NEWEST_TESTED]}").LINE
    if name is not None or os.environ.get(ALLOW_UNTESTED, "0") == "1":
        return line, None
    return line, (
        f"gdn_tile was tested with SGLang {', '.join(_ADAPTERS)}; got SGLang {installed}. Install a tested "
        f"version, or set {ALLOW_UNTESTED}=1 to try this one"
    )
