"""A few milliseconds per operator: every operator on a device against ``sglang_gdn.reference`` on a small batch.

It says whether this installation works on this machine; the contract suite of the project says whether the kernels
are right.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from sglang_gdn import ops, reference
from sglang_gdn.errors import GdnNoKernelError

K_HEADS, V_HEADS, HEAD_DIM, WIDTH = 1, 3, 128, 4
CHANNELS = (2 * K_HEADS + V_HEADS) * HEAD_DIM
HEADS: dict[str, Any] = {"num_k_heads": K_HEADS, "num_v_heads": V_HEADS, "head_k_dim": HEAD_DIM, "head_v_dim": HEAD_DIM}
SLOTS = 4
ROW_SLOTS = (2, -1, 0)
STALE_ROW = 2
PREFILL_LENGTHS, DECODE_LENGTHS, VERIFY_LENGTHS = (70, 3, 5), (1, 1, 1), (3, 3, 3)

# Largest relative L2 error for float32 and for 16-bit inputs. float32: sums of at most a few hundred terms in float32.
# 16 bit: outputs are rounded once to 8 bits, and kernels may multiply 16-bit operands.
CONV_LIMIT = {torch.float32: 1e-6, torch.bfloat16: 5e-3}
GATE_LIMIT = {torch.float32: 1e-6, torch.bfloat16: 1e-6}
PREFILL_LIMIT = {torch.float32: 1e-5, torch.bfloat16: 5e-3}
DECODE_LIMIT = {torch.float32: 1e-6, torch.bfloat16: 3e-3}


class Layer:
    """A GDN layer with a batch of three rows, and what the definition says about it.

    The rows live in slots 2, -1 (padding) and 0. With ``stale`` the last row must not read its slot, which then holds
    NaN.
    """

    def __init__(self, device: str, act: torch.dtype, lengths: tuple[int, ...], stale: bool = False) -> None:
        random = torch.Generator().manual_seed(0)

        def draw(*shape: int, dtype: torch.dtype = torch.float32, factor: float = 1.0) -> Tensor:
            return (torch.randn(shape, generator=random) * factor).to(dtype)

        tokens = sum(lengths)
        self.lengths = lengths
        self.mixed_qkv = draw(tokens, CHANNELS, dtype=act)
        self.a, self.b = draw(tokens, V_HEADS, dtype=act), draw(tokens, V_HEADS, dtype=act)
        self.weights: dict[str, Any] = {
            "conv_weight": draw(CHANNELS, WIDTH, dtype=act, factor=0.5),
            "A_log": draw(V_HEADS),
            "dt_bias": draw(V_HEADS),
        }
        self.conv_pool = draw(SLOTS, CHANNELS, WIDTH - 1, dtype=act)
        self.ssm_pool = draw(SLOTS, V_HEADS, HEAD_DIM, HEAD_DIM, factor=0.1)
        self.cache_indices = torch.tensor(ROW_SLOTS, dtype=torch.int32)
        self.query_start_loc = torch.tensor((0, *lengths)).cumsum(0).to(torch.int32)
        self.has_initial_state = torch.tensor([not (stale and row == STALE_ROW) for row in range(len(lengths))])
        self._apply_definition(act)
        if stale:
            self.conv_pool[ROW_SLOTS[STALE_ROW]] = torch.nan
            self.ssm_pool[ROW_SLOTS[STALE_ROW]] = torch.nan
        self._move(device)

    def _apply_definition(self, act: torch.dtype) -> None:
        """Sets the expected ``y``, ``g``, ``beta``, ``o``, ``states`` (after each token) and pools."""
        tokens = self.mixed_qkv.shape[0]
        self.y = torch.zeros(tokens, CHANNELS, dtype=act)
        self.g, self.beta = reference.gates(self.weights["A_log"], self.a, self.b, self.weights["dt_bias"])
        self.o = torch.zeros(tokens, V_HEADS, HEAD_DIM, dtype=torch.float64)
        self.states = torch.zeros(tokens, V_HEADS, HEAD_DIM, HEAD_DIM, dtype=torch.float64)
        self.conv_pool_after, self.ssm_pool_after = self.conv_pool.clone(), self.ssm_pool.double()
        starts = self.query_start_loc.tolist()
        for row, slot in enumerate(ROW_SLOTS):
            if slot < 0:
                continue
            part = slice(starts[row], starts[row + 1])
            known = float(self.has_initial_state[row])
            y, window = reference.causal_conv1d(
                self.mixed_qkv[part], self.weights["conv_weight"], None, self.conv_pool[slot] * known
            )
            self.y[part] = y
            q, k, v = split_heads(self.y[part])
            q, k = reference.l2norm(q), reference.l2norm(k)
            state = self.ssm_pool[slot] * known
            g, beta = self.g[part], self.beta[part]
            for t in range(part.stop - part.start):
                at = slice(t, t + 1)
                self.o[part.start + t], state = reference.gated_delta_rule(
                    q[at], k[at], v[at], g[at], beta[at], state, HEAD_DIM**-0.5
                )
                self.states[part.start + t] = state
            self.conv_pool_after[slot], self.ssm_pool_after[slot] = window, state

    def _move(self, device: str) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        self.weights = {name: weight.to(device) for name, weight in self.weights.items()}

    @property
    def pools(self) -> dict[str, Any]:
        return {"conv_pool": self.conv_pool, "ssm_pool": self.ssm_pool, "cache_indices": self.cache_indices}

    @property
    def packed_rows(self) -> dict[str, Any]:
        return {"query_start_loc": self.query_start_loc, "has_initial_state": self.has_initial_state}


Comparison = list[tuple[Tensor, Tensor]]


def split_heads(y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[..., D] -> q, k [..., H, K] and v [..., HV, V], as views."""
    q, k, v = y.split([K_HEADS * HEAD_DIM, K_HEADS * HEAD_DIM, V_HEADS * HEAD_DIM], dim=-1)
    return tuple(x.unflatten(-1, (-1, HEAD_DIM)) for x in (q, k, v))


def causal_conv1d(layer: Layer) -> Comparison:
    y = ops.causal_conv1d(
        layer.mixed_qkv,
        layer.weights["conv_weight"],
        conv_pool=layer.conv_pool,
        cache_indices=layer.cache_indices,
        **layer.packed_rows,
    )
    return [(y, layer.y), (layer.conv_pool, layer.conv_pool_after)]


def causal_conv1d_update(layer: Layer) -> Comparison:
    y = ops.causal_conv1d_update(
        layer.mixed_qkv,
        layer.weights["conv_weight"],
        conv_pool=layer.conv_pool,
        cache_indices=layer.cache_indices,
    )
    return [(y, layer.y), (layer.conv_pool, layer.conv_pool_after)]


def gdn_gating(layer: Layer) -> Comparison:
    g, beta = ops.gdn_gating(layer.weights["A_log"], layer.a, layer.b, layer.weights["dt_bias"])
    return [(g[0], layer.g), (beta[0], layer.beta)]


def chunk_gated_delta_rule(layer: Layer) -> Comparison:
    q, k, v = split_heads(layer.y)
    o = ops.chunk_gated_delta_rule(
        q,
        k,
        v,
        layer.g.float(),
        layer.beta.float(),
        cu_seqlens=layer.query_start_loc,
        use_qk_l2norm_in_kernel=True,
        ssm_pool=layer.ssm_pool,
        cache_indices=layer.cache_indices,
        has_initial_state=layer.has_initial_state,
    )[0]
    return [(o, layer.o), (layer.ssm_pool, layer.ssm_pool_after)]


def fused_sigmoid_gating_delta_rule_update(layer: Layer) -> Comparison:
    q, k, v = split_heads(layer.y.unsqueeze(0))
    o = ops.fused_sigmoid_gating_delta_rule_update(
        layer.weights["A_log"],
        layer.a,
        layer.weights["dt_bias"],
        q,
        k,
        v,
        layer.b,
        ssm_pool=layer.ssm_pool,
        cache_indices=layer.cache_indices,
    )
    return [(o[0], layer.o), (layer.ssm_pool, layer.ssm_pool_after)]


def gdn_frontend(layer: Layer) -> Comparison:
    q, k, v, g, beta = ops.gdn_frontend(
        layer.mixed_qkv, layer.a, layer.b, **layer.weights, **HEADS, conv_pool=layer.conv_pool,
        cache_indices=layer.cache_indices, **layer.packed_rows,
    )  # fmt: skip
    wanted = split_heads(layer.y)
    normalised = [reference.l2norm(x).to(layer.y.dtype) for x in wanted[:2]]
    return [
        (q[0], normalised[0]), (k[0], normalised[1]), (v[0], wanted[2]), (g[0], layer.g), (beta[0], layer.beta),
        (layer.conv_pool, layer.conv_pool_after),
    ]  # fmt: skip


def gdn_prefill(layer: Layer) -> Comparison:
    o = ops.gdn_prefill(layer.mixed_qkv, layer.a, layer.b, **layer.weights, **HEADS, **layer.pools, **layer.packed_rows)
    assert isinstance(o, Tensor)
    return [(o[0], layer.o), (layer.conv_pool, layer.conv_pool_after), (layer.ssm_pool, layer.ssm_pool_after)]


def gdn_decode(layer: Layer) -> Comparison:
    o = ops.gdn_decode(layer.mixed_qkv, layer.a, layer.b, **layer.weights, **HEADS, **layer.pools)
    return [(o[0], layer.o), (layer.conv_pool, layer.conv_pool_after), (layer.ssm_pool, layer.ssm_pool_after)]


def gdn_verify(layer: Layer) -> Comparison:
    """Verifies all drafts, accepts them all and commits."""
    rows, drafts = len(layer.lengths), layer.lengths[0]
    intermediate: dict[str, Any] = {
        "intermediate_ssm": layer.ssm_pool.new_zeros((rows, drafts, *layer.ssm_pool.shape[1:])),
        "intermediate_conv_window": layer.conv_pool.new_zeros((rows, drafts, *layer.conv_pool.shape[1:])),
        "intermediate_state_indices": torch.tensor([2, -1, 0], dtype=torch.int32, device=layer.a.device),
    }
    before = layer.ssm_pool.clone()
    mixed_qkv, a, b = (x.view(rows, drafts, -1) for x in (layer.mixed_qkv, layer.a, layer.b))
    o = ops.gdn_verify(mixed_qkv, a, b, **layer.weights, **HEADS, **layer.pools, **intermediate)
    untouched = (layer.ssm_pool.clone(), before)
    last_steps = torch.full((rows,), drafts - 1, dtype=torch.int32, device=layer.a.device)
    ops.gdn_commit(**layer.pools, **intermediate, last_steps=last_steps)
    return [
        untouched,
        (o.flatten(0, 1), layer.o),
        (intermediate["intermediate_ssm"][2], layer.states[:drafts]),
        (layer.conv_pool, layer.conv_pool_after),
        (layer.ssm_pool, layer.ssm_pool_after),
    ]


def gdn_fold(layer: Layer) -> Comparison:
    """Verifies all drafts into a record, accepts them all and commits."""
    rows, drafts = len(layer.lengths), layer.lengths[0]
    device = layer.a.device
    record = ops.DraftRecord.empty(rows, drafts, **HEADS, conv_dtype=layer.conv_pool.dtype, device=device)
    mixed_qkv, a, b = (x.view(rows, drafts, -1) for x in (layer.mixed_qkv, layer.a, layer.b))
    o = ops.gdn_verify(mixed_qkv, a, b, **layer.weights, **HEADS, **layer.pools, record=record)
    last_steps = torch.full((rows,), drafts - 1, dtype=torch.int32, device=device)
    ops.gdn_fold(**layer.pools, record=record, last_steps=last_steps)
    return [
        (o.flatten(0, 1), layer.o),
        (layer.conv_pool, layer.conv_pool_after),
        (layer.ssm_pool, layer.ssm_pool_after),
    ]


@dataclass(frozen=True)
class Case:
    run: Callable[[Layer], Comparison]
    lengths: tuple[int, ...]
    limit: dict[torch.dtype, float]
    stale: bool = False


CASES = {
    "causal_conv1d": Case(causal_conv1d, PREFILL_LENGTHS, CONV_LIMIT, stale=True),
    "causal_conv1d_update": Case(causal_conv1d_update, DECODE_LENGTHS, CONV_LIMIT),
    "gdn_gating": Case(gdn_gating, DECODE_LENGTHS, GATE_LIMIT),
    "chunk_gated_delta_rule": Case(chunk_gated_delta_rule, PREFILL_LENGTHS, PREFILL_LIMIT, stale=True),
    "fused_sigmoid_gating_delta_rule_update": Case(
        fused_sigmoid_gating_delta_rule_update, DECODE_LENGTHS, DECODE_LIMIT
    ),
    "gdn_frontend": Case(gdn_frontend, PREFILL_LENGTHS, CONV_LIMIT, stale=True),
    "gdn_prefill": Case(gdn_prefill, PREFILL_LENGTHS, PREFILL_LIMIT, stale=True),
    "gdn_decode": Case(gdn_decode, DECODE_LENGTHS, DECODE_LIMIT),
    "gdn_verify": Case(gdn_verify, VERIFY_LENGTHS, DECODE_LIMIT),
    "gdn_fold": Case(gdn_fold, VERIFY_LENGTHS, DECODE_LIMIT),
}


@dataclass
class Outcome:
    """``error`` is the largest relative L2 error of the outputs and pools; ``failure`` is None if all is well.

    ``built`` is False where no kernel of the operator is built for the device, which is no failure.
    """

    op: str
    device: str
    act: str
    limit: float
    error: float | None = None
    milliseconds: float | None = None
    failure: str | None = None
    built: bool = True

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def relative_error(comparison: Comparison) -> float:
    """The largest ``||x - wanted|| / ||wanted||``, infinite where ``x`` is not finite."""
    worst = 0.0
    for x, wanted in comparison:
        ratio = ((x.double() - wanted.double()).norm() / wanted.double().norm()).item()
        worst = max(worst, ratio) if ratio == ratio else float("inf")
    return worst


def run(op: str, device: str, act: torch.dtype) -> Outcome:
    """Runs one operator once to check it and once more for the time."""
    case = CASES[op]
    outcome = Outcome(op, device, str(act).removeprefix("torch."), case.limit[act])
    layer = Layer(device, act, case.lengths, case.stale)
    same_layer = copy.deepcopy(layer)
    try:
        outcome.error = relative_error(case.run(same_layer))
        start = time.perf_counter()
        case.run(layer)
        if device == "cuda":
            torch.cuda.synchronize()
        outcome.milliseconds = (time.perf_counter() - start) * 1e3
    except GdnNoKernelError:
        outcome.built = False
    except Exception as error:
        outcome.failure = f"{type(error).__name__}: {error}"
    if outcome.error is not None and not outcome.error <= outcome.limit:
        outcome.failure = f"relative error {outcome.error:.2e} exceeds {outcome.limit:.0e}"
    return outcome


def run_all(device: str, acts: tuple[torch.dtype, ...]) -> list[Outcome]:
    return [run(op, device, act) for op in CASES for act in acts]
