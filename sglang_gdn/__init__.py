"""Fused Gated DeltaNet operators, and the ``gdn_tile`` attention backend that serves GDN hybrids in SGLang."""

from importlib.metadata import version

from sglang_gdn.stats import stats

__all__ = ["__version__", "stats"]
__version__ = version("sglang-gdn")
