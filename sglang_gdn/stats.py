"""Counters of what ran, and the one place where a fallback is allowed, counted and logged."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import TypedDict

from sglang_gdn.errors import GdnFallbackError

logger = logging.getLogger("sglang_gdn")

_calls: Counter[str] = Counter()
_fallbacks: Counter[str] = Counter()
_phases: dict[str, Counter[str]] = {}


class Stats(TypedDict):
    calls: dict[str, int]
    fallbacks: dict[str, int]
    phases: dict[str, dict[str, int]]


def stats() -> Stats:
    """Counters since the process started or ``reset()``.

    Returns:
        ``calls``: ``"<operator>/<device>"`` -> number of launches;
        ``fallbacks``: ``"<operator>: <reason>"`` -> number of times a slower path was taken;
        ``phases``: of served batches, ``"prefill"``, ``"decode"`` or ``"verify"`` -> ``batches``, ``rows``, ``tokens``
        and ``padded_rows``. A replayed CUDA graph counts here and makes no call.
    """
    phases = {phase: dict(counts) for phase, counts in _phases.items()}
    return Stats(calls=dict(_calls), fallbacks=dict(_fallbacks), phases=phases)


def reset() -> None:
    _calls.clear()
    _fallbacks.clear()
    _phases.clear()


def count_batch(phase: str, rows: int, tokens: int, padded_rows: int) -> None:
    counts = _phases.setdefault(phase, Counter())
    counts["batches"] += 1
    counts["rows"] += rows
    counts["tokens"] += tokens
    counts["padded_rows"] += padded_rows


def count_call(op: str, device: str) -> None:
    _calls[f"{op}/{device}"] += 1


def strict() -> bool:
    """Whether ``SGLANG_GDN_STRICT=1`` forbids fallbacks."""
    return os.environ.get("SGLANG_GDN_STRICT", "0") == "1"


def fallback(op: str, reason: str) -> None:
    """Account for a slower path: raise under strict, else count it and log each distinct reason once.

    Raises:
        GdnFallbackError: ``SGLANG_GDN_STRICT=1``.
    """
    key = f"{op}: {reason}"
    if strict():
        raise GdnFallbackError(f"SGLANG_GDN_STRICT=1 forbids a fallback of {key}")
    if key not in _fallbacks:
        logger.warning("fallback of %s", key)
    _fallbacks[key] += 1
