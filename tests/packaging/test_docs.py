"""The documentation builds without warnings, and what it says about tests and sizes is so."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from distribution import ROOT, python_blocks, run


def test_builds_without_warnings(tmp_path: Path) -> None:
    site = str(tmp_path / "site")
    run(sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site, cwd=ROOT)
    page = (tmp_path / "site/operators/index.html").read_text()
    assert "gdn_prefill" in page and "gdn_fold" in page


def pages(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [page for child in children for page in pages(child)]


def test_every_page_is_in_the_navigation() -> None:
    navigation = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(navigation) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_tests_that_are_cited_exist() -> None:
    cited = re.findall(
        r"`(tests/[\w/]+\.py)(?:::(\w+))?`", "\n".join(p.read_text() for p in (ROOT / "docs").glob("*.md"))
    )
    assert len(cited) > 15
    missing = [
        f"{file}::{test}"
        for file, test in cited
        if not (ROOT / file).exists() or (test and f"def {test}(" not in (ROOT / file).read_text())
    ]
    assert missing == []
    in_contract = re.findall(r"`(test_\w+\.py)::(\w+)`", (ROOT / "docs/ascend.md").read_text())
    assert len(in_contract) > 40
    contract = {path.name: path.read_text() for path in (ROOT / "tests/contract").glob("test_*.py")}
    assert [f"{file}::{test}" for file, test in in_contract if f"def {test}(" not in contract.get(file, "")] == []


def test_table_of_slot_sizes(python: Callable[..., str]) -> None:
    (block,) = python_blocks(ROOT / "docs/tuning.md")
    printed = python(block).splitlines()
    assert len(printed) == 3
    assert [line for line in printed if line not in (ROOT / "docs/tuning.md").read_text()] == []


def test_figure_is_what_its_script_draws() -> None:
    script = ROOT / "docs/figures/prefix_reuse.py"
    drawn = runpy.run_path(str(script))["draw"]()
    assert script.with_suffix(".svg").read_text() == drawn
