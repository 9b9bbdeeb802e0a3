"""One SGLang engine in a process of its own, driven by one JSON object a line.

``python engine.py '{"model_path": ..., ...}'`` builds ``sglang.Engine``; then each line on standard input is
``{"do": NAME, ...}`` and each line on standard output its result. Everything that SGLang prints goes to standard error.
``Engine`` is the other end.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

FIRST_TOKEN = 3


class Engine:
    """Starts the process; ``wait`` returns when it serves."""

    def __init__(self, name: str, arguments: dict[str, Any], log: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, __file__, json.dumps(arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, **environment},
            )

    def wait(self) -> float:
        """Seconds that the start took."""
        return self._read()

    def do(self, name: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])
            raise RuntimeError(f"{self.name} ended with {self._process.wait()}:\n{tail}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer["result"]


class Worker:
    """What ``Engine.do`` can ask for; every public method is one."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        import sglang

        self._vocab = arguments.pop("vocab_size")
        self._engine = sglang.Engine(**arguments)

    def prompts(self, lengths: list[int], seed: int, start: list[int] | None = None) -> list[list[int]]:
        """Random prompts that begin with ``start``."""
        source = random.Random(seed)
        start = start or []
        return [
            start + [source.randrange(FIRST_TOKEN, self._vocab) for _ in range(length - len(start))]
            for length in lengths
        ]

    def generate(self, prompts: list[list[int]], tokens: int, logprobs: bool = False) -> dict[str, Any]:
        """Greedy continuations of prompts that are sent together.

        Returns:
            ``seconds``, and per prompt ``outputs``, ``cached`` tokens, how often drafts were ``verified``, and with
            ``logprobs`` the ``best`` two log-probabilities with their tokens at each step.
        """
        begin = time.perf_counter()
        answers = self._engine.generate(
            input_ids=prompts,
            sampling_params={"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
            **({"return_logprob": True, "top_logprobs_num": 2} if logprobs else {}),
        )
        result = {
            "seconds": time.perf_counter() - begin,
            "outputs": [answer["output_ids"] for answer in answers],
            "cached": [answer["meta_info"]["cached_tokens"] for answer in answers],
            "verified": [answer["meta_info"].get("spec_verify_ct", 0) for answer in answers],
        }
        if logprobs:
            result["best"] = [best_two(answer) for answer in answers]
        return result

    def generate_random(self, lengths: list[int], tokens: int, seed: int, **options: Any) -> dict[str, Any]:
        return self.generate(self.prompts(lengths, seed), tokens, **options)

    def recall(self, lengths: list[int], tokens: int, seed: int) -> dict[str, Any]:
        """``generate`` with log-probabilities from prompts that end by repeating an earlier part of themselves.

        Returns:
            that of ``generate``, and of each prompt how many tokens ``recalled`` are those that followed the first time
            and how many there are ``to_recall``.
        """
        prompts = self.prompts(lengths, seed)
        expected = []
        for prompt in prompts:
            repeated, back = min(8, len(prompt) // 4), min(96, len(prompt) // 2)
            end = len(prompt)
            prompt[end - repeated :] = prompt[end - repeated - back : end - back]
            expected.append(prompt[end - back : end][:tokens])
        result = self.generate(prompts, tokens, logprobs=True)
        pairs = list(zip(result["outputs"], expected, strict=True))
        result["recalled"] = [sum(map(int.__eq__, output, wanted)) for output, wanted in pairs]
        result["to_recall"] = [len(wanted) for _, wanted in pairs]
        return result

    def time_to_first_token(self, length: int, seeds: list[int]) -> list[float]:
        """Seconds for one new token after each of several prompts that share nothing."""
        return [self.generate_random([length], 1, seed)["seconds"] for seed in seeds]

    def warm_up(self) -> float:
        """Seconds of the request that SGLang's HTTP server sends to itself before it is ready."""
        return self.generate([[10, 11, 12]], 8)["seconds"]

    def time_per_token(self, batch: int, length: int, tokens: int, seed: int) -> float:
        """Seconds per decode step: between the tokens of one request while the whole batch runs, from prompts whose
        prefixes are cached. The first quarter and the last eighth, where others join and leave, are not counted."""
        prompts = self.prompts([length] * batch, seed)
        self.generate(prompts, 8)
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}

        async def arrivals() -> list[float]:
            others = [
                asyncio.ensure_future(self._engine.async_generate(input_ids=prompt, sampling_params=sampling))
                for prompt in prompts[1:]
            ]
            stream = await self._engine.async_generate(input_ids=prompts[0], sampling_params=sampling, stream=True)
            times = [time.perf_counter() async for _ in stream]
            await asyncio.gather(*others)
            return times

        times = self._engine.loop.run_until_complete(arrivals())
        counted = times[len(times) // 4 : -(len(times) // 8)]
        return (counted[-1] - counted[0]) / (len(counted) - 1)

    def agents(self, system: int, branches: int, turns: int, turn: int, answer: int, seed: int) -> dict[str, Any]:
        """Conversations that share a system prompt; every turn sends all of them with their history.

        Returns:
            ``seconds`` in all, ``sent`` and ``cached`` prompt tokens, and a ``checksum`` of what was said.
        """
        shared = self.prompts([system], seed)[0]
        histories = [list(shared) for _ in range(branches)]
        seconds, sent, cached = 0.0, 0, 0
        for number in range(turns):
            for branch, history in enumerate(histories):
                history += self.prompts([turn], (seed * 1000 + branch) * 1000 + number + 1)[0]
            result = self.generate(histories, answer)
            seconds += result["seconds"]
            sent += sum(map(len, histories))
            cached += sum(result["cached"])
            for history, output in zip(histories, result["outputs"], strict=True):
                history += output
        return {"seconds": seconds, "sent": sent, "cached": cached, "checksum": zlib.crc32(str(histories).encode())}

    def arrivals(self, seconds: float, rate: float, longest: int, tokens: int, seed: int) -> dict[str, Any]:
        """Requests that arrive at random for a while; some share the start of their prompts, some are aborted.

        Args:
            rate: requests a second.
            longest: tokens of the longest prompt; lengths are log-uniform from 1.
            tokens: most new tokens of a request.

        Returns:
            ``requests``, ``aborted``, ``prompt_tokens``, ``cached_tokens``, ``new_tokens``, and as ``samples`` of each
            fiftieth request the prompt, the output and the best two log-probabilities at each step.
        """
        source = random.Random(seed)
        starts = self.prompts([2048] * 8, 0)
        done: list[dict[str, Any]] = []

        async def request(number: int) -> None:
            length = max(1, round(longest ** source.random()))
            start = source.choice(starts)[: source.randrange(length)] if source.random() < 0.6 else []
            prompt = self.prompts([length], source.randrange(1 << 30), start)[0]
            rid, sampled = f"{seed}-{number}", number % 50 == 0
            if not sampled and source.random() < 0.05:
                delay = source.random()
                asyncio.get_running_loop().call_later(delay, self._engine.tokenizer_manager.abort_request, rid)
            answer = await self._engine.async_generate(
                input_ids=prompt,
                sampling_params={
                    "max_new_tokens": source.randint(1, tokens),
                    "temperature": 0,
                    "ignore_eos": True,
                },
                rid=rid,
                **({"return_logprob": True, "top_logprobs_num": 2} if sampled else {}),
            )
            done.append({"prompt": prompt, "answer": answer, "sampled": sampled})

        async def arrive() -> None:
            end = time.perf_counter() + seconds
            pending = []
            while time.perf_counter() < end:
                pending.append(asyncio.ensure_future(request(len(pending))))
                await asyncio.sleep(source.expovariate(rate))
            await asyncio.gather(*pending)

        self._engine.loop.run_until_complete(arrive())
        infos = [one["answer"]["meta_info"] for one in done]
        return {
            "requests": len(done),
            "aborted": sum(info["finish_reason"]["type"] == "abort" for info in infos),
            "prompt_tokens": sum(len(one["prompt"]) for one in done),
            "cached_tokens": sum(info.get("cached_tokens", 0) for info in infos),
            "new_tokens": sum(len(one["answer"].get("output_ids", [])) for one in done),
            "samples": [
                {
                    "prompt": one["prompt"],
                    "outputs": [one["answer"]["output_ids"]],
                    "best": [best_two(one["answer"])],
                }
                for one in done
                if one["sampled"]
            ],
        }

    def flush(self) -> None:
        self._engine.flush_cache()

    def counters(self) -> dict[str, Any] | None:
        """``sglang_gdn.stats()`` of the process that runs the model; None without the plugin."""
        return self._engine.get_server_info()["internal_states"][0].get("sglang_gdn")

    def profile(self, folder: str, lengths: list[int], tokens: int, seed: int) -> None:
        """Leaves a trace of the GPU while it serves random prompts."""
        self._engine.start_profile(output_dir=folder, activities=["GPU"])
        self.generate_random(lengths, tokens, seed)
        self._engine.stop_profile()


def best_two(answer: dict[str, Any]) -> list[list[tuple[float, int]]]:
    return [[(entry[0], entry[1]) for entry in step] for step in answer["meta_info"]["output_top_logprobs"]]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    begin = time.perf_counter()
    worker = Worker(json.loads(sys.argv[1]))
    answers.write(json.dumps({"result": time.perf_counter() - begin}) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = {"result": getattr(worker, request.pop("do"))(**request)}
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(result) + "\n")
    worker._engine.shutdown()


if __name__ == "__main__":
    main()
