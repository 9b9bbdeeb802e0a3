"""The private parts of SGLang that the adapters touch are those of the SGLang lines that they were written for."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import pickle
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import sglang_gdn.serving
from sglang_gdn.serving import compat
from sglang_gdn.serving.compat import sglang_0_5_17, sglang_0_5_23
from sglang_gdn.serving.compat.line import NPU_SEAMS, Line, raise_unless_device_serves
from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.serving.seams import problems

pytestmark = [pytest.mark.serving, pytest.mark.usefixtures("sglang_on_cpu"), pytest.mark.filterwarnings("ignore")]

LINES = [sglang_0_5_17.LINE, sglang_0_5_23.LINE]
ROOT = Path(inspect.getfile(sglang_gdn.serving)).parent
INTERFACES = Path(__file__).parent / "interfaces"


@pytest.fixture
def adapter(sglang_on_cpu: None) -> Any:
    return compat.select()[0]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.version)
def test_seams_are_those_of_the_recorded_interface(line: Line) -> None:
    record = json.loads((INTERFACES / f"sglang-{line.version}.json").read_text())
    assert record["sglang"] == line.version
    unknown = [seam.path for seam in line.seams if seam.path not in record["symbols"]]
    assert not unknown, "not in the record; run record_interface.py where this line is installed"
    assert [found for seam in line.seams if (found := seam.mismatch(record["symbols"][seam.path]))] == []


def test_seams_are_those_of_the_installed_sglang(adapter: Any) -> None:
    assert version("sglang") == adapter.version
    assert problems(adapter.seams) == []


def test_a_missing_seam_is_named(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.layers.attention.linear import gdn_backend

    monkeypatch.delattr(gdn_backend.MambaAttnBackendBase, "_track_mamba_state_decode")
    monkeypatch.setattr(gdn_backend.GDNAttnBackend, "forward_decode", lambda self, layer, batch: None)
    with pytest.raises(GdnServingError) as refused:
        adapter.raise_for_problems(adapter.seams)
    lines = str(refused.value).splitlines()[1:]
    assert len(lines) == 2
    assert any("MambaAttnBackendBase._track_mamba_state_decode" in line and "is missing" in line for line in lines)
    assert any("GDNAttnBackend.forward_decode" in line and "got (self, layer, batch)" in line for line in lines)


def test_every_seam_would_be_named(adapter: Any) -> None:
    for seam in adapter.seams:
        gone = dataclasses.replace(seam, path=f"{seam.path}_gone")
        assert f"{gone.path} (" in (gone.problem() or ""), seam.path


def sglang_imports(source: Path) -> Iterator[tuple[str, str]]:
    """Each imported name as a symbol of a module, and as a module."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang."):
            for name in node.names:
                yield f"{node.module}:{name.name}", f"{node.module}.{name.name}:"


def test_every_import_from_sglang_is_a_seam() -> None:
    for line in LINES:
        known = {seam.path for seam in (*line.seams, *NPU_SEAMS)}
        shared = [source for source in ROOT.rglob("*.py") if not source.name.startswith("sglang_")]
        for source in [*shared, Path(inspect.getfile(type(line)))]:
            for symbol, module in sglang_imports(source):
                assert any(path.startswith((symbol, module)) for path in known), f"{source.name}: {symbol}"


@pytest.mark.parametrize(
    ("installed", "allow", "refused"),
    [("0.5.23", "0", False), ("0.5.22", "0", True), ("0.6.0", "0", True), ("0.6.0", "1", False)],
)
def test_versions(installed: str, allow: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "version", lambda _: installed)
    monkeypatch.setenv(compat.ALLOW_UNTESTED, allow)
    _, refusal = compat.select()
    assert (refusal is not None) == refused
    assert not refused or installed in str(refusal)


def test_the_alias_of_0_5_17_leaves_a_mark() -> None:
    """The mark is what a worker sees after SGLang has put its own choice in place of the alias."""
    arguments = SimpleNamespace(
        attention_backend="gdn_tile", decode_attention_backend="fa3", use_ray=False, enable_mis=False
    )
    line = sglang_0_5_17.LINE
    assert not line.asks_for_tile(arguments)
    line.replace_alias(arguments, ["attention_backend"])
    assert (arguments.attention_backend, arguments.decode_attention_backend) == (None, "fa3")
    assert line.asks_for_tile(pickle.loads(pickle.dumps(arguments)))


@pytest.mark.parametrize("flag", ["use_ray", "enable_mis"])
def test_flags_that_0_5_17_refuses(flag: str) -> None:
    arguments = SimpleNamespace(**{"use_ray": False, "enable_mis": False, flag: True})
    with pytest.raises(GdnServingError, match=f"does not serve with --{flag.replace('_', '-')}"):
        sglang_0_5_17.LINE.replace_alias(arguments, ["attention_backend"])


@pytest.mark.parametrize("device", ["xpu", "musa"])
def test_other_devices_are_refused(adapter: Any, device: str) -> None:
    with pytest.raises(GdnServingError, match=f"got {device}"):
        raise_unless_device_serves(device)


@pytest.mark.parametrize("capability", [(8, 0), (10, 0), (12, 0)])
def test_other_gpus_are_refused(adapter: Any, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    with pytest.raises(GdnServingError, match=f"got {capability[0]}.{capability[1]}"):
        raise_unless_device_serves("cuda")


def test_cpu_without_the_cpu_engine_is_refused(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_GDN_CPU_ENGINE", raising=False)
    with pytest.raises(GdnServingError, match="serve --device cpu"):
        raise_unless_device_serves("cpu")
