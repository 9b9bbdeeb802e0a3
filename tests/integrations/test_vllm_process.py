"""vLLM itself on a CPU, with its own GDN kernels and with ours: the same tokens from the same blocks."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from distribution import run

PROGRAM = Path(__file__).with_name("vllm_process.py")

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (docs/vllm.md)"),
    pytest.mark.timeout(3300),
]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("records")
    for kernels in ("stock", "ours"):
        run(sys.executable, "-P", str(PROGRAM), kernels, str(folder / kernels), cwd=folder, timeout=1500)
    return {file.name: json.loads(file.read_text()) for file in folder.iterdir() if file.name in ("stock", "ours")}


def test_only_one_of_them_calls_our_operators(records: dict[str, Any]) -> None:
    assert records["stock"]["calls"] == {}
    assert {name.split("/")[0] for name in records["ours"]["calls"]} == {"gdn_prefill", "gdn_decode"}
    assert records["ours"]["fallbacks"] == {}


def test_same_tokens(records: dict[str, Any]) -> None:
    """Bfloat16 may tip a choice between equals; of these 168 none is one."""
    assert records["ours"]["tokens"] == records["stock"]["tokens"]


def test_the_repeated_prompt_continues_from_cached_blocks(records: dict[str, Any]) -> None:
    assert records["ours"]["cached"] == records["stock"]["cached"]
    assert records["ours"]["cached"][-1] > 0
