"""Lowers many variants, each in a child of one process of the generator's interpreter with a limit of its processor
time; as many at a time as there are processors.

``python -m gdn_aot.generator.worker DEVICE LIMIT_SECONDS`` reads one JSON line a variant from standard input,
``{"kernel", "specialization", "output"}``, writes the lowered text to ``output``, and prints one JSON line a variant,
``{"output", "seconds", "error"}``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

import gdn_aot.generator.boot  # noqa: F401  must come before TileLang


def lower_variant(job: dict[str, Any]) -> None:
    from gdn_aot.registry import registered_kernels

    text = registered_kernels()[job["kernel"]].generate_source(**job["specialization"])
    with open(job["output"] + ".part", "w") as file:
        file.write(text)
    os.replace(job["output"] + ".part", job["output"])


class Child:
    """A process that lowers one variant. A process, because only with it can the compiler's C++ code be stopped."""

    def __init__(self, job: dict[str, Any], limit: int) -> None:
        self.output = job["output"]
        self.begin = time.monotonic()
        self.limit = limit
        self.errors, child_errors = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            try:
                lower_variant(job)
                status = 0
            except BaseException:
                os.write(child_errors, traceback.format_exc().encode()[-4000:])  # fits the pipe, nobody has to read
                status = 1
            os._exit(status)
        os.close(child_errors)

    def outcome(self, status: int) -> dict[str, Any]:
        with os.fdopen(self.errors, errors="replace") as pipe:
            error = pipe.read() if status else None
        if os.WIFSIGNALED(status):
            error = f"ended by signal {os.WTERMSIG(status)}; the limit is {self.limit} s of processor time"
        return {"output": self.output, "seconds": time.monotonic() - self.begin, "error": error}


def lower_all(jobs: list[dict[str, Any]], limit: int, together: int) -> Iterator[dict[str, Any]]:
    """Outcomes, in the order in which they end."""
    running: dict[int, Child] = {}
    while jobs or running:
        while jobs and len(running) < together:
            child = Child(jobs.pop(0), limit)
            running[child.process] = child
        process, status = os.wait()
        yield running.pop(process).outcome(status)


def main() -> None:
    device, limit = sys.argv[1], int(sys.argv[2])
    import tilelang  # noqa: F401  once, for all children

    import gdn_aot.lowering

    gdn_aot.lowering.device = device
    jobs = [json.loads(line) for line in sys.stdin]
    for outcome in lower_all(jobs, limit, os.cpu_count() or 1):
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
