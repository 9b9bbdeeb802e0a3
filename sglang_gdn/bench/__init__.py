"""``python -m sglang_gdn bench``: our operators beside other implementations, same inputs, one run.

A result is timed only after it agrees with the float64 definition. Every row holds the median of our time and of each
peer's, and the least time that this machine's measured copy and matrix-product rates allow for the shape. Prefill,
decode and verify run in a process each, because memory that one leaves to the allocator changes the times of the next.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sglang_gdn import __version__, machine
from sglang_gdn.bench.workloads import Heads, Workload, decode, prefill, verify

DEFAULT_OUTPUT = Path("benchmarks/results")
OPS_OF_PHASE = {
    "prefill": ("causal_conv1d", "gdn_gating", "chunk_gated_delta_rule", "gdn_prefill"),
    "decode": ("causal_conv1d_update", "fused_sigmoid_gating_delta_rule_update", "gdn_decode"),
    "verify": ("gdn_verify",),
}
DEFAULT_HEADS = "16,32"


def workloads_of(phase: str, heads: Heads, quick: bool) -> list[Workload]:
    if phase == "prefill":
        ragged = (1, 7, 63, 64, 65, 130, 200, 518, 1000)
        shapes = {"1x256": (256,)} if quick else {"1x2048": (2048,), "8x256": (256,) * 8, "ragged2048/9": ragged}
        return [prefill(heads, label, lens) for label, lens in shapes.items()]
    if phase == "decode":
        return [decode(heads, batch) for batch in ((2,) if quick else (1, 8, 32))]
    return [verify(heads, batch, 4) for batch in ((2,) if quick else (1, 8))]


def parse_heads(text: str) -> list[Heads]:
    """ "16,32" or "16,32;16,48" -> [Heads(16, 32), ...]."""
    pairs = [tuple(int(number) for number in pair.split(",")) for pair in text.split(";")]
    if any(len(pair) != 2 or pair[0] < 1 or pair[1] % pair[0] for pair in pairs):
        raise argparse.ArgumentTypeError(f"heads must be H,HV with HV a multiple of H; got {text!r}")
    return [Heads(*pair) for pair in pairs]


def arguments(argv: list[str]) -> argparse.Namespace:
    every_op = [op for ops in OPS_OF_PHASE.values() for op in ops]
    parser = argparse.ArgumentParser(prog="python -m sglang_gdn bench", description=__doc__)
    parser.add_argument("--device", choices=["cpu"], default="cpu")
    parser.add_argument("--ops", nargs="+", choices=every_op, default=every_op, metavar="OP", help=", ".join(every_op))
    parser.add_argument("--heads", type=parse_heads, default=DEFAULT_HEADS, help='key and value heads: "16,32;16,48"')
    parser.add_argument("--quick", action="store_true", help="small shapes, to see that everything runs")
    parser.add_argument("--seconds", type=float, default=2.0, help="time spent on each measurement")
    parser.add_argument("--peer-path", help="folder from which flash-linear-attention is imported, after transformers")
    parser.add_argument(
        "--output",
        type=Path,
        help=f"folder for DEVICE/PHASE.json; a full run in a checkout writes to {DEFAULT_OUTPUT} without it",
    )
    options = parser.parse_args(argv)
    full = options.ops == every_op and options.heads == parse_heads(DEFAULT_HEADS) and not options.quick
    if options.output is None and full and DEFAULT_OUTPUT.is_dir():
        options.output = DEFAULT_OUTPUT
    if options.quick:
        options.seconds = 0.0
    return options


def versions(rates: Any) -> dict[str, Any]:
    """What a number depends on besides the code."""
    from sglang_gdn import _C

    found = machine.versions() | {"fla-core": machine.package_version("fla-core"), "sglang-gdn": __version__}
    return {name: version for name, version in found.items() if version is not None} | {
        "cpu": machine.cpu_name(),
        "isa": _C.cpu_isa(),
        "threads": _C.get_num_threads(),
        "copy_gb_s": round(rates.copy_gb_s, 1),
        "fp32_gflop_s": round(rates.fp32_gflop_s, 1),
    }


def main(argv: list[str]) -> int:
    options = arguments(argv)
    asked = [ops for phase_ops in OPS_OF_PHASE.values() if (ops := [op for op in phase_ops if op in options.ops])]
    if len(asked) == 1:
        return measure_phase(options)
    return max(in_own_process(options, ops) for ops in asked)


def in_own_process(options: argparse.Namespace, ops: list[str]) -> int:
    heads = ";".join(f"{pair.k},{pair.v}" for pair in options.heads)
    command = [sys.executable, "-m", "sglang_gdn", "bench", "--device", options.device, "--heads", heads]
    command += ["--seconds", str(options.seconds), "--ops", *ops]
    command += ["--quick"] if options.quick else []
    command += ["--peer-path", options.peer_path] if options.peer_path else []
    command += ["--output", str(options.output)] if options.output else []
    installed_package = {"PYTHONSAFEPATH": "1"}  # also in a checkout, which has no compiled module
    return subprocess.run(command, env=os.environ | installed_package, check=False).returncode


def measure_phase(options: argparse.Namespace) -> int:
    """Measures operators of one phase in this process."""
    import torch

    from sglang_gdn.bench.implementations import OURS, find_peers
    from sglang_gdn.bench.measure import LIMITS, PEER_LIMITS, Gate, Machine, cost, median_ms

    torch.set_grad_enabled(False)
    peers, missing = find_peers(options.peer_path)
    rates = Machine.measure(options.seconds)
    facts = versions(rates)
    print(" ".join(f"{name}={value}" for name, value in facts.items()), *missing, header(list(peers)), sep="\n")
    refused = 0
    for phase, phase_ops in OPS_OF_PHASE.items():
        rows: list[dict[str, Any]] = []
        for heads in options.heads:
            for workload in workloads_of(phase, heads, options.quick):
                for op in (op for op in phase_ops if op in options.ops):
                    gate, times = Gate(op, workload), dict[str, float]()
                    makers = {"ours": OURS[op]} | {name: found[op] for name, found in peers.items() if op in found}
                    for name, maker in makers.items():
                        run = maker(workload)
                        if failures := gate.failures(run(0), LIMITS if name == "ours" else PEER_LIMITS):
                            print(f"{op} {workload.label}: {name} is not timed, {'; '.join(failures)}", file=sys.stderr)
                            refused += name == "ours"
                            continue
                        times[name] = median_ms(run, options.seconds)
                    if "ours" not in times:
                        continue
                    rows.append(
                        {
                            "op": op,
                            "shape": workload.shape,
                            "ours_ms": times.pop("ours"),
                            "peers": times,
                            "floor_ms": rates.floor_ms(*cost(op, workload)),
                            "versions": facts,
                            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                        }
                    )
                    print(line(rows[-1], workload.label, list(peers)), flush=True)
        if options.output is not None and rows:
            write(options.output / options.device / f"{phase}.json", rows)
    return 1 if refused else 0


def header(peers: list[str]) -> str:
    return f"{'operator':<40}{'heads':<8}{'shape':<20}{'ours':>13}{'floor':>13}" + "".join(
        f"{name:>24}" for name in peers
    )


def line(row: dict[str, Any], label: str, peers: list[str]) -> str:
    ours, heads = row["ours_ms"], f"{row['shape']['hk']}/{row['shape']['hv']}"
    text = f"{row['op']:<40}{heads:<8}{label:<20}{ours:>10.3f} ms{row['floor_ms']:>10.3f} ms"
    for name in peers:
        peer = row["peers"].get(name)
        text += f"{'-':>24}" if peer is None else f"{peer:>12.3f} ms{peer / ours:>8.1f}x"
    return text


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for row in rows:
        row["ours_ms"], row["floor_ms"] = round(row["ours_ms"], 4), round(row["floor_ms"], 4)
        row["peers"] = {name: round(peer, 4) for name, peer in row["peers"].items()}
    path.write_text(json.dumps(rows, indent=2) + "\n")
    print(f"wrote {path}")
