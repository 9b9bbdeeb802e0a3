"""Prints registers, shared memory, stack and the instruction mix of every SM90 kernel; fails if one uses local memory.

Takes object files of the build or the extension module. Needs cuobjdump: that of the CUDA toolkit, or the one inside
Triton's package.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

RESOURCES = re.compile(r"Function (\S+):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
FUNCTION = re.compile(r"Function : (\S+)")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
# Column title and the instructions it counts.
MIX = {
    "ld128": r"LDG\.\S*128|LDGSTS\.\S*128",
    "ld": r"LDG|LD\.E",
    "st128": r"STG\.\S*128",
    "st": r"STG|ST\.E",
    "local": r"LDL|STL",
    "shfl": r"SHFL",
    "ffma": r"FFMA|FMUL|FADD",
    "mufu": r"MUFU",
    "mma": r"HGMMA|HMMA",
    "bar": r"BAR|UCGABAR|SYNCS",
}


def find_cuobjdump(compiler: Path | None) -> str:
    if compiler and (beside := compiler.resolve().parent / "cuobjdump").exists():
        return str(beside)
    if on_path := shutil.which("cuobjdump"):
        return on_path
    triton = importlib.util.find_spec("triton")
    if triton and triton.origin:
        for path in Path(triton.origin).parent.glob("backends/nvidia/bin/cuobjdump"):
            return str(path)
    sys.exit("sm90_resource_report: cuobjdump must be beside nvcc, on PATH or in Triton's package; none was found")


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kernel_name(symbol: str) -> str:
    text = output_of("c++filt", symbol).strip() if shutil.which("c++filt") else symbol
    text = text.removeprefix("void ").split("(")[0]
    return text.replace("gdn::sm90::", "").replace("__nv_bfloat16", "bf16").replace("__half", "f16")


def instruction_mix(sass: str) -> dict[str, Counter[str]]:
    mix = {}
    parts = FUNCTION.split(sass)
    for symbol, body in zip(parts[1::2], parts[2::2], strict=True):
        opcodes = INSTRUCTION.findall(body)
        counts = Counter({title: sum(bool(re.match(rule, op)) for op in opcodes) for title, rule in MIX.items()})
        counts["all"] = sum(op != "NOP" for op in opcodes)
        mix[symbol] = counts
    return mix


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", type=Path, help="nvcc, to find the tools beside it")
    parser.add_argument("objects", nargs="+")
    arguments = parser.parse_args()
    cuobjdump = find_cuobjdump(arguments.compiler)
    titles = ["all", *MIX]
    print(f"{'kernel':72} {'regs':>4} {'shared':>6} {'stack':>5} " + " ".join(f"{title:>5}" for title in titles))
    spilling = []
    for path in arguments.objects:
        if path.endswith(".cpp.o"):
            continue
        mix = instruction_mix(output_of(cuobjdump, "--dump-sass", path))
        for symbol, registers, stack, shared, local in RESOURCES.findall(
            output_of(cuobjdump, "--dump-resource-usage", path)
        ):
            name = kernel_name(symbol)
            counts = " ".join(f"{mix[symbol][title]:5}" for title in titles)
            print(f"{name:72} {registers:>4} {shared:>6} {stack:>5} {counts}")
            if int(stack) or int(local) or mix[symbol]["local"]:
                spilling.append(name)
    if spilling:
        print("kernels that use local memory: " + ", ".join(spilling), file=sys.stderr)
    return bool(spilling)


if __name__ == "__main__":
    sys.exit(main())
