"""Facts that are written in two places agree, and the text belongs to no machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sglang_gdn
from distribution import ROOT, VERSION, python_blocks, run

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


def test_make_compiles_nothing_by_rules_of_its_own() -> None:
    """A folder is among what a wheel is made of, and beside it lies a source file of its name that may be newer."""
    newer = [f"--what-if={file.relative_to(ROOT)}" for file in sorted((ROOT / "csrc").rglob("*.c*")) if file.is_file()]
    assert any((ROOT / option.partition("=")[2]).with_suffix("").is_dir() for option in newer)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    printed = run("make", "--dry-run", *newer, "wheel", cwd=ROOT, env=environment).stdout
    assert "pip wheel" in printed
    assert " -o csrc" not in printed


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
# Starts an engine on a checkpoint: tests/serving/test_examples.py runs it.
ENGINE = "serving.md-1"


def test_documents_have_examples() -> None:
    assert "README.md-1" in EXAMPLES
    assert "sglang.Engine(" in EXAMPLES[ENGINE]
    assert [name for name, block in EXAMPLES.items() if "sglang.Engine(" in block] == [ENGINE]


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - {ENGINE}))
def test_example_runs(python: Callable[..., str], name: str) -> None:
    python(EXAMPLES[name])


def shell_commands() -> list[str]:
    """Command lines of code blocks, without variables set for them, comments and line breaks."""
    texts = [file.read_text() for file in (*documents(), *(ROOT / "examples").rglob("*.md"))]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", "\n".join(texts), re.MULTILINE | re.DOTALL)
    shell = "".join(block for language, block in blocks if language == "").replace("\\\n", "")
    lines = [re.sub(r"^(\w+=\S+ )+| *#.*", "", line) for line in shell.splitlines()]
    return sorted({line for line in lines if line.startswith(("make ", "python "))})


COMMANDS = shell_commands()


def options_of_programs() -> dict[str, set[str]]:
    """What each of our programs is called with; the options of ``serve`` are SGLang's."""
    programs: dict[str, set[str]] = {}
    for command in COMMANDS:
        program = re.match(r"python (-m (?:sglang_gdn|gdn_aot) [\w-]+|\S+\.py)", command)
        if program:
            options = re.findall(r" (--[\w-]+)", command)
            programs.setdefault(program[1], set()).update([] if program[1].endswith(" serve") else options)
    return programs


PROGRAMS = options_of_programs()


def test_documents_have_commands() -> None:
    assert {f"-m sglang_gdn {name}" for name in ("check", "eval", "serve")} <= set(PROGRAMS)
    assert any("--perplexity-tokens" in options for options in PROGRAMS.values())
    targets = {command.split()[1] for command in COMMANDS if command.startswith("make ")}
    assert {"demo", "test"} <= targets
    assert targets <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_has_the_options_that_documents_name(program: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    safe_path = ["-P"] if program.startswith("-m ") else []
    command = [sys.executable, *safe_path, *program.split(), "--help"]
    shown = run(*command, cwd=ROOT, env=environment, timeout=300).stdout
    assert [option for option in sorted(PROGRAMS[program]) if option not in shown] == []
