"""Builds the CPU kernels with one fault at a time and runs the contract tests that must notice it.

    python tests/mutations/mutants.py [NAME ...]

A mutant is killed when its tests fail or crash. Exits with 1 if one survives. The tree is never changed: faults are
written to a temporary copy, which is built for one instruction set. The next mutant is compiled while the tests of one
run, in a process forked from a server that has imported what every test run imports.
"""  # fmt: skip

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutations.catalogue import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
TESTS_FAILED = 1  # pytest's exit status; 2 and above mean that it could not run them


@dataclass(frozen=True)
class Outcome:
    exit_status: int
    output: str

    @property
    def killed(self) -> bool:
        """Tests failed, or a signal ended the process. Anything else, say a test that does not exist, is no kill."""
        return self.exit_status == TESTS_FAILED or self.exit_status < 0


def run_in_this_process(site: Path, output: Path, tests: tuple[str, ...]) -> None:
    with output.open("w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    sys.path.insert(0, str(site))
    from sglang_gdn import _C

    assert Path(_C.__file__).is_relative_to(site), f"the tests would import {_C.__file__}"
    os.chdir(ROOT)
    names = [f"tests/contract/{test}" for test in tests]
    sys.exit(int(pytest.main(["-q", "-x", "--no-header", "-p", "no:cacheprovider", "--capture=sys", *names])))


class MutantBuild:
    """A copy of the sources with a build folder, and one package directory for each module built from it."""

    def __init__(self, directory: Path, mutations: list[Mutation]) -> None:
        self.mutations = mutations
        self.directory, self.source, self.build = directory, directory / "source", directory / "build"
        for name in ("CMakeLists.txt", "cmake", "csrc"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            self.source.mkdir(parents=True, exist_ok=True)
            copy(ROOT / name, self.source / name)
        self.environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        nanobind = self.command(sys.executable, "-m", "nanobind", "--cmake_dir").stdout.strip()
        self.command(
            "cmake", "-G", "Ninja", "-S", str(self.source), "-B", str(self.build), "-DCMAKE_BUILD_TYPE=Release",
            f"-DPython_EXECUTABLE={sys.executable}", f"-Dnanobind_DIR={nanobind}", "-DSGLANG_GDN_CUDA=OFF",
            "-DSGLANG_GDN_ASCEND=OFF", "-DSGLANG_GDN_CPU_BASELINE_ONLY=ON",
        )  # fmt: skip
        self.sound = self.compile("sound")
        self.compiler = ThreadPoolExecutor(1)
        self.sites: dict[Mutation, Future[Path]] = {}
        self.processes = multiprocessing.get_context("forkserver")
        self.processes.set_forkserver_preload(["hypothesis", "pytest", "torch", "torch._inductor.config"])

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(arguments, env=self.environment, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done

    def compile(self, name: str) -> Path:
        """Returns a folder from which the package with the module of the sources as they are can be imported."""
        self.command("cmake", "--build", str(self.build), "--parallel", str(min(os.cpu_count() or 1, 8)))
        (module,) = self.build.glob("_C.*")
        site = self.directory / "sites" / name
        shutil.copytree(ROOT / "sglang_gdn", site / "sglang_gdn", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy2(module, site / "sglang_gdn" / module.name)
        return site

    def compile_mutant(self, mutation: Mutation) -> Path:
        file = self.source / "csrc" / "cpu" / mutation.file
        sound = file.read_text()
        check_snippet(mutation)
        try:
            file.write_text(sound.replace(mutation.snippet, mutation.replacement))
            return self.compile(mutation.name)
        finally:
            file.write_text(sound)

    def site_of(self, mutation: Mutation) -> Future[Path]:
        if mutation not in self.sites:
            self.sites[mutation] = self.compiler.submit(self.compile_mutant, mutation)
        return self.sites[mutation]

    def run_tests(self, site: Path, tests: tuple[str, ...]) -> Outcome:
        output = site / "output.txt"
        process = self.processes.Process(target=run_in_this_process, args=(site, output, tests))
        process.start()
        process.join()
        return Outcome(process.exitcode, output.read_text())

    def with_mutation(self, mutation: Mutation) -> Outcome:
        """Runs the tests of ``mutation`` with its fault in place."""
        site = self.site_of(mutation).result()
        for following in self.mutations[self.mutations.index(mutation) + 1 :][:1]:
            self.site_of(following)
        return self.run_tests(site, mutation.tests)


def check_snippet(mutation: Mutation) -> None:
    count = (ROOT / "csrc" / "cpu" / mutation.file).read_text().count(mutation.snippet)
    assert count == 1, f"{mutation}: the snippet occurs {count} times in csrc/cpu/{mutation.file}"


def named_tests(mutations: list[Mutation]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(test for mutation in mutations for test in mutation.tests))


def main(names: list[str]) -> int:
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    for mutation in chosen:
        check_snippet(mutation)
    survivors = []
    with tempfile.TemporaryDirectory() as directory:
        build = MutantBuild(Path(directory), chosen)
        sound = build.run_tests(build.sound, named_tests(chosen))
        if sound.exit_status != 0:
            print(sound.output, "the sound build does not pass", sep="\n")
            return 2
        for mutation in chosen:
            begin = time.monotonic()
            done = build.with_mutation(mutation)
            verdict = "killed" if done.killed else "SURVIVED"
            print(f"{verdict:8}  {time.monotonic() - begin:5.1f} s  {mutation}", flush=True)
            if not done.killed:
                survivors.append(mutation.name)
                print(done.output)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
