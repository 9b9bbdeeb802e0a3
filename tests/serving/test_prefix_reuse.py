"""How much of a prompt comes from the cache, as both radix strategies promise."""

from __future__ import annotations

import pytest

from serving.server import Service

pytestmark = pytest.mark.serving

EXTRA_BUFFER = pytest.mark.parametrize("service", ["qwen3_5-extra_buffer"], indirect=True)
NO_BUFFER = pytest.mark.parametrize("service", ["qwen3_next_moe-no_buffer-chunked"], indirect=True)
CHUNKED = pytest.mark.parametrize(
    "service",
    ["qwen3_next_moe-no_buffer-chunked", "qwen3_5_moe-extra_buffer-chunked-mixed-retract"],
    indirect=True,
)


@EXTRA_BUFFER
def test_same_prompt_twice(cold: Service) -> None:
    sample = cold.checkpoint.sample(200, seed=10)
    answers = [cold.server.generate(sample.prompt) for _ in range(2)]
    assert [answer.cached_tokens for answer in answers] == [0, 192]
    assert [answer.output for answer in answers] == [sample.output] * 2


@EXTRA_BUFFER
def test_third_prompt_hits_what_two_share(cold: Service) -> None:
    """The second prompt leaves a state where it branches off the first; the third starts from it."""
    shared = cold.checkpoint.sample(150, seed=11).prompt
    samples = [cold.checkpoint.sample(200, seed=seed, start=shared) for seed in (12, 13, 14)]
    answers = [cold.server.generate(sample.prompt) for sample in samples]
    assert [answer.cached_tokens for answer in answers] == [0, 0, 128]
    assert [answer.output for answer in answers] == [sample.output for sample in samples]


@EXTRA_BUFFER
def test_hit_on_a_state_left_while_decoding(cold: Service) -> None:
    """60 prompt tokens are below the grid: the only state at 64 is the one that decoding leaves there."""
    decoded = 16
    first = cold.checkpoint.sample(60, seed=15)
    assert cold.server.generate(first.prompt, decoded).output == first.output
    second = cold.checkpoint.sample(76, seed=16, start=first.prompt + first.output[:10])
    hit = cold.server.generate(second.prompt)
    cold.server.flush()
    miss = cold.server.generate(second.prompt)
    assert (hit.cached_tokens, miss.cached_tokens) == (64, 0)
    assert hit.output == miss.output == second.output


@EXTRA_BUFFER
def test_same_hit_gives_the_same_bits(cold: Service) -> None:
    """Whatever else has been served in between. The uncached run differs by the rounding of torch's matrix products,
    which depends on how many tokens they take; the GDN layers do not (``test_backend``)."""
    sample = cold.checkpoint.sample(200, seed=17)
    miss = cold.server.generate(sample.prompt, return_logprob=True)
    hit = cold.server.generate(sample.prompt, return_logprob=True)
    cold.server.generate_batch([cold.checkpoint.sample(90, seed=seed).prompt for seed in range(4)])
    again = cold.server.generate(sample.prompt, return_logprob=True)
    assert (miss.cached_tokens, hit.cached_tokens, again.cached_tokens) == (0, 192, 192)
    assert len(hit.logprobs) == len(sample.output)
    assert again.logprobs == hit.logprobs
    assert hit.logprobs == pytest.approx(miss.logprobs, abs=1e-5, rel=0)


@CHUNKED
@pytest.mark.parametrize("tail", [1, 8, 64, 65])
def test_hits_on_the_grid_of_chunks_equal_cold_bit_for_bit(cold: Service, tail: int) -> None:
    """With chunks of 64, a hit at 128 leaves the very same batches to compute."""
    prefix = cold.checkpoint.sample(128, seed=20)
    longer = cold.checkpoint.sample(128 + tail, seed=21, start=prefix.prompt)
    miss = cold.server.generate(longer.prompt, return_logprob=True)
    cold.server.flush()
    cold.server.generate(prefix.prompt)
    hit = cold.server.generate(longer.prompt, return_logprob=True)
    assert (miss.cached_tokens, hit.cached_tokens) == (0, 128)
    assert len(miss.logprobs) == len(longer.output)
    assert hit.output == miss.output == longer.output
    assert hit.logprobs == miss.logprobs


@NO_BUFFER
def test_no_buffer_keeps_whole_prompts(cold: Service) -> None:
    first = cold.checkpoint.sample(100, seed=18)
    longer = cold.checkpoint.sample(103, seed=19, start=first.prompt)
    answers = [cold.server.generate(prompt) for prompt in (first.prompt, first.prompt, longer.prompt)]
    # A prompt never hits its own end, and its state exists nowhere else: the chunk boundary is at 64.
    assert [answer.cached_tokens for answer in answers] == [0, 64, 100]
    assert [answer.output for answer in answers] == [first.output, first.output, longer.output]
