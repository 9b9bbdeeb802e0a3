"""The calls into CANN, against the ACL headers of the torch_npu wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from ascend import simulated
from gdn_aot.manifest import sha256

REQUIREMENT = simulated.ROOT / "tests/ascend/acl_headers.txt"
FOLDER = simulated.ROOT / "build/ascend/acl" / sha256(REQUIREMENT.read_bytes())[:12]
HEADERS = FOLDER / "torch_npu/include/third_party/acl/inc"
ACL_SOURCES = ["device.cpp"]


def compile_against_headers(source: str) -> subprocess.CompletedProcess[str]:
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-xc++", "-"]
    folders = [f"-I{simulated.ROOT / 'csrc'}", f"-I{HEADERS}"]
    return subprocess.run([*command, *folders], input=source, capture_output=True, text=True)


@pytest.fixture(scope="module", autouse=True)
def headers():
    """Fetches and unpacks them if they are not there."""
    if HEADERS.exists():
        return
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    wheel = ["--only-binary=:all:", "--python-version", "3.11", "--platform", "manylinux_2_28_x86_64"]
    done = subprocess.run([*command, *wheel, "--dest", FOLDER, "-r", REQUIREMENT], capture_output=True, text=True)
    if "No matching distribution found" in done.stderr or "No module named pip" in done.stderr:
        pytest.skip(f"no ACL headers: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (path,) = FOLDER.glob("*.whl")
    with zipfile.ZipFile(path) as content:
        content.extractall(FOLDER, [name for name in content.namelist() if "/third_party/acl/inc/" in name])
    path.unlink()


@pytest.mark.parametrize("name", ACL_SOURCES)
def test_calls_agree_with_the_headers(name):
    text = (simulated.ROOT / "csrc/ascend" / name).read_text()
    done = compile_against_headers(text)
    assert done.returncode == 0, done.stderr


def test_a_wrong_call_is_noticed():
    text = (simulated.ROOT / "csrc/ascend/device.cpp").read_text()
    done = compile_against_headers(text.replace("ACL_DEV_ATTR_CUBE_CORE_NUM, &value", "&value"))
    assert done.returncode != 0


def test_every_file_that_includes_acl_is_checked():
    including = [
        path.name for path in (simulated.ROOT / "csrc/ascend").glob("*.[ch]pp") if "acl/acl.h" in path.read_text()
    ]
    assert including == ACL_SOURCES
