"""A real SGLang server on the CPU engine, and the requests that the tests send to it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from serving.checkpoints import OUTPUT_TOKENS, Checkpoint

START_SECONDS = 240
REQUEST_SECONDS = 120


@dataclass(frozen=True)
class Answer:
    output: list[int]
    cached_tokens: int
    finish_reason: str
    num_retractions: int
    logprobs: list[float]


class Server:
    """``python -m sglang_gdn serve --device cpu`` in its own process group."""

    def __init__(self, model: Path, log: Path, *flags: str, tokenizer: bool = False, **environment: str) -> None:
        self.log = log
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            *(sys.executable, "-m", "sglang_gdn", "serve", "--device", "cpu", str(model)),
            *("--port", str(port), "--dtype", "float32", "--max-total-tokens", "8192"),
            *(() if tokenizer else ("--skip-tokenizer-init",)),
            *flags,
        ]
        with log.open("w") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=log.parent,
                env={**os.environ, "SGLANG_MAMBA_CONV_DTYPE": "float32", "SGLANG_GDN_STRICT": "1", **environment},
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"the server ended with {self._process.returncode}:\n{self.tail()}")
            try:
                if requests.get(f"{self.url}/health", timeout=5).ok:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.5)
        raise AssertionError(f"the server was not ready after {START_SECONDS} s:\n{self.tail()}")

    def wait_until_ended(self) -> int:
        return self._process.wait(START_SECONDS)

    def stop(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def generate(self, prompt: Sequence[int], count: int = OUTPUT_TOKENS, **options: Any) -> Answer:
        return _answer(self._post("/generate", _request(list(prompt), count, options)))

    def generate_batch(self, prompts: Sequence[Sequence[int]], count: int = OUTPUT_TOKENS) -> list[Answer]:
        """One HTTP request with several prompts, which SGLang prefills together."""
        return [_answer(one) for one in self._post("/generate", _request([list(p) for p in prompts], count, {}))]

    def generate_concurrently(self, jobs: Sequence[tuple[Sequence[int], int, float]]) -> list[Answer]:
        """Independent requests (prompt, count, seconds until it is sent)."""

        def send(job: tuple[Sequence[int], int, float]) -> Answer:
            prompt, count, delay = job
            time.sleep(delay)
            return self.generate(prompt, count)

        with ThreadPoolExecutor(len(jobs)) as pool:
            return list(pool.map(send, jobs))

    def abort_when_running(self, prompt: Sequence[int], count: int) -> str:
        """Aborts a request as soon as its first token is there; why it ended."""
        body = _request(list(prompt), count, {"rid": "doomed", "stream": True})
        with requests.post(f"{self.url}/generate", json=body, stream=True, timeout=REQUEST_SECONDS) as response:
            events = (line.removeprefix(b"data: ") for line in response.iter_lines() if line.startswith(b"data: {"))
            next(events)
            self._post("/abort_request", {"rid": "doomed"})
            *_, last = events
        return json.loads(last)["meta_info"]["finish_reason"]["type"]

    def flush(self) -> None:
        response = requests.post(f"{self.url}/flush_cache", params={"timeout": 20}, timeout=REQUEST_SECONDS)
        assert response.ok, response.text

    def stats(self) -> dict[str, dict[str, int]]:
        """``sglang_gdn.stats()`` of the process that runs the model."""
        state = requests.get(f"{self.url}/server_info", timeout=REQUEST_SECONDS).json()["internal_states"][0]
        return state["sglang_gdn"]

    def metrics(self, name: str) -> dict[str, float]:
        """Value of a Prometheus metric with one label of ours, by that label."""
        text = requests.get(f"{self.url}/metrics", timeout=REQUEST_SECONDS).text
        found = re.findall(rf'^{name}{{\w+="([^"]*)"}} (\S+)$', text, re.MULTILINE)
        return {label: float(value) for label, value in found}

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        response = requests.post(self.url + path, json=body, timeout=REQUEST_SECONDS)
        assert response.ok, f"{path}: {response.status_code} {response.text}\n{self.tail(30)}"
        return response.json() if response.content else None


@dataclass(frozen=True)
class Service:
    """A server, the oracle of its model, and the grid on which prompts are cached while prefilling (in tokens)."""

    server: Server
    checkpoint: Checkpoint
    grid: int


@contextlib.contextmanager
def serving(checkpoint: Checkpoint, log: Path, *flags: str, grid: int, **environment: str) -> Iterator[Service]:
    """A server that is ready, and stopped at the end."""
    server = Server(checkpoint.folder, log, *flags, **environment)
    try:
        server.wait_until_ready()
        yield Service(server, checkpoint, grid)
    finally:
        server.stop()


def _request(input_ids: Any, count: int, options: dict[str, Any]) -> dict[str, Any]:
    sampling = {"max_new_tokens": count, "temperature": 0, "ignore_eos": True}
    return {"input_ids": input_ids, "sampling_params": sampling, **options}


def _answer(body: dict[str, Any]) -> Answer:
    meta = body["meta_info"]
    return Answer(
        output=body["output_ids"],
        cached_tokens=meta["cached_tokens"],
        finish_reason=meta["finish_reason"]["type"],
        num_retractions=meta["num_retractions"],
        logprobs=[logprob for logprob, *_ in meta.get("output_token_logprobs") or []],
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
