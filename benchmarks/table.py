"""Markdown tables from ``benchmarks/results``, between ``<!-- bench:DEVICE -->`` and ``<!-- /bench:DEVICE -->``.

``python benchmarks/table.py --write FILE`` replaces what is between the markers of FILE; ``--check FILE`` says whether
that would change anything (exit code 1 if so).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PHASES = ("prefill", "decode", "verify", "frontend", "chunk_rule")
SOFTWARE = ("torch", "transformers", "fla-core")
RATES = {
    "copy_gb_s": ("copy", "GB/s"),
    "update_gb_s": ("update in place", "GB/s"),
    "fp32_gflop_s": ("float32 matrix products", "GFLOP/s"),
    "peak_tflops": ("dense bfloat16", "TFLOP/s"),
    "peak_gb_s": ("memory", "GB/s"),
}


def shape_text(shape: dict) -> str:
    if "lens" in shape:
        return shape["label"] + ("" if shape.get("l2norm", True) else ", no l2norm")
    drafts = f", {shape['drafts']} drafts" if "drafts" in shape else ""
    tree = ", a tree" if shape.get("tree") else ""
    stored = {True: ", states stored", False: ", record kept", None: ""}[shape.get("stored")]
    return f"batch {shape['batch']}{drafts}{tree}{stored}"


def number(time: float) -> str:
    return f"{time:.0f}" if time >= 100 else f"{time:.1f}" if time >= 10 else f"{time:.2f}"


def table(rows: list[dict]) -> str:
    """One line per operator and shape; each peer with its time and how many times longer it takes."""
    peers = list(dict.fromkeys(name for row in rows for name in row["peers"]))
    unit, per_ms = ("µs", 1e3) if all(row["ours_ms"] < 2 for row in rows) else ("ms", 1.0)
    titles = ["operator", "H/HV", "shape", *(f"{name}, {unit}" for name in ("ours", "floor", *peers))]
    lines = ["| " + " | ".join(titles) + " |", "|---|---|---|" + "---:|" * (len(titles) - 3)]
    for row in rows:
        cells = [
            f"`{row['op']}`",
            f"{row['shape']['hk']}/{row['shape']['hv']}",
            shape_text(row["shape"]),
            f"**{number(row['ours_ms'] * per_ms)}**",
            number(row["floor_ms"] * per_ms),
        ]
        for name in peers:
            peer = row["peers"].get(name)
            cells.append("" if peer is None else f"{number(peer * per_ms)} ({peer / row['ours_ms']:.2f}x)")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def caption(row: dict) -> str:
    facts = row["versions"]
    machine = facts.get("gpu") or f"{facts['cpu']}, {facts['threads']} threads, {facts['isa']}"
    rates = [f"{text} {facts[name]} {unit}" for name, (text, unit) in RATES.items() if name in facts]
    versions = [f"{name} {facts[name]}" for name in SOFTWARE if name in facts]
    rates_of = "the rates measured in the same run"
    if "peak_tflops" in facts:
        rates_of = "the chip's rates"
    return (
        f"Medians on {machine}; bfloat16 inputs, float32 state, head size {row['shape']['d']}. The floor is the least "
        f"time at {rates_of}: {', '.join(rates)}. {', '.join(versions)}; {row['date']}."
    )


def render(device: str) -> str:
    """Caption and table of a device; rows of different runs get a caption each."""
    runs: dict[str, list[dict]] = {}
    for phase in PHASES:
        path = RESULTS / device / f"{phase}.json"
        for row in json.loads(path.read_text()) if path.exists() else []:
            runs.setdefault(caption(row), []).append(row)
    if not runs:
        raise SystemExit(f"no results of {device} in {RESULTS}")
    return "\n\n".join(f"{table(rows)}\n\n{text}" for text, rows in runs.items())


def fill(text: str) -> str:
    """``text`` with every marked part made anew."""
    pattern = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench:\2 -->)", re.DOTALL)
    filled, count = pattern.subn(lambda match: f"{match[1]}{render(match[2])}\n{match[3]}", text)
    if not count:
        raise SystemExit("no <!-- bench:DEVICE --> markers")
    return filled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="FILE")
    action.add_argument("--check", type=Path, metavar="FILE")
    options = parser.parse_args()
    path = options.write or options.check
    before = path.read_text()
    after = fill(before)
    if options.check:
        if before != after:
            print(f"{path}: the benchmark table is not that of {RESULTS.name}; run table.py --write", file=sys.stderr)
        return int(before != after)
    path.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
