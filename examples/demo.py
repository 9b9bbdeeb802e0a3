"""Serves the small Gated DeltaNet hybrid of ``examples/model`` with SGLang on the CPU and runs ``agent_workload.py``.

``python examples/demo.py`` starts ``python -m sglang_gdn serve``, runs the workload over HTTP and stops the server.
Exit code 0 if every output is the same with and without the prefix cache.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import agent_workload
import requests

MODEL = Path(__file__).parent.resolve() / "model"
FOLDER = Path(".demo")
START_LIMIT_S = 600
STOP_LIMIT_S = 30
SERVER_OPTIONS = [
    *("--device", "cpu"),
    *("--dtype", "float32"),
    *("--mamba-radix-cache-strategy", "extra_buffer"),
    *("--mamba-track-interval", "64"),
    *("--max-mamba-cache-size", "64"),
    *("--max-running-requests", "4"),
    *("--max-total-tokens", "65536"),
    *("--mem-fraction-static", "0.3"),
    "--enable-cache-report",
]
# Served in float32; its convolution states shall be too.
SERVER_ENVIRONMENT = {"SGLANG_MAMBA_CONV_DTYPE": "float32", "SGLANG_GDN_STRICT": "1"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def progress(start: float, text: str) -> None:
    print(f"[{time.monotonic() - start:4.0f} s] {text}", flush=True)


def last_lines(path: Path, count: int) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-count:])


def wait_until_ready(server: subprocess.Popen, url: str, log: Path, start: float) -> None:
    shown = ""
    while time.monotonic() - start < START_LIMIT_S:
        if server.poll() is not None:
            raise RuntimeError(f"the server stopped with code {server.returncode}:\n{last_lines(log, 40)}")
        with contextlib.suppress(requests.RequestException):
            if requests.get(f"{url}/health", timeout=5).ok:
                return
        if (latest := last_lines(log, 1)[:100]) != shown:
            shown = latest
            progress(start, shown)
        time.sleep(1)
    raise RuntimeError(f"the server was not ready after {START_LIMIT_S} seconds:\n{last_lines(log, 40)}")


@contextlib.contextmanager
def serving(start: float) -> Iterator[str]:
    """The URL of a server that is ready; it is stopped at the end."""
    port = free_port()
    log = FOLDER / "server.log"
    command = [sys.executable, "-m", "sglang_gdn", "serve", str(MODEL), *SERVER_OPTIONS, "--port", str(port)]
    progress(start, "starting " + " ".join(["python", *command[1:]]))
    progress(start, f"its log is {log}")
    with log.open("w") as output:
        server = subprocess.Popen(
            command,
            cwd=FOLDER,  # not the checkout, whose sglang_gdn folder has no compiled module
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | SERVER_ENVIRONMENT,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(server, url, log, start)
        progress(start, "ready")
        yield url
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOP_LIMIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def main() -> int:
    start = time.monotonic()
    FOLDER.mkdir(exist_ok=True)
    with serving(start) as url:
        return agent_workload.main(url)


if __name__ == "__main__":
    sys.exit(main())
