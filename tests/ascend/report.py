"""Prints what every kernel moves on the simulator, beside what it cannot do without, and how many launches it takes.

``make ascend-report``; the table is the one in docs/ascend.md.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ascend import simulated
from ascend.test_causal_conv1d import prefill
from ascend.test_causal_conv1d_update import update
from ascend.test_delta_update import update as delta_update
from ascend.test_gdn_gating import gates
from cases import BF16, Heads
from sglang_gdn import ops

CHANNELS, WIDTH = 2048, 4
HEADS = Heads(4, 8)
BF16_BYTES, F32_BYTES = 2, 4


def conv_bytes(tokens: int, rows: int) -> int:
    """Inputs, outputs, a window read and written a row, taps and bias."""
    return BF16_BYTES * CHANNELS * (2 * tokens + 2 * rows * (WIDTH - 1) + WIDTH + 1)


def gate_bytes(tokens: int, heads: int) -> int:
    """a and b in, g and beta out; A_log and dt_bias."""
    return tokens * heads * 2 * (BF16_BYTES + F32_BYTES) + 2 * heads * F32_BYTES


def delta_bytes(rows: int) -> int:
    """A state read and written a head; q, k, v, o, a and b of a row; A_log and dt_bias."""
    state = 2 * HEADS.HV * HEADS.V * HEADS.K * F32_BYTES
    row = BF16_BYTES * (2 * HEADS.H * HEADS.K + 2 * HEADS.HV * HEADS.V + 2 * HEADS.HV)
    return rows * (state + row) + 2 * HEADS.HV * F32_BYTES


CASES: dict[str, tuple[str, int, Callable[[], object]]] = {
    "causal_conv1d": (
        "1,024 tokens in 4 rows, D 2,048", conv_bytes(1024, 4),
        lambda: prefill([256] * 4, channels=CHANNELS, pool=BF16).run(),
    ),
    "causal_conv1d_update": (
        "32 rows, D 2,048", conv_bytes(32, 32), lambda: update(CHANNELS, 32, 1, pool=BF16).run()
    ),
    "gdn_gating": ("2,048 tokens, HV 32", gate_bytes(2048, 32), lambda: ops.gdn_gating(**gates(2048, 32))),
    "fused_sigmoid_gating_delta_rule_update": (
        "16 rows, H/HV 4/8", delta_bytes(16), lambda: delta_update(HEADS, 16).run()
    ),
}  # fmt: skip


def table(simulator: simulated.SimulatedModule) -> list[str]:
    """Lines of markdown. ``ops`` must already run on ``simulator``."""
    lines = ["| kernel | shape, bfloat16 | launches | KiB moved | KiB at least | ratio |", "|---|---|---|---|---|---|"]
    for kernel, (shape, least, run) in CASES.items():
        run()
        moved = sum(simulator.bytes_moved()[pipe] for pipe in ("MTE2", "MTE3", "FIX"))
        figures = f"{moved / 1024:,.0f} | {least / 1024:,.0f} | {moved / least:.3f}"
        lines.append(f"| `{kernel}` | {shape} | {simulator.launches()} | {figures} |")
    return lines


def main() -> None:
    torch.set_num_threads(1)
    simulator = simulated.SimulatedModule(simulated.build(simulated.ROOT / "build/ascend/simulator"))
    simulator.set_cores(24)
    ops._C = simulator
    print("\n".join(table(simulator)))


if __name__ == "__main__":
    main()
