"""What is in the wheel and what it says about itself."""

from __future__ import annotations

import configparser
import email
import json
import platform
import re
import subprocess
import zipfile
from email.message import Message
from importlib.metadata import distribution as metadata_of
from pathlib import Path

import pytest

from distribution import PROJECT, ROOT, VERSION, run

DIST_INFO = f"sglang_gdn-{VERSION}.dist-info"
SIZE_LIMIT = 40e6
MANYLINUX = "manylinux_2_28"
SYSTEM_SYMBOL = re.compile(r"@(GLIBC|GCC)_")
SYSTEM_LIBRARIES = ("ld-linux-", "libc.so.", "libm.so.", "libdl.so.", "libpthread.so.", "librt.so.", "libgcc_s.so.")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    return email.message_from_bytes(zipfile.ZipFile(wheel).read(f"{DIST_INFO}/METADATA"))


@pytest.fixture(scope="module")
def tags(wheel: Path) -> list[str]:
    return email.message_from_bytes(zipfile.ZipFile(wheel).read(f"{DIST_INFO}/WHEEL")).get_all("Tag", [])


def test_holds_the_package_and_nothing_else(members: list[str]) -> None:
    assert {member.split("/")[0] for member in members} == {"sglang_gdn", DIST_INFO}


def test_holds_every_file_of_the_package(members: list[str]) -> None:
    source = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "sglang_gdn").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {member for member in members if member.startswith("sglang_gdn/") and not member.endswith("/")}
    extensions = {member for member in packed if member.endswith(".so")}
    assert packed - extensions == source
    assert "sglang_gdn/py.typed" in packed
    assert len(extensions) == 1


def test_carries_the_licence(members: list[str], metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert any(member.startswith(f"{DIST_INFO}/") and member.endswith("LICENSE") for member in members)


def test_names_what_is_compiled_in(wheel: Path, members: list[str]) -> None:
    """A CycloneDX bill of materials; every component has a notice."""
    content = zipfile.ZipFile(wheel).read(f"{DIST_INFO}/sboms/sglang-gdn.cdx.json")
    bill = json.loads(content)
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", VERSION)
    components = {component["name"]: component for component in bill["components"]}
    assert (
        {"nanobind", "robin-map", "libstdc++"}
        <= set(components)
        <= {"nanobind", "robin-map", "libstdc++", "cuda-runtime"}
    )
    assert components["nanobind"]["version"] == metadata_of("nanobind").version
    (notices,) = [member for member in members if member.endswith("THIRD_PARTY_NOTICES.md")]
    text = zipfile.ZipFile(wheel).read(notices).decode()
    assert [name for name in components if name.replace("cuda-runtime", "CUDA runtime") not in text] == []


def test_entry_points(wheel: Path) -> None:
    entries = configparser.ConfigParser()
    entries.read_string(zipfile.ZipFile(wheel).read(f"{DIST_INFO}/entry_points.txt").decode())
    assert dict(entries["sglang.srt.plugins"]) == {"gdn_tile": "sglang_gdn.serving.plugin:register"}
    assert dict(entries["vllm.general_plugins"]) == {"gdn_tile": "sglang_gdn.integrations.vllm:register"}


def test_requires_only_torch(metadata: Message) -> None:
    always = [entry for entry in metadata.get_all("Requires-Dist", []) if "extra ==" not in entry]
    assert always == ["torch>=2.8"]
    assert metadata["Requires-Python"] == PROJECT["requires-python"]


def test_tag(wheel: Path, tags: list[str], extension: Path) -> None:
    """One wheel for every Python from 3.12 on; Python 3.11 has no stable interface that suffices."""
    (tag,) = tags
    assert wheel.stem.endswith(f"-{tag}")
    interpreter, interface, platform_tag = tag.split("-")
    assert platform_tag.startswith(("linux_", f"{MANYLINUX}_"))
    module = {("cp311", "cp311"): "_C.cpython-311-", ("cp312", "abi3"): "_C.abi3.so"}[interpreter, interface]
    assert extension.name.startswith(module)


def test_size(wheel: Path) -> None:
    assert wheel.stat().st_size < SIZE_LIMIT


def test_needs_no_newer_c_library_than_its_tag_says(tags: list[str], extension: Path) -> None:
    """manylinux_2_28 promises glibc 2.28 and the unwinder of GCC 7; a wheel without that tag is for this machine."""
    symbols = run("objdump", "--dynamic-syms", str(extension)).stdout
    newest = {
        library: max(tuple(map(int, version.split("."))) for version in re.findall(rf"\({library}_([\d.]+)\)", symbols))
        for library in ("GLIBC", "GCC")
    }
    here = tuple(map(int, platform.libc_ver()[1].split(".")))
    glibc = (2, 28) if f"-{MANYLINUX}_" in tags[0] else here
    assert newest["GLIBC"] <= glibc
    assert newest["GCC"] <= (7, 0, 0)


def test_needs_only_the_c_library_and_its_unwinder(extension: Path) -> None:
    dynamic = run("readelf", "--dynamic", "--wide", str(extension)).stdout
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert needed
    assert [name for name in needed if not name.startswith(SYSTEM_LIBRARIES)] == []
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic


def undefined_symbols(extension: Path) -> list[str]:
    """Names that must be found when the module is loaded; weak ones need not be."""
    lines = run("nm", "--dynamic", "--undefined-only", str(extension)).stdout.splitlines()
    return [name for kind, name in (line.split() for line in lines) if kind == "U"]


def test_undefined_symbols_are_those_of_python_and_the_c_library(extension: Path) -> None:
    """In particular none of libtorch, CUDA, CANN or an OpenMP runtime."""
    names = undefined_symbols(extension)
    assert any(name.startswith("Py") for name in names)
    assert [name for name in names if not SYSTEM_SYMBOL.search(name) and not name.startswith(("Py", "_Py"))] == []


def test_exports_only_its_entry(extension: Path) -> None:
    """Another library could bind to exported C++ symbols, above all to those of the C++ runtime inside.

    Weak and unique symbols come from templates in headers and may be shared.
    """
    lines = run("nm", "--dynamic", "--defined-only", str(extension)).stdout.splitlines()
    strong = [name for _, kind, name in (line.split() for line in lines) if kind not in "VWu"]
    assert strong == ["PyInit__C"]


def test_names_no_folder_of_the_build_machine(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    folders = (str(ROOT).encode(), str(Path.home()).encode() + b"/")
    found = [name for name in archive.namelist() if any(folder in archive.read(name) for folder in folders)]
    assert found == []


def test_symbol_check_sees_a_foreign_symbol(tmp_path: Path) -> None:
    """The check above, on a library that does need something else."""
    source, library = tmp_path / "foreign.c", tmp_path / "foreign.so"
    source.write_text("int GOMP_parallel(void); int call(void) { return GOMP_parallel(); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    assert "GOMP_parallel" in undefined_symbols(library)
