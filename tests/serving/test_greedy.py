"""Greedy tokens of a served model equal transformers', cold, from a cached prefix, alone and in batches."""

from __future__ import annotations

import pytest

from serving.server import Service

pytestmark = pytest.mark.serving

LENGTHS = (1, 2, 3, 5, 31, 63, 64, 65, 127, 128, 129, 200)
TAILS = (1, 2, 63, 64, 65, 130)
# A prefix that ends on a chunk of 64, so that both radix strategies keep all of it.
PREFIX = 128


def test_cold_prompts(cold: Service) -> None:
    for length in LENGTHS:
        sample = cold.checkpoint.sample(length, seed=1)
        answer = cold.server.generate(sample.prompt)
        assert (answer.output, answer.cached_tokens) == (sample.output, 0), f"prompt of {length} tokens"


def test_cold_prompts_in_one_batch(cold: Service) -> None:
    samples = [cold.checkpoint.sample(length, seed=2) for length in LENGTHS]
    answers = cold.server.generate_batch([sample.prompt for sample in samples])
    assert [answer.output for answer in answers] == [sample.output for sample in samples]


@pytest.mark.parametrize("tail", TAILS)
def test_prefix_hit_equals_cold(cold: Service, tail: int) -> None:
    prefix = cold.checkpoint.sample(PREFIX, seed=3)
    longer = cold.checkpoint.sample(PREFIX + tail, seed=3, start=prefix.prompt)
    without_cache = cold.server.generate(longer.prompt)
    cold.server.flush()
    assert cold.server.generate(prefix.prompt).output == prefix.output
    with_cache = cold.server.generate(longer.prompt)
    assert (without_cache.cached_tokens, with_cache.cached_tokens) == (0, PREFIX)
    assert without_cache.output == longer.output
    assert with_cache.output == longer.output


@pytest.mark.parametrize("length", (184, 191, 192, 193, 195))
def test_hit_inside_a_chunk(cold: Service, length: int) -> None:
    """The cached depth is the last multiple of the grid, wherever the cached prompt ended."""
    prefix = cold.checkpoint.sample(length, seed=4)
    longer = cold.checkpoint.sample(length + 5, seed=4, start=prefix.prompt)
    assert cold.server.generate(prefix.prompt).output == prefix.output
    answer = cold.server.generate(longer.prompt)
    assert (answer.output, answer.cached_tokens) == (longer.output, length // cold.grid * cold.grid)


def test_hits_in_one_batch(cold: Service) -> None:
    """A batch of rows that continue different depths of one prefix, and one row that shares nothing."""
    prefix = cold.checkpoint.sample(PREFIX, seed=5)
    assert cold.server.generate(prefix.prompt).output == prefix.output
    hits = [cold.checkpoint.sample(PREFIX + tail, seed=5 + tail, start=prefix.prompt) for tail in (1, 2, 64, 65)]
    miss = cold.checkpoint.sample(70, seed=6)
    samples = [*hits, miss]
    answers = cold.server.generate_batch([sample.prompt for sample in samples])
    assert [answer.output for answer in answers] == [sample.output for sample in samples]
    assert [answer.cached_tokens for answer in answers] == [PREFIX] * len(hits) + [0]


def test_only_our_kernels_ran(service: Service) -> None:
    """The servers run under SGLANG_GDN_STRICT=1; the counters say the same from the inside."""
    before = service.server.stats()
    sample = service.checkpoint.sample(100, seed=7)
    assert service.server.generate(sample.prompt).output == sample.output
    after = service.server.stats()
    gdn_layers = 3
    calls = {op: after["calls"].get(op, 0) - before["calls"].get(op, 0) for op in ("gdn_prefill/cpu", "gdn_decode/cpu")}
    assert calls["gdn_prefill/cpu"] > 0 and calls["gdn_prefill/cpu"] % gdn_layers == 0
    assert calls["gdn_decode/cpu"] >= gdn_layers * (len(sample.output) - 1)
    assert set(after["calls"]) == set(calls)
    assert after["fallbacks"] == {}
