"""Whether the rows of a prefill are cut into segments that are worked on side by side.

Decided from shapes alone, with rows taken to be equally long; where they are not, longer ones get more segments.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

import torch

CHUNK_SIZE = 64
MODES = ("auto", "always", "never")
MAX_SEGMENTS = 16
MULTIPROCESSORS_PER_ITEM = 2

# One H200, microseconds; see docs/sm90-notes.md.
WHOLE_CHUNK, OUTPUT_CHUNK, SEGMENT_CHUNK, JOIN = 1.72, 1.78, 1.3, 1.2
ONE_LAUNCH, THREE_LAUNCHES = 7.0, 28.0
WORTHWHILE = 0.9  # of the time of whole rows


class Settings(NamedTuple):
    """``mode``: one of ``MODES``. ``min_tokens``: with ``auto``, shorter rows stay whole (on the average of a call)."""

    mode: str
    min_tokens: int


def settings_of(environment: dict[str, str] | os._Environ[str]) -> Settings:
    """
    Raises:
        ValueError: a variable that is set to something else than the documentation lists.
    """
    mode = environment.get("SGLANG_GDN_CONTEXT_PARALLEL", "auto")
    if mode not in MODES:
        raise ValueError(f"SGLANG_GDN_CONTEXT_PARALLEL must be one of {', '.join(MODES)}; got {mode!r}")
    min_tokens = environment.get("SGLANG_GDN_CONTEXT_PARALLEL_MIN_TOKENS", "1024")
    if not min_tokens.isdecimal():
        raise ValueError(f"SGLANG_GDN_CONTEXT_PARALLEL_MIN_TOKENS must be a number of tokens; got {min_tokens!r}")
    return Settings(mode, int(min_tokens))


settings = settings_of(os.environ)


def forbid() -> None:
    """Rows stay whole from now on: the bits of a row then do not depend on the batch, nor on cuts between chunks."""
    global settings
    settings = settings._replace(mode="never")


@lru_cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def segment_chunks(rows: int, tokens: int, value_heads: int, multiprocessors: int) -> int:
    """Chunks of 64 tokens in a segment, or 0 to leave rows whole.

    Args:
        rows, tokens, value_heads: those of a call, each at least 1.
        multiprocessors: of the device.
    """
    return _segment_chunks(settings, rows, tokens, value_heads, multiprocessors // MULTIPROCESSORS_PER_ITEM)


@lru_cache(maxsize=4096)
def _segment_chunks(settings: Settings, rows: int, tokens: int, value_heads: int, at_once: int) -> int:
    if settings.mode == "never" or (settings.mode == "auto" and tokens < rows * settings.min_tokens):
        return 0
    chunks = -(-tokens // (rows * CHUNK_SIZE))
    heads = rows * value_heads

    def rounds(items: int) -> int:
        return -(-items // at_once)

    def time(length: int) -> float:
        segments = -(-chunks // length)
        found_first = rounds(heads * max(0, 2 * segments - 3)) * SEGMENT_CHUNK
        outputs = rounds(heads * segments) * OUTPUT_CHUNK
        return THREE_LAUNCHES + length * (found_first + outputs) + JOIN * max(0, segments - 2)

    lengths = {-(-chunks // segments) for segments in range(2, MAX_SEGMENTS + 1)}
    best = min(lengths, key=lambda length: (time(length), length))
    whole = ONE_LAUNCH + rounds(heads) * chunks * WHOLE_CHUNK
    return best if settings.mode == "always" or time(best) < WORTHWHILE * whole else 0
