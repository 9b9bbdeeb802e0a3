"""New, continued, finished, aborted and retracted requests in the same batches leave each other's states alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from serving.server import Service

pytestmark = pytest.mark.serving


def test_requests_that_come_and_go(cold: Service) -> None:
    """Requests start while others decode, end at different times and reuse the slots of those that ended."""
    lengths_counts = ((70, 40), (130, 4), (9, 60), (64, 16), (200, 24), (33, 8), (129, 48), (65, 2), (100, 32), (3, 30))
    jobs = []
    for i, (length, count) in enumerate(lengths_counts):
        sample = cold.checkpoint.sample(length, seed=30 + i)
        jobs.append((sample.prompt, count, 0.15 * i))
    answers = cold.server.generate_concurrently(jobs)
    for (prompt, count, _), answer in zip(jobs, answers, strict=True):
        assert_follows_oracle(cold, prompt, answer.output, count)


def test_abort_leaves_others_alone(cold: Service) -> None:
    doomed = cold.checkpoint.sample(90, seed=50)
    survivor = cold.checkpoint.sample(80, seed=51)
    with ThreadPoolExecutor(1) as pool:
        reason = pool.submit(cold.server.abort_when_running, doomed.prompt, 2000)
        answer = cold.server.generate(survivor.prompt, 64)
    assert reason.result() == "abort"
    assert_follows_oracle(cold, survivor.prompt, answer.output, 64)
    assert cold.server.generate(doomed.prompt).output == doomed.output


@pytest.mark.parametrize("service", ["qwen3_5_moe-extra_buffer-chunked-mixed-retract"], indirect=True)
def test_retracted_requests_say_the_same(cold: Service) -> None:
    samples = [cold.checkpoint.sample(length, seed=60 + length) for length in (20, 64, 90, 130)]
    answers = cold.server.generate_batch([sample.prompt for sample in samples], 40)
    assert sum(answer.num_retractions for answer in answers) > 0
    for sample, answer in zip(samples, answers, strict=True):
        assert_follows_oracle(cold, sample.prompt, answer.output, 40)


def assert_follows_oracle(service: Service, prompt: list[int], output: list[int], count: int) -> None:
    """Equal to the oracle as far as it is decisive, and of the wanted length."""
    assert len(output) == count
    expected = service.checkpoint.decisive_output(prompt, count)
    assert len(expected) >= min(count, 16)
    assert output[: len(expected)] == expected
