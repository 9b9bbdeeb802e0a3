"""Lowers kernels, checks them and writes, or compares, everything under ``csrc/ascend/generated``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gdn_aot import manifest
from gdn_aot.generator.run import lower_all
from gdn_aot.registry import Kernel, registered_kernels, spec_fields, variant_name
from gdn_aot.source import kernel_header, kernel_registry, variant_source

LIMIT_SECONDS = 300  # of processor time, a variant


class CompileError(Exception):
    """Variants could not be lowered, or the committed files differ from what was generated."""


def lowered_texts(kernels: dict[str, type[Kernel]], device: str, cache: Path) -> dict[str, str]:
    """Lowered text by variant. ``cache`` keeps them by the hash of everything that they depend on."""
    cache.mkdir(parents=True, exist_ok=True)
    paths, jobs = {}, []
    for name, kernel in kernels.items():
        for spec in kernel.SPECIALIZATIONS:
            path = cache.resolve() / f"{manifest.inputs_hash(kernel, spec)}-{device}.cpp"
            paths[variant_name(kernel, spec)] = path
            if not path.exists():
                jobs.append({"kernel": name, "specialization": spec_fields(spec), "output": str(path)})
    failures = []
    if jobs:
        variants = {str(path): variant for variant, path in paths.items()}
        for outcome in lower_all(jobs, device, LIMIT_SECONDS):
            variant = variants[outcome["output"]]
            print(f"{variant}: {outcome['error'] or 'lowered'} ({outcome['seconds']:.1f} s)", flush=True)
            if outcome["error"]:
                failures.append(variant)
    if failures:
        raise CompileError(f"not lowered: {', '.join(failures)}")
    return {variant: path.read_text() for variant, path in paths.items()}


def generated_files(
    kernels: dict[str, type[Kernel]], device: str, cache: Path
) -> tuple[dict[str, str], dict[str, Any]]:
    """Texts by file name, and the kernels' entries of the manifest."""
    lowered = lowered_texts(kernels, device, cache)
    files, entries = {}, {}
    for name, kernel in kernels.items():
        sources = {}
        for spec in kernel.SPECIALIZATIONS:
            variant = variant_name(kernel, spec)
            sources[variant], signature = variant_source(kernel, spec, lowered[variant])
            files[f"{variant}.cpp"] = sources[variant]
        files[f"{name}.hpp"] = kernel_header(kernel, signature)
        files[f"{name}_registry.cpp"] = kernel_registry(kernel)
        entries[name] = manifest.kernel_entry(kernel, signature, sources)
    return files, entries


def selected(names: Sequence[str] | None) -> dict[str, type[Kernel]]:
    kernels = registered_kernels()
    unknown = set(names or ()) - kernels.keys()
    if unknown:
        raise CompileError(f"kernels must be among {', '.join(kernels)}; got {', '.join(sorted(unknown))}")
    return {name: kernel for name, kernel in kernels.items() if not names or name in names}


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def belongs_to(name: str, kernel: str, others: Sequence[str]) -> bool:
    """Whether a generated file is of ``kernel`` and not of a kernel with a longer name."""
    return name.startswith(kernel) and not any(
        name.startswith(other) for other in others if len(other) > len(kernel) and other.startswith(kernel)
    )


def compile_kernels(names: Sequence[str] | None, device: str, output: Path, cache: Path) -> None:
    """Writes the selected kernels' files; those of the others stay."""
    kernels = selected(names)
    files, entries = generated_files(kernels, device, cache)
    output.mkdir(parents=True, exist_ok=True)
    everything = list(registered_kernels())
    for path in output.glob("*.[ch]pp"):
        if path.name not in files and any(belongs_to(path.name, kernel, everything) for kernel in kernels):
            path.unlink()
    for name, text in files.items():
        write_if_changed(output / name, text)
    kept = {name: entry for name, entry in manifest.read(output).items() if name in everything and name not in kernels}
    write_if_changed(output / "manifest.json", manifest.render(kept | entries))


def build_device_library(folder: Path) -> Path | None:
    """Compiles the committed device sources by the package's own build; None where BiSheng is not on ``PATH``.

    Raises:
        CompileError: the build failed, with its output.
    """
    if shutil.which("bisheng") is None:
        return None
    find = subprocess.run([sys.executable, "-m", "nanobind", "--cmake_dir"], check=True, capture_output=True, text=True)
    options = ["-DSGLANG_GDN_ASCEND=ON", "-DSGLANG_GDN_CUDA=OFF", f"-DPython_EXECUTABLE={sys.executable}"]
    configure = ["cmake", "-S", ".", "-B", folder, *options, f"-Dnanobind_DIR={find.stdout.strip()}"]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in (configure, ["cmake", "--build", folder, "--target", "sglang_gdn_ascend", "--parallel"]):
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise CompileError(f"BiSheng: {done.stdout}")
    return folder / "csrc/ascend/libsglang_gdn_ascend.so"


def check_kernels(names: Sequence[str] | None, device: str, output: Path, cache: Path) -> None:
    """Compares byte for byte.

    Raises:
        CompileError: names the files that differ, are missing or should not be there.
    """
    kernels = selected(names)
    files, entries = generated_files(kernels, device, cache)
    if not names:
        files["manifest.json"] = manifest.render(entries)
        surplus = [path.name for path in output.iterdir() if path.name not in files]
    else:
        committed = manifest.read(output)
        surplus = []
        if any(json.dumps(committed.get(name)) != json.dumps(entry) for name, entry in entries.items()):
            surplus.append("manifest.json")
    differing = [name for name, text in files.items() if not matches(output / name, text)]
    if differing or surplus:
        raise CompileError(f"differ from what is generated: {', '.join(sorted([*differing, *surplus]))}")


def matches(path: Path, text: str) -> bool:
    return path.exists() and path.read_bytes() == text.encode()
