"""The calls into CANN, against the ACL headers of the torch_npu wheel. `make ascend-check` unpacks them."""

from __future__ import annotations

import subprocess

import pytest

from ascend import simulated

HEADERS = simulated.ROOT / "build/ascend/acl/torch_npu/include/third_party/acl/inc"
ACL_SOURCES = ["device.cpp"]


def compile_against_headers(source: str) -> subprocess.CompletedProcess[str]:
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-xc++", "-"]
    folders = [f"-I{simulated.ROOT / 'csrc'}", f"-I{HEADERS}"]
    return subprocess.run([*command, *folders], input=source, capture_output=True, text=True)


@pytest.fixture(autouse=True)
def headers():
    if not HEADERS.exists():
        pytest.skip("the ACL headers are not unpacked: make ascend-check")


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
