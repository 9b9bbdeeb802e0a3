"""Prints what every kernel moves on the simulator, beside what it cannot do without or what MegaGDN's layout moves, how
many launches it takes, and how many of its synchronisations the simulator misses when they are left out.

``make ascend-report``; the figures are those in docs/ascend.md.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ascend import simulated
from ascend.test_causal_conv1d import prefill
from ascend.test_causal_conv1d_update import update
from ascend.test_delta_update import update as delta_update
from ascend.test_gdn_gating import gates
from ascend.test_missing_synchronisation import KERNELS, not_noticed
from cases import BF16, Heads
from problems import delta_rule
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


KIB = 1024
# MegaGDN (huawei-csl/megagdn-pto) works on chunks of 128 tokens in float16, so that C x D, C x C and D x D matrices all
# have 32 KiB. KiB of a chunk of one value head, by stage: what its stages load and store, as their sources say; gates
# and masks, below 1 %, are left out.
MEGA_CHUNK, TILE = 128, 32
MEGA_STAGES = {
    "scaled_dot_kkt": 4 * TILE,  # k; products stored and loaded; A stored
    "solve_tril": 6 * TILE,  # A; inverse in float32 stored, loaded to be converted, and stored again
    "wy_fast": 9 * TILE,  # inverse; two scaled copies stored and loaded; k, v; w, u
    "chunk_h": 14 * TILE,  # w, S, wS out and in; k, u; v_new and scaled k out and in; kv out and in; S out twice
    "chunk_o": 13 * TILE,  # q, k, S, v; qk, qS, gated qk and its product with v out and in; o
}
MEGA_AROUND = 7 * TILE  # zeros in A, in both inverses and in the states before the launch; scaling of o after it


def mega_kib(rows: list[int], heads: int, around: bool) -> int:
    """Final states included, as float16."""
    chunks = sum(-(-tokens // MEGA_CHUNK) for tokens in rows)
    each = sum(MEGA_STAGES.values()) + (MEGA_AROUND if around else 0)
    return heads * (chunks * each + len(rows) * TILE)


def chunk_rule_table(simulator: simulated.SimulatedModule) -> list[str]:
    lines = [
        "| rows x tokens, H/HV, bfloat16 | launches a layer | KiB moved | MegaGDN's launch | ratio | with its fills "
        "and scaling | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for rows, heads in (([256] * 4, Heads(4, 8)), ([1024], Heads(2, 4)), ([1024], Heads(1, 4))):
        delta_rule("cpu", heads, rows, act=BF16).run()
        moved = sum(simulator.bytes_moved()[pipe] for pipe in ("MTE2", "MTE3", "FIX")) / KIB
        launch, everything = (mega_kib(rows, heads.HV, around) for around in (False, True))
        lines.append(
            f"| {len(rows)} x {rows[0]:,}, {heads.H}/{heads.HV} | {simulator.launches()} | {moved:,.0f} | {launch:,} | "
            f"{moved / launch:.3f} | {everything:,} | {moved / everything:.3f} |"
        )
    return lines


# KiB of a chunk of 64 tokens of one value head in the single launch, by what is moved, in and out together. Of C x C
# matrices without anything above the diagonal three quarters are moved, of diagonal ones a quarter.
CHUNK_TRAFFIC = {
    "q, k, v in; o out": 4 * 16,
    "`k k^T` and `q k^T`, float32: cube to vector cores": 2 * 2 * 12,
    "diagonal of `q q^T`, float32: cube to vector cores": 2 * 4,
    "`write` and `erase`, both parts: vector cores to cube": 2 * 2 * 2 * 6,
    "weights of `v_new`, both parts: vector cores to cube": 2 * 2 * 6,
    "factors of q and k, both parts: vector cores to cube": 2 * 2 * 2 * 2,
    "state in 16 bits: vector cores to cube": 2 * 32,
    "what a chunk adds to the state, float32: cube to vector cores": 2 * 64,
    "gates and strengths, by both vector cores": 1,
}
TASK_KIB = 2 * 64  # a state in and out
BLOCK_BYTES = 2 * 8 * KIB + 32  # the negative identity out and in; what a buffer is cleared with


def chunk_traffic_table() -> list[str]:
    lines = ["| KiB of a chunk of 64 tokens and a value head | |", "|---|---|"]
    lines += [f"| {what} | {kib} |" for what, kib in CHUNK_TRAFFIC.items()]
    return [*lines, f"| all | {sum(CHUNK_TRAFFIC.values())} |"]


def synchronisation_table(simulator: simulated.SimulatedModule) -> list[str]:
    lines = ["| variant | missing synchronisation noticed | not noticed |", "|---|---|---|"]
    for variant in KERNELS:
        missed, total = not_noticed(simulator, variant)
        lines.append(f"| `{variant}` | {total - len(missed)} of {total} | {', '.join(missed) or 'none'} |")
    return lines


def main() -> None:
    torch.set_num_threads(1)
    simulator = simulated.SimulatedModule(simulated.build(simulated.ROOT / "build/ascend/simulator"))
    simulator.set_cores(24)
    ops._C = simulator
    tables = table(simulator), chunk_rule_table(simulator), chunk_traffic_table(), synchronisation_table(simulator)
    print("\n\n".join("\n".join(lines) for lines in tables))


if __name__ == "__main__":
    main()
