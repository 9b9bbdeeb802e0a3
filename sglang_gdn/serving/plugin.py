"""Entry point of the group ``sglang.srt.plugins``; SGLang calls ``register`` once in every process it starts."""

from __future__ import annotations

from sglang_gdn import cpu_engine
from sglang_gdn.serving import compat


def register() -> None:
    """Makes ``gdn_tile`` selectable. Loads no kernel and initialises no device.

    A refusal (an SGLang version that was not tested) is raised when ``gdn_tile`` is selected, not here: SGLang logs
    errors of this function and carries on, and a server that does not ask for ``gdn_tile`` is none of our business.
    """
    if cpu_engine.requested():
        cpu_engine.install()
    adapter, refusal = compat.select()
    adapter.install(refusal)
