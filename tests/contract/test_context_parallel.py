"""Which rows of a prefill are cut into segments. What the segments compute is tested on a GPU."""

from __future__ import annotations

import math

import pytest

from sglang_gdn import context_parallel
from sglang_gdn.context_parallel import MAX_SEGMENTS, Settings, segment_chunks, settings_of

H200 = 132


@pytest.fixture
def mode(monkeypatch):
    def choose(name: str, min_tokens: int = 0) -> None:
        monkeypatch.setattr(context_parallel, "settings", Settings(name, min_tokens))

    return choose


def test_settings():
    assert settings_of({}).mode == "auto"
    environment = {"SGLANG_GDN_CONTEXT_PARALLEL": "always", "SGLANG_GDN_CONTEXT_PARALLEL_MIN_TOKENS": "100"}
    assert settings_of(environment) == Settings("always", 100)


@pytest.mark.parametrize("name", ["SGLANG_GDN_CONTEXT_PARALLEL", "SGLANG_GDN_CONTEXT_PARALLEL_MIN_TOKENS"])
@pytest.mark.parametrize("value", ["", "yes", "-1", "1.5"])
def test_settings_that_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        settings_of({name: value})


@pytest.mark.parametrize(
    ("rows", "tokens", "heads"), [(1, 32768, 8), (2, 32768, 8), (1, 8192, 16), (1, 4096, 4), (1, 2048, 8)]
)
def test_long_rows_with_few_heads_are_cut(mode, rows, tokens, heads):
    mode("auto")
    chunks = segment_chunks(rows, tokens, heads, H200)
    assert 2 <= math.ceil(tokens / rows / 64 / chunks) <= MAX_SEGMENTS
    mode("never")
    assert segment_chunks(rows, tokens, heads, H200) == 0


@pytest.mark.parametrize(
    ("rows", "tokens", "heads"), [(1, 32768, 64), (8, 8192, 32), (32, 8192, 8), (1, 1024, 8), (1, 64, 1)]
)
def test_rows_that_fill_the_device_or_are_short_stay_whole(mode, rows, tokens, heads):
    mode("auto")
    assert segment_chunks(rows, tokens, heads, H200) == 0
    mode("always")
    assert segment_chunks(rows, tokens, heads, H200) >= 1


def test_forbidden_rows_stay_whole(mode):
    mode("always")
    context_parallel.forbid()
    assert segment_chunks(1, 32768, 8, H200) == 0


def test_threshold_is_the_average_length(mode):
    mode("auto", 16384)
    assert segment_chunks(2, 32768, 8, H200) > 0
    assert segment_chunks(2, 32767, 8, H200) == 0


def test_always_cuts_every_row_of_average_length_of_two_chunks_or_more(mode):
    mode("always", 10**6)
    for rows in (1, 3, 200):
        for tokens in (65, 128, 1000, 9999):
            assert segment_chunks(rows, rows * tokens, 4, H200) < math.ceil(tokens / 64)
