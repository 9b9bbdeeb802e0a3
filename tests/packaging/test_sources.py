"""Facts that are written in two places agree, and the text belongs to no machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import sglang_gdn
from distribution import ROOT, VERSION, python_blocks

VARIABLE = re.compile(r"""["'](SGLANG_GDN_[A-Z0-9_]+)["']""")
MACHINE_FOLDER = re.compile(r"(?<![\w.~-])/(?:work|root|home|Users|tmp)/\w")


def tracked_text() -> dict[Path, str]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = {}
    for name in filter(None, listing.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            texts[path] = content.decode()
    assert len(texts) > 20
    return texts


def variables_read() -> set[str]:
    files = [*(ROOT / "sglang_gdn").rglob("*.py"), *(ROOT / "csrc").rglob("*.[ch]pp"), *(ROOT / "csrc").rglob("*.cu*")]
    return {name for file in files for name in VARIABLE.findall(file.read_text())}


def test_environment_variables_are_documented() -> None:
    table = (ROOT / "docs/environment.md").read_text()
    documented = set(re.findall(r"^\| `(SGLANG_GDN_[A-Z0-9_]+)`", table, re.MULTILINE))
    assert documented == variables_read()


def test_version_has_one_source() -> None:
    assert sglang_gdn.__version__ == VERSION
    repeated = [path.name for path in (ROOT / "sglang_gdn").rglob("*.py") if f'"{VERSION}"' in path.read_text()]
    assert repeated == []
    cmake = (ROOT / "CMakeLists.txt").read_text()
    assert VERSION not in cmake
    newest = re.search(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == VERSION


def test_no_file_names_a_folder_of_some_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path, text in tracked_text().items()
        for match in MACHINE_FOLDER.finditer(text)
    ]
    assert found == []


def test_folder_check_sees_a_folder() -> None:
    assert MACHINE_FOLDER.search("see /" + "home/somebody/model")


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


EXAMPLES = {
    f"{document.name}-{i}": block for document in documents() for i, block in enumerate(python_blocks(document), 1)
}
# Not run here: it starts an engine on a checkpoint, as tests/serving/test_engine.py does.
ENGINE = "serving.md-1"


def test_documents_have_examples() -> None:
    assert "README.md-1" in EXAMPLES
    assert "sglang.Engine(" in EXAMPLES[ENGINE]
    assert [name for name, block in EXAMPLES.items() if "sglang.Engine(" in block] == [ENGINE]


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - {ENGINE}))
def test_example_runs(python: Callable[..., str], name: str) -> None:
    python(EXAMPLES[name])
