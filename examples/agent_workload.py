"""An agent-like workload against an OpenAI-compatible server: ``python examples/agent_workload.py URL``.

Three conversations share a long system prompt with tool definitions and take one or more turns each; the first then
branches into parallel continuations. Every request is afterwards repeated with an empty cache. Prints a table with
prompt tokens, cached tokens, time to first token and output of each request, and fails if an output depends on the
cache or if the cache was never used. The server needs ``--enable-cache-report``.

SGLang keeps a recurrent state for each prompt that it has served, and for each place where it saw two prompts part:
the second conversation shows it where the system prompt ends, the third one starts from there.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import requests

MAX_TOKENS = 32
REQUEST_TIMEOUT_S = 600
SHOWN_CHARACTERS = 28

POLICY = """You are the maintenance agent of a small software company. You read tickets, look at source code, run
tests and answer the person who asked. Rules:
1. Look before you answer: search the code base and read the files that matter.
2. Run the tests that cover a change before and after you make it, and report both results.
3. Change as little as possible, and explain each change in one sentence.
4. When two readings of a request are possible, name both and pick the cheaper one to undo.
5. Never touch production systems. Secrets that you come across are reported, not repeated.
6. Answer in plain language. Numbers carry their unit, times carry their zone.
"""


def tool(name: str, description: str, **parameters: str) -> dict:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    tool(
        "search_code",
        "Finds lines that match a regular expression.",
        pattern="regular expression",
        folder="where to search; the whole repository if empty",
    ),
    tool(
        "read_file",
        "Returns part of a text file.",
        path="path from the root of the repository",
        first_line="number of the first line, from 1",
        last_line="number of the last line",
    ),
    tool(
        "edit_file",
        "Replaces one passage of a file; fails if it does not occur exactly once.",
        path="path from the root of the repository",
        old_text="the passage as it is",
        new_text="the passage as it shall be",
    ),
    tool(
        "run_tests",
        "Runs tests and returns the closing lines of their output.",
        selection="names or a path; everything if empty",
        time_limit="seconds after which the run is stopped",
    ),
    tool("read_ticket", "Returns a ticket with its comments.", ticket="number of the ticket"),
    tool("answer", "Sends the final answer to the person who asked.", text="the answer, at most 200 words"),
]

CONVERSATIONS = {
    "A": [
        "Ticket 4711 says that the nightly export stops after 1,000 rows. Find out why.",
        "The export module has a limit of 1,000 in its first query. Is it on purpose?",
        "The limit came with a change three weeks ago. What does that change say?",
    ],
    "B": [
        "Ticket 4712 asks for dates in the invoices to carry the time zone. Where are they made?",
        "The dates are made in the template. Which tests cover it?",
    ],
    "C": ["Ticket 4713 is about the colours of the start page. Who has to decide that?"],
}
BRANCHES = {
    "A/fix": "Remove the limit and run the tests of the export module.",
    "A/page": "Keep the limit, but read page after page until nothing is left.",
    "A/ask": "Write to the author of that change and ask for the reason.",
}


@dataclass
class Exchange:
    label: str
    messages: list[dict[str, str]]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    first_token_s: float = 0.0
    output: str = ""

    def row(self) -> str:
        return (
            f"{self.label:<10}{self.prompt_tokens:>8}{self.cached_tokens:>8}{self.first_token_s * 1e3:>10.0f} ms"
            f"  {self.output[:SHOWN_CHARACTERS]!r}"
        )


HEADER = f"{'request':<10}{'prompt':>8}{'cached':>8}{'first token':>13}  output"


@dataclass
class Server:
    url: str
    session: requests.Session = field(default_factory=requests.Session)

    def flush_cache(self) -> None:
        """Empties the prefix cache; the server refuses while a request is still being cleaned up."""
        for _ in range(50):
            if self.session.post(f"{self.url}/flush_cache", timeout=REQUEST_TIMEOUT_S).ok:
                return
            time.sleep(0.1)
        raise RuntimeError("the server refused to flush its cache for 5 seconds")

    def complete(self, label: str, messages: list[dict[str, str]]) -> Exchange:
        """One greedy streamed completion."""
        body = {
            "model": "default",
            "messages": messages,
            "tools": TOOLS,
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        exchange = Exchange(label, messages)
        start = time.perf_counter()
        with requests.post(
            f"{self.url}/v1/chat/completions", json=body, stream=True, timeout=REQUEST_TIMEOUT_S
        ) as response:
            if not response.ok:
                raise RuntimeError(f"{label}: HTTP {response.status_code}: {response.text}")
            for line in response.iter_lines():
                if not line.startswith(b"data: ") or line == b"data: [DONE]":
                    continue
                event = json.loads(line.removeprefix(b"data: "))
                for choice in event["choices"]:
                    if text := choice["delta"].get("content"):
                        exchange.first_token_s = exchange.first_token_s or time.perf_counter() - start
                        exchange.output += text
                if usage := event.get("usage"):
                    exchange.prompt_tokens = usage["prompt_tokens"]
                    exchange.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        if not exchange.output:
            raise RuntimeError(f"{label}: the server returned no text")
        return exchange


def say(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def run_workload(server: Server) -> list[Exchange]:
    """The turns of each conversation in order, then the branches of A at the same time."""
    exchanges = []
    histories = {}
    for name, turns in CONVERSATIONS.items():
        messages = [say("system", POLICY)]
        for number, question in enumerate(turns, 1):
            messages = [*messages, say("user", question)]
            exchanges.append(server.complete(f"{name}{number}", messages))
            print(exchanges[-1].row(), flush=True)
            messages = [*messages, say("assistant", exchanges[-1].output)]
        histories[name] = messages
    with ThreadPoolExecutor(len(BRANCHES)) as pool:
        branches = [
            pool.submit(server.complete, label, [*histories["A"], say("user", question)])
            for label, question in BRANCHES.items()
        ]
        for branch in branches:
            exchanges.append(branch.result())
            print(exchanges[-1].row(), flush=True)
    return exchanges


def run_cold(server: Server, exchanges: list[Exchange]) -> list[Exchange]:
    """The same requests, one by one, each with an empty cache."""
    cold = []
    for exchange in exchanges:
        server.flush_cache()
        cold.append(server.complete(exchange.label, exchange.messages))
        print(cold[-1].row(), flush=True)
    return cold


def verdict(warm: list[Exchange], cold: list[Exchange]) -> list[str]:
    """What is wrong, if anything."""
    problems = [
        f"{w.label}: the output depends on the cache:\n  with    {w.output!r}\n  without {c.output!r}"
        for w, c in zip(warm, cold, strict=True)
        if w.output != c.output
    ]
    problems += [f"{c.label}: {c.cached_tokens} tokens came from a flushed cache" for c in cold if c.cached_tokens]
    if not any(w.cached_tokens for w in warm):
        problems.append("no request reused a prefix")
    return problems


def main(url: str) -> int:
    server = Server(url)
    server.flush_cache()
    print(f"\nWith the prefix cache; the last {len(BRANCHES)} requests run at the same time\n{HEADER}")
    warm = run_workload(server)
    print(f"\nThe same requests, the cache flushed before each\n{HEADER}")
    cold = run_cold(server, warm)
    problems = verdict(warm, cold)
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    if problems:
        return 1
    cached, prompt = sum(w.cached_tokens for w in warm), sum(w.prompt_tokens for w in warm)
    print(
        f"\n{cached} of {prompt} prompt tokens came from the cache; all {len(warm)} outputs are identical without it."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
