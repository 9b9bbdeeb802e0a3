"""Starts the generator's interpreter and lowers variants with it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("GDN_ASCEND_GENERATOR", "build/ascend/generator"))
STAMP = FOLDER / ".complete"
RECIPE = [Path(__file__).with_name(name) for name in ("setup.sh", "requirements.txt")]
PACKAGES = Path(__file__).resolve().parents[2]
UNREACHABLE = 3  # setup.sh's status


class GeneratorError(Exception):
    """The generator is not set up, or ended early."""


class GeneratorUnreachableError(GeneratorError):
    """This machine cannot fetch the generator: it is not Debian, or there is no network."""


def recipe() -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in RECIPE)).hexdigest()


def is_set_up() -> bool:
    return STAMP.exists() and STAMP.read_text() == recipe()


def set_up() -> None:
    """Into ``FOLDER``, unless it is there.

    Raises:
        GeneratorUnreachableError: the package registries cannot be reached from here, with the reason.
        GeneratorError: anything else went wrong.
    """
    if is_set_up():
        return
    done = subprocess.run([RECIPE[0], FOLDER, sys.executable], stderr=subprocess.PIPE, text=True)
    if done.returncode == UNREACHABLE:
        raise GeneratorUnreachableError(f"no generator: {done.stderr.splitlines()[-1]}")
    if done.returncode != 0:
        raise GeneratorError(f"setup.sh ended with status {done.returncode}:\n{done.stderr}")
    STAMP.write_text(recipe())


def interpreter() -> tuple[list[str], dict[str, str]]:
    """Command and environment of the generator's Python."""
    if not is_set_up():
        raise GeneratorError("no generator, or an older one: run `python -m gdn_aot setup-generator` first")
    system, site = FOLDER.resolve() / "system", FOLDER.resolve() / "site"
    python = system / "usr/bin/python3.11"
    emulated = platform.machine() != "aarch64"
    emulator = [str(FOLDER.resolve() / "emulator/qemu-aarch64-static"), "-L", str(system)] if emulated else []
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONHOME": str(system / "usr"),
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
