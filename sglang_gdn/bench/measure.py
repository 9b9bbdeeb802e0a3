"""Medians, the machine's own rates, the least time that a shape can take, and the gate that results must pass."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sglang_gdn import reference
from sglang_gdn.bench.implementations import Output
from sglang_gdn.bench.workloads import ACT, CHUNK, Workload

COPY_BYTES = 256 << 20
MATMUL_SIZE = 1024

# Largest relative L2 error to the float64 definition, bfloat16 inputs: prefill o 5e-3 and state 3e-3, decode o 3e-3,
# convolution one rounding, gates never rounded.
LIMITS = {"y": 5e-3, "prefill o": 5e-3, "decode o": 3e-3, "verify o": 3e-3, "state": 3e-3, "window": 0.0, "g": 1e-6}
# A peer has to compute the same thing, but may round where we do not (transformers: convolution before its SiLU).
PEER_LIMITS = dict.fromkeys(LIMITS, 2e-2)


def median_ms(run: Callable[[int], object], seconds: float, at_least: int = 3, at_most: int = 200) -> float:
    """Median over as many steps as fit in ``seconds``, after one step of warm-up."""
    run(0)
    times: list[float] = []
    while len(times) < at_least or (sum(times) < seconds and len(times) < at_most):
        start = time.perf_counter()
        run(len(times) + 1)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


@dataclass(frozen=True)
class Machine:
    """Rates measured in this run: bytes read plus bytes written by a large copy, and float32 matrix products."""

    copy_gb_s: float
    fp32_gflop_s: float

    @staticmethod
    def measure(seconds: float) -> Machine:
        source, target = torch.zeros(2, COPY_BYTES // 4).unbind(0)
        copy_ms = median_ms(lambda step: target.copy_(source), seconds)
        a, b = torch.randn(2, MATMUL_SIZE, MATMUL_SIZE).unbind(0)
        matmul_ms = median_ms(lambda step: a @ b, seconds)
        return Machine(2 * COPY_BYTES / copy_ms / 1e6, 2 * MATMUL_SIZE**3 / matmul_ms / 1e6)

    def floor_ms(self, moved_bytes: float, flops: float) -> float:
        return max(moved_bytes / self.copy_gb_s, flops / self.fp32_gflop_s) / 1e6


def cost(op: str, w: Workload) -> tuple[float, float]:
    """(bytes, floating-point operations) that the operator cannot avoid.

    Bytes: each input once, each output once, each state read and written once. Operations: those of the chunked form
    with 64 tokens a chunk, triangular matrices counted by half; elementwise work is not counted.
    """
    heads, tokens = w.heads, w.tokens
    x = y = tokens * heads.channels * ACT.itemsize
    o = tokens * heads.v * heads.dim * ACT.itemsize
    raw_gates = 2 * tokens * heads.v * ACT.itemsize
    ready_gates = 2 * tokens * heads.v * 4
    states, windows = w.rows * heads.state_bytes, w.rows * heads.window_bytes
    rule_flops = chunked_flops(w)
    match op:
        case "causal_conv1d" | "causal_conv1d_update":
            return x + y + 2 * windows, 0
        case "gdn_gating":
            return raw_gates + ready_gates, 0
        case "chunk_gated_delta_rule":
            return x + ready_gates + o + 2 * states, rule_flops
        case "gdn_prefill":
            return x + raw_gates + o + 2 * states + 2 * windows, rule_flops
        case "fused_sigmoid_gating_delta_rule_update":
            return x + raw_gates + o + 2 * states, 0
        case "gdn_decode":
            return x + raw_gates + o + 2 * states + 2 * windows, 0
        case "gdn_verify":
            drafts = w.lens[0]
            return x + raw_gates + o + (1 + drafts) * (states + windows), 0
    raise ValueError(f"no cost is known for {op}")


def chunked_flops(w: Workload) -> float:
    """Per chunk of C rows and value head: K S^T, Q S^T, S' (2 C d d each), V', O (C C d each), inverse (C C C / 3);
    per key head: K K^T, Q K^T (C C d each)."""
    heads, flops = w.heads, 0.0
    for length in w.lens:
        full, rest = divmod(length, CHUNK)
        for size, count in ((CHUNK, full), (rest, 1)):
            per_value_head = 6 * size * heads.dim**2 + 2 * size**2 * heads.dim + size**3 / 3
            per_key_head = 2 * size**2 * heads.dim
            flops += count * (heads.v * per_value_head + heads.k * per_key_head)
    return flops


def relative_error(x: Tensor, wanted: Tensor) -> float:
    """``||x - wanted|| / ||wanted||``, infinite where ``x`` is not finite."""
    ratio = ((x.double() - wanted).norm() / wanted.norm()).item()
    return ratio if ratio == ratio else float("inf")


class Gate:
    """The float64 definition of an operator on a workload, for the first and the last value head."""

    def __init__(self, op: str, w: Workload) -> None:
        self.op, self.w = op, w
        heads, x = w.heads, w.inputs
        self.v_heads = [0, heads.v - 1]
        self.channels = torch.cat([self._channels_of(head) for head in self.v_heads])
        mixed, weight = x.mixed_qkv[:, self.channels], x.conv_weight[self.channels]
        windows = x.conv_pool[x.batches[0].long()][:, self.channels]
        states = x.ssm_pool[x.batches[0].long()][:, self.v_heads]
        self.g, beta = reference.gates(
            x.A_log[self.v_heads], x.a[:, self.v_heads], x.b[:, self.v_heads], x.dt_bias[self.v_heads]
        )
        y, o, self.state, self.window = [], [], torch.empty_like(states.double()), torch.empty_like(windows)
        for row, part in enumerate(w.parts):
            tokens = mixed[part]
            if op not in ("chunk_gated_delta_rule", "fused_sigmoid_gating_delta_rule_update", "gdn_gating"):
                tokens, self.window[row] = reference.causal_conv1d(tokens, weight, None, windows[row])
            y.append(tokens)
            if "conv" in op or op == "gdn_gating":
                continue
            q, k, v = tokens.to(ACT).unflatten(-1, (len(self.v_heads), 3, heads.dim)).unbind(2)
            q, k = reference.l2norm(q), reference.l2norm(k)
            row_o, self.state[row] = reference.gated_delta_rule(
                q, k, v, self.g[part], beta[part], states[row], heads.dim**-0.5
            )
            o.append(row_o)
        self.y, self.o = torch.cat(y), torch.cat(o) if o else None

    def _channels_of(self, v_head: int) -> Tensor:
        """The channels q, k, v that one value head reads."""
        heads = self.w.heads
        k_head = v_head // (heads.v // heads.k)
        firsts = torch.tensor([k_head, heads.k + k_head, 2 * heads.k + v_head]) * heads.dim
        return (firsts.unsqueeze(1) + torch.arange(heads.dim)).flatten()

    def failures(self, output: Output, limits: dict[str, float]) -> list[str]:
        """One line per result that is further from the definition than its limit."""
        checks: list[tuple[str, Tensor | None, Tensor | None, Any]] = [
            ("y", output.y, self.y, self.channels),
            (f"{self.w.phase} o", output.o, self.o, self.v_heads),
            ("state", output.state, self.state, self.v_heads),
            ("window", output.window, self.window, self.channels),
            ("g", output.g, self.g, self.v_heads),
        ]
        failures = []
        for name, x, wanted, part in checks:
            if x is None:
                continue
            assert wanted is not None
            error, limit = relative_error(x[:, part], wanted.double()), limits[name]
            if not error <= limit:
                failures.append(f"{name}: relative error {error:.2e} exceeds {limit:.0e}")
        return failures
