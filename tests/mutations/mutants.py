"""Builds the CPU kernels with one fault at a time and runs the contract tests that must notice it.

    python tests/mutations/mutants.py [NAME ...]

A mutant is killed when its tests fail or crash. Exits with 1 if one survives. The tree is never changed: faults are
written to a temporary copy, which is built for one instruction set.
"""  # fmt: skip

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutations.catalogue import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
TESTS_FAILED = 1  # pytest's exit status; 2 and above mean that it could not run them


class MutantBuild:
    """A copy of the sources with a build folder, and a package directory that holds the built module."""

    def __init__(self, directory: Path) -> None:
        self.source, self.build, self.site = directory / "source", directory / "build", directory / "site"
        for name in ("CMakeLists.txt", "cmake", "csrc"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            self.source.mkdir(parents=True, exist_ok=True)
            copy(ROOT / name, self.source / name)
        shutil.copytree(ROOT / "sglang_gdn", self.site / "sglang_gdn", ignore=shutil.ignore_patterns("__pycache__"))
        self.environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(self.site), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        nanobind = self.command(sys.executable, "-m", "nanobind", "--cmake_dir").stdout.strip()
        self.command(
            "cmake", "-G", "Ninja", "-S", str(self.source), "-B", str(self.build), "-DCMAKE_BUILD_TYPE=Release",
            f"-DPython_EXECUTABLE={sys.executable}", f"-Dnanobind_DIR={nanobind}", "-DSGLANG_GDN_CUDA=OFF",
            "-DSGLANG_GDN_ASCEND=OFF", "-DSGLANG_GDN_CPU_BASELINE_ONLY=ON",
        )  # fmt: skip
        self.compile()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(arguments, env=self.environment, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done

    def compile(self) -> None:
        self.command("cmake", "--build", str(self.build), "--parallel", str(min(os.cpu_count() or 1, 8)))
        (module,) = self.build.glob("_C.*")
        shutil.copy2(module, self.site / "sglang_gdn" / module.name)
        where = self.command(sys.executable, "-P", "-c", "from sglang_gdn import _C; print(_C.__file__)").stdout
        assert Path(where.strip()).is_relative_to(self.site), f"the tests would import {where}"

    def run_tests(self, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        names = [f"tests/contract/{test}" for test in tests]
        return subprocess.run(
            [sys.executable, "-P", "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *names],
            cwd=ROOT, env=self.environment, text=True, capture_output=True, check=False,
        )  # fmt: skip

    def with_mutation(self, mutation: Mutation) -> subprocess.CompletedProcess[str]:
        """Runs the tests of ``mutation`` with its fault in place; the copy is sound again afterwards."""
        file = self.source / "csrc" / "cpu" / mutation.file
        sound = file.read_text()
        check_snippet(mutation)
        try:
            file.write_text(sound.replace(mutation.snippet, mutation.replacement))
            self.compile()
            return self.run_tests(mutation.tests)
        finally:
            file.write_text(sound)


def check_snippet(mutation: Mutation) -> None:
    count = (ROOT / "csrc" / "cpu" / mutation.file).read_text().count(mutation.snippet)
    assert count == 1, f"{mutation}: the snippet occurs {count} times in csrc/cpu/{mutation.file}"


def killed(done: subprocess.CompletedProcess[str]) -> bool:
    """Tests failed, or a signal ended the process. Anything else, say a test that does not exist, is no kill."""
    return done.returncode == TESTS_FAILED or done.returncode < 0


def main(names: list[str]) -> int:
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    for mutation in chosen:
        check_snippet(mutation)
    survivors = []
    with tempfile.TemporaryDirectory() as directory:
        build = MutantBuild(Path(directory))
        sound = build.run_tests(tuple(dict.fromkeys(test for mutation in chosen for test in mutation.tests)))
        if sound.returncode != 0:
            print(sound.stdout, sound.stderr, "the sound build does not pass", sep="\n")
            return 2
        for mutation in chosen:
            begin = time.monotonic()
            done = build.with_mutation(mutation)
            print(
                f"{'killed' if killed(done) else 'SURVIVED':8}  {time.monotonic() - begin:5.1f} s  {mutation}",
                flush=True,
            )
            if not killed(done):
                survivors.append(mutation.name)
                print(done.stdout, done.stderr, sep="\n")
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
