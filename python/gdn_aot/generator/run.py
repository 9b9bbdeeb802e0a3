"""Starts the generator's interpreter and lowers variants with it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("GDN_ASCEND_GENERATOR", "build/ascend/generator"))
PACKAGES = Path(__file__).resolve().parents[2]


class GeneratorError(Exception):
    """The generator is not set up, or ended early."""


def set_up() -> None:
    subprocess.run([Path(__file__).parent / "setup.sh", FOLDER], check=True)


def interpreter() -> tuple[list[str], dict[str, str]]:
    """Command and environment of the generator's Python."""
    root, site = FOLDER.resolve() / "root", FOLDER.resolve() / "site"
    python = root / "usr/bin/python3.11"
    if not python.exists():
        raise GeneratorError("no generator: run `python -m gdn_aot setup-generator` first")
    emulator = [] if platform.machine() == "aarch64" else ["qemu-aarch64-static", "-L", str(root)]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONHOME": str(root / "usr"),
        "PYTHONPATH": os.pathsep.join([str(PACKAGES), str(site)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return [*emulator, str(python)], environment


def lower_all(jobs: Iterable[dict[str, Any]], device: str, limit_seconds: int) -> Iterator[dict[str, Any]]:
    """Outcomes ``{"output", "seconds", "error"}``, as the jobs finish; one process for all of them."""
    command, environment = interpreter()
    worker = subprocess.Popen(
        [*command, "-m", "gdn_aot.generator.worker", device, str(limit_seconds)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert worker.stdin is not None and worker.stdout is not None
    jobs = list(jobs)
    worker.stdin.write("".join(json.dumps(job) + "\n" for job in jobs))
    worker.stdin.close()
    finished = 0
    for line in worker.stdout:
        if line.startswith("{"):
            finished += 1
            yield json.loads(line)
    if worker.wait() != 0 or finished != len(jobs):
        raise GeneratorError(f"the generator ended with status {worker.returncode} after {finished} of {len(jobs)}")
