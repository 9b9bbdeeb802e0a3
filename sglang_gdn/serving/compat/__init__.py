"""Adapters to SGLang, one module per SGLang line.

An adapter has ``VERSIONS`` (the tested ones), ``SEAMS`` (every private SGLang symbol that is touched) and
``install(refusal)``.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import version
from types import ModuleType

ALLOW_UNTESTED = "SGLANG_GDN_ALLOW_UNTESTED_SGLANG"

NEWEST_TESTED = "0.5.23"

# SGLang version -> adapter.
_ADAPTERS = {NEWEST_TESTED: "sglang_0_5_23"}


def select() -> tuple[ModuleType, str | None]:
    """The adapter for the installed SGLang and why it may not be used (None: it may)."""
    installed = version("sglang")
    name = _ADAPTERS.get(installed)
    adapter = import_module(f"{__name__}.{name or _ADAPTERS[NEWEST_TESTED]}")
    if name is not None or os.environ.get(ALLOW_UNTESTED, "0") == "1":
        return adapter, None
    return adapter, (
        f"gdn_tile was tested with SGLang {', '.join(sorted(_ADAPTERS))}; got SGLang {installed}. Install a tested "
        f"version, or set {ALLOW_UNTESTED}=1 to try this one"
    )
