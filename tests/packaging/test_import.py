"""What importing the package does to a process and to a machine: nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

FOREIGN_MODULES = ("sglang", "torch_npu", "tilelang", "triton", "transformers", "fla")

USE_EVERYTHING = """
import importlib, pkgutil, sys
import torch
import sglang_gdn
from sglang_gdn import ops, selftest
selftest.run_all("cpu", (torch.float32,))
"""

# What a process does to the file system after importing torch (which tries out its folder for temporary files), as far
# as an audit hook can see it. Files under /dev and /proc are no files.
WATCH_WRITES = """
import os, sys
import torch
written = []
def watch(event, arguments):
    if event == "open":
        path, _, flags = arguments
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC)
        if writes and not str(path).startswith(("/dev/", "/proc/")):
            written.append(f"open {path}")
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink"):
        written.append(f"{event} {arguments[0]}")
sys.addaudithook(watch)
"""


def test_imports_nothing_foreign_and_initialises_no_device(python: Callable[..., str]) -> None:
    code = USE_EVERYTHING + (
        "import sglang_gdn.serving.plugin, sglang_gdn.__main__, sglang_gdn.check\n"
        "assert not torch.cuda.is_initialized()\n"
        "print(*sys.modules)\n"
    )
    loaded = set(python(code).split())
    assert "sglang_gdn._C" in loaded
    assert not loaded & set(FOREIGN_MODULES)


@pytest.mark.parametrize("visible", ["", "-1", "0"])
def test_works_whatever_gpus_are_visible(python: Callable[..., str], visible: str) -> None:
    code = USE_EVERYTHING + "print(sum(sglang_gdn.stats()['calls'].values()))"
    assert int(python(code, CUDA_VISIBLE_DEVICES=visible)) > 0


@pytest.mark.parametrize("home", [None, "/nonexistent"])
def test_needs_no_home_and_writes_nothing(python: Callable[..., str], home: str | None) -> None:
    code = WATCH_WRITES + USE_EVERYTHING + "print(written)"
    assert python(code, HOME=home, XDG_CACHE_HOME=home, TMPDIR=None) == "[]\n"


def test_write_watch_sees_a_write(python: Callable[..., str]) -> None:
    assert "note" in python(WATCH_WRITES + "open('note', 'w').close()\nprint(written)")
