"""Lowers many variants in one process of the generator's interpreter, each in a child with a limit of its processor
time.

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
from typing import Any

import gdn_aot.generator.boot  # noqa: F401  must come before TileLang


def lower_variant(job: dict[str, Any]) -> None:
    from gdn_aot.registry import registered_kernels

    text = registered_kernels()[job["kernel"]].generate_source(**job["specialization"])
    with open(job["output"] + ".part", "w") as file:
        file.write(text)
    os.replace(job["output"] + ".part", job["output"])


def in_child(job: dict[str, Any], limit: int) -> str | None:
    """None, or what went wrong. A child, because the compiler's C++ code can only be stopped with its process."""
    errors, child_errors = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        os.close(errors)
        try:
            lower_variant(job)
            status = 0
        except BaseException:
            os.write(child_errors, traceback.format_exc().encode()[-4000:])
            status = 1
        os._exit(status)
    os.close(child_errors)
    with os.fdopen(errors, errors="replace") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if status == 0:
        return None
    if os.WIFSIGNALED(status):
        return f"ended by signal {os.WTERMSIG(status)}; the limit is {limit} s of processor time"
    return text


def main() -> None:
    device, limit = sys.argv[1], int(sys.argv[2])
    import tilelang  # noqa: F401  once, for all children

    import gdn_aot.lowering

    gdn_aot.lowering.device = device
    for line in sys.stdin:
        job = json.loads(line)
        begin = time.monotonic()
        error = in_child(job, limit)
        print(json.dumps({"output": job["output"], "seconds": time.monotonic() - begin, "error": error}), flush=True)


if __name__ == "__main__":
    main()
