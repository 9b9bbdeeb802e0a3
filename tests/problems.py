"""Inputs of the operators, made from a seed; each problem can run the operator, run the oracle and compare the two.

A run never consumes its problem: pools are copied into guarded allocations and ``out`` starts as NaN, so problems can
be run again with one thing changed, and what must have been written is known to have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import cases
import oracle
from cases import F32, SLOTS, Heads
from compare import GuardedPool, assert_bit_equal, assert_close, assert_zero
from sglang_gdn import ops
from tolerances import GATE, draft_output_limit, fused_state_limit, limit


def randn(gen: torch.Generator, *shape: int, dtype: torch.dtype = F32) -> Tensor:
    return torch.randn(shape, generator=gen).to(dtype)


def uniform(gen: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=gen)


def offsets(lens: Sequence[int], dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor([0, *lens]).cumsum(0).to(dtype)


def log_gates(gen: torch.Generator, kind: str, tokens: int, heads: Heads) -> tuple[Tensor, Tensor]:
    """g and beta [T, HV] float32."""
    shape = (tokens, heads.HV)
    g = -uniform(gen, 0.01, 16, heads.HV) * uniform(gen, 1e-3, 0.1, *shape)
    beta = torch.sigmoid(randn(gen, *shape))
    match kind:
        case "none":
            g.zero_()
        case "half-none":
            g[torch.rand(tokens, generator=gen) < 0.5] = 0
        case "forget":
            g.fill_(1e-12).log_()
        case "beta-0":
            beta.zero_()
        case "beta-1":
            beta.fill_(1)
        case _:
            assert kind == "model", kind
    return g, beta


def default_ids(rows: int) -> list[int]:
    """Unique slots in no order; SLOTS and the step have no common factor."""
    return [(4 * n + 2) % SLOTS for n in range(rows)] if rows <= SLOTS else list(range(rows))


def live(cache_indices: Tensor) -> list[int]:
    return [slot for slot in cache_indices.tolist() if slot >= 0]


def token_rows(query_start_loc: Tensor, cache_indices: Tensor) -> Tensor:
    """Indices of the tokens that belong to a row with a slot."""
    rows = zip(oracle.row_bounds(query_start_loc), cache_indices.tolist(), strict=True)
    return torch.tensor([t for (begin, end), slot in rows if slot >= 0 for t in range(begin, end)], dtype=torch.int64)


def assert_rows(actual: Tensor, expected: Tensor, rows: Tensor, bound: float, what: str) -> None:
    """The given rows are close, all others are exactly zero."""
    assert_close(actual.cpu()[rows], expected[rows], bound, what)
    others = torch.ones(len(actual), dtype=torch.bool)
    others[rows] = False
    assert_zero(actual.cpu()[others], f"{what} of padding")


def assert_slots(pool: GuardedPool, expected: Tensor, slots: list[int], bound: float, what: str) -> None:
    assert_close(pool.tensor[slots], expected[slots], bound, what)
    pool.assert_only_wrote(slots, what)


def assert_gates(actual: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], rows: slice = slice(None)) -> None:
    """g relative and beta absolute, for the rows that are tokens."""
    g, beta, expected_g, expected_beta = (x[rows] for x in (*actual, *expected))
    assert g.isfinite().all() and beta.isfinite().all()
    assert ((g - expected_g).abs() <= GATE * expected_g.abs() + 1e-37).all()
    assert ((beta - expected_beta).abs() <= GATE).all()


def moved(values: dict[str, object], device: str) -> dict[str, object]:
    return {name: x.to(device) if isinstance(x, Tensor) else x for name, x in values.items()}


def as_windows(values: Tensor) -> Tensor:
    """[.., D, W-1], in memory as the device wants windows."""
    return values.mT.contiguous().mT if cases.WINDOWS_BY_TOKEN else values


def window_pool(values: Tensor, device: str, extra_pitch: int = 0) -> GuardedPool:
    """[slots, D, W-1], in memory as the device wants windows."""
    return GuardedPool(values, device, extra_pitch, transposed=cases.WINDOWS_BY_TOKEN)


@dataclass
class Run:
    o: Tensor
    ssm: GuardedPool | None = None
    conv: GuardedPool | None = None
    h: Tensor | None = None
    intermediate_ssm: Tensor | None = None
    intermediate_conv: Tensor | None = None
    record: ops.DraftRecord | None = None


@dataclass
class DeltaRule:
    """``chunk_gated_delta_rule`` on packed rows and a pool."""

    device: str
    ssm: Tensor
    args: dict[str, object]  # everything but the pool, on the device
    activation: torch.dtype

    def run(self, extra_pitch: int = 0, **changes) -> Run:
        args = self.args | changes
        pool = GuardedPool(args.pop("ssm_pool", self.ssm), self.device, extra_pitch)
        v = args["v"]
        out = args.pop("out", torch.full(v.shape, torch.nan, dtype=v.dtype, device=self.device))
        o, final_state, *h = ops.chunk_gated_delta_rule(**args, ssm_pool=pool.tensor, out=out)
        assert o is out and final_state is None
        return Run(o.reshape(-1, *o.shape[-2:]), ssm=pool, h=h[0][0] if h else None)

    def expected(self, **changes) -> oracle.Prefill:
        args = self.args | changes
        return oracle.chunk_gated_delta_rule(
            *(args[name].flatten(0, -x) for name, x in (("q", 3), ("k", 3), ("v", 3), ("g", 2), ("beta", 2))),
            ssm_pool=args.get("ssm_pool", self.ssm), query_start_loc=args["cu_seqlens"],
            cache_indices=args["cache_indices"], has_initial_state=args["has_initial_state"], scale=args["scale"],
            norm=args["use_qk_l2norm_in_kernel"],
        )  # fmt: skip

    def check(self, run: Run, expected: oracle.Prefill, state_bound: float | None = None) -> None:
        rows = token_rows(self.args["cu_seqlens"], self.args["cache_indices"])
        assert_rows(run.o, expected.o, rows, limit(self.device, "prefill_o", self.activation), "o")
        bound = state_bound or limit(self.device, "prefill_state", self.ssm.dtype)
        assert_slots(run.ssm, expected.pool, live(self.args["cache_indices"]), bound, "ssm_pool")


def delta_rule(
    device: str, heads: Heads, lens: Sequence[int], *, ids: Sequence[int] | None = None, initial=None,
    act: torch.dtype | None = None, state: torch.dtype = F32, gates: str = "model", norm: bool = True, seed: int = 0,
    index_dtype: torch.dtype = torch.int32, pad_tokens: int = 0, slots: int | None = None, state_scale: float = 0.1,
    scale: float | None = None,
) -> DeltaRule:  # fmt: skip
    """Tokens past the last row (``pad_tokens``) are NaN: they must not be read into anything."""
    gen = torch.Generator().manual_seed(seed)
    act = act or cases.ACTIVATION
    tokens = sum(lens)
    q, k = (randn(gen, tokens, heads.H, heads.K) for _ in range(2))
    if not norm:
        q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    v = randn(gen, tokens, heads.HV, heads.V)
    g, beta = log_gates(gen, gates, tokens, heads)
    ids = default_ids(len(lens)) if ids is None else ids
    slots = max([SLOTS, *(i + 1 for i in ids)]) if slots is None else slots
    padded = [torch.cat([x, x.new_full((pad_tokens, *x.shape[1:]), torch.nan)]) for x in (q, k, v, g, beta)]
    args = {
        "q": padded[0].to(act)[None], "k": padded[1].to(act)[None], "v": padded[2].to(act)[None],
        "g": padded[3][None], "beta": padded[4][None], "scale": scale,
        "cu_seqlens": offsets(lens, index_dtype), "cache_indices": torch.tensor(ids, dtype=index_dtype),
        "has_initial_state": None if initial is None else torch.tensor(initial, dtype=torch.bool),
        "use_qk_l2norm_in_kernel": norm,
    }  # fmt: skip
    ssm = state_scale * randn(gen, slots, heads.HV, heads.V, heads.K)
    return DeltaRule(device, ssm.to(state).to(device), moved(args, device), act)


@dataclass
class Layer:
    """The weights and sizes of one GDN layer."""

    H: int
    HV: int
    K: int
    V: int
    conv_weight: Tensor
    conv_bias: Tensor | None
    A_log: Tensor
    dt_bias: Tensor
    activation: str | None = "silu"

    def kwargs(self) -> dict[str, object]:
        return {
            "conv_weight": self.conv_weight, "conv_bias": self.conv_bias, "A_log": self.A_log, "dt_bias": self.dt_bias,
            "num_k_heads": self.H, "num_v_heads": self.HV, "head_k_dim": self.K, "head_v_dim": self.V,
            "activation": self.activation,
        }  # fmt: skip


def make_layer(
    gen: torch.Generator, heads: Heads, device: str, act: torch.dtype, width: int, bias: bool, activation: str | None
) -> Layer:
    dt = torch.exp(uniform(gen, -6.9, -2.3, heads.HV))  # 1e-3 .. 0.1
    return Layer(
        heads.H, heads.HV, heads.K, heads.V,
        conv_weight=(randn(gen, heads.conv_dim, width) / width**0.5).to(act).to(device),
        conv_bias=(0.1 * randn(gen, heads.conv_dim)).to(act).to(device) if bias else None,
        A_log=uniform(gen, 0.01, 16, heads.HV).log().to(device),
        dt_bias=(dt + torch.log(-torch.expm1(-dt))).to(device),
        activation=activation,
    )  # fmt: skip


@dataclass
class Frontend:
    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor
    conv: GuardedPool

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in ("q", "k", "v", "g", "beta")}


@dataclass
class FusedLayer:
    """One layer, its two pools and the tokens of one call: the fused operators and ``gdn_frontend``."""

    device: str
    heads: Heads
    layer: Layer
    conv: Tensor
    ssm: Tensor
    tokens: dict[str, Tensor]  # mixed_qkv, a, b
    rows: dict[str, Tensor | None] = field(default_factory=dict)

    @property
    def activation(self) -> torch.dtype:
        return self.tokens["mixed_qkv"].dtype

    def pools(self, extra_pitch: int = 0) -> tuple[GuardedPool, GuardedPool]:
        return window_pool(self.conv, self.device, extra_pitch), GuardedPool(self.ssm, self.device, extra_pitch)

    def nan_out(self, *shape: int) -> Tensor:
        return torch.full((*shape, self.heads.HV, self.heads.V), torch.nan, dtype=self.activation, device=self.device)

    def prefill(self, extra_pitch: int = 0, **changes) -> Run:
        args = self.tokens | self.rows | changes
        conv, ssm = self.pools(extra_pitch)
        out = self.nan_out(1, args["mixed_qkv"].shape[0])
        result = ops.gdn_prefill(**args, **self.layer.kwargs(), conv_pool=conv.tensor, ssm_pool=ssm.tensor, out=out)
        o, h = result if isinstance(result, tuple) else (result, None)
        assert o is out
        return Run(o[0], ssm=ssm, conv=conv, h=None if h is None else h[0])

    def expected_prefill(self, **changes) -> tuple[oracle.Prefill, Tensor]:
        args = self.tokens | self.rows | changes
        return oracle.gdn_prefill(self.layer, conv_pool=self.conv, ssm_pool=self.ssm, **args)

    def check_prefill(self, run: Run, expected: tuple[oracle.Prefill, Tensor]) -> None:
        ids = self.rows["cache_indices"]
        rows = token_rows(self.rows["query_start_loc"], ids)
        assert_rows(run.o, expected[0].o, rows, limit(self.device, "prefill_o", self.activation), "o")
        bound = fused_state_limit(self.device, "prefill_state", self.ssm.dtype, self.activation)
        assert_slots(run.ssm, expected[0].pool, live(ids), bound, "ssm_pool")
        assert_slots(run.conv, expected[1].to(self.conv.dtype), live(ids), 0, "conv_pool")

    def frontend(self, extra_pitch: int = 0, norm: bool = True, **changes) -> Frontend:
        args = self.tokens | self.rows | changes
        conv = window_pool(self.conv, self.device, extra_pitch)
        out = torch.full(args["mixed_qkv"].shape, torch.nan, dtype=self.activation, device=self.device)
        q, k, v, g, beta = ops.gdn_frontend(
            **args, **self.layer.kwargs(), conv_pool=conv.tensor, use_qk_l2norm_in_kernel=norm, out=out
        )
        assert all(x.untyped_storage().data_ptr() == out.untyped_storage().data_ptr() for x in (q, k, v))
        return Frontend(q[0], k[0], v[0], g[0], beta[0], conv)

    def check_frontend(self, run: Frontend, norm: bool = True, **changes) -> None:
        args = self.tokens | self.rows | changes
        (q, k, v, g, beta), after = oracle.gdn_frontend(self.layer, conv_pool=self.conv, norm=norm, **args)
        ids = args["cache_indices"]
        rows = token_rows(args["query_start_loc"], ids)
        bound = limit(self.device, "conv", self.activation)
        for name, actual, expected in (("q", run.q, q), ("k", run.k, k), ("v", run.v, v)):
            assert actual.dtype == self.activation
            assert_rows(actual, expected, rows, bound, name)
        assert run.g.dtype == run.beta.dtype == F32
        assert_gates((run.g.cpu(), run.beta.cpu()), (g, beta), slice(int(args["query_start_loc"][-1])))
        tracked = args.get("track_slots")
        slots = live(ids) + ([] if tracked is None else live(tracked))
        assert_slots(run.conv, after.to(self.conv.dtype), slots, 0, "conv_pool")

    def decode(self, extra_pitch: int = 0, **changes) -> Run:
        args = self.tokens | self.rows | changes
        conv, ssm = self.pools(extra_pitch)
        out = self.nan_out(1, args["cache_indices"].shape[0])
        o = ops.gdn_decode(**args, **self.layer.kwargs(), conv_pool=conv.tensor, ssm_pool=ssm.tensor, out=out)
        assert o is out
        return Run(o[0], ssm=ssm, conv=conv)

    def expected_decode(self) -> tuple[Tensor, ...]:
        tokens = {name: x[:, None] for name, x in self.tokens.items()}
        o, *rest = oracle.gdn_update(self.layer, conv_pool=self.conv, ssm_pool=self.ssm, **tokens, **self.rows)
        return o[:, 0], *rest

    def check_decode(self, run: Run, expected: tuple[Tensor, ...]) -> None:
        ids = self.rows["cache_indices"]
        rows = (ids.cpu() >= 0).nonzero()[:, 0]
        assert_rows(run.o, expected[0], rows, limit(self.device, "decode_o", self.activation), "o")
        bound = fused_state_limit(self.device, "decode_state", self.ssm.dtype, self.activation)
        assert_slots(run.ssm, expected[2], live(ids), bound, "ssm_pool")
        assert_slots(run.conv, expected[1].to(self.conv.dtype), live(ids), 0, "conv_pool")

    def verify(self, spec_slots: int, spec_ids: Sequence[int], parents=None, overlapping: bool = False) -> Run:
        n, drafts = self.tokens["mixed_qkv"].shape[:2]
        conv, ssm = self.pools()
        intermediate_ssm = torch.full(
            (spec_slots, drafts, *self.ssm.shape[1:]), torch.nan, dtype=self.ssm.dtype, device=self.device
        )
        windows = window_buffer(spec_slots, drafts, self.conv, overlapping)
        out = self.nan_out(n, drafts)
        o = ops.gdn_verify(
            **self.tokens, **self.rows, **self.layer.kwargs(), conv_pool=conv.tensor, ssm_pool=ssm.tensor,
            intermediate_ssm=intermediate_ssm, intermediate_conv_window=windows,
            intermediate_state_indices=torch.tensor(spec_ids, dtype=torch.int32, device=self.device),
            parent_tokens=parents, out=out,
        )  # fmt: skip
        assert o is out
        conv.assert_untouched("conv_pool")
        ssm.assert_untouched("ssm_pool")
        return Run(o, ssm=ssm, conv=conv, intermediate_ssm=intermediate_ssm, intermediate_conv=windows)

    def nan_record(self, *shape: int) -> ops.DraftRecord:
        layer = self.layer
        record = ops.DraftRecord.empty(
            *shape, num_k_heads=layer.H, num_v_heads=layer.HV, head_k_dim=layer.K, head_v_dim=layer.V,
            conv_dtype=self.conv.dtype, device=self.device,
        )  # fmt: skip
        for part in record:
            part.fill_(torch.nan)
        return record

    def draft(self, parents=None, spare_rows: int = 1, **changes) -> Run:
        """``gdn_verify`` with a record."""
        args = self.tokens | self.rows | changes
        n, drafts = args["mixed_qkv"].shape[:2]
        conv, ssm = self.pools()
        record, out = self.nan_record(n + spare_rows, drafts), self.nan_out(n, drafts)
        o = ops.gdn_verify(
            **args, **self.layer.kwargs(), conv_pool=conv.tensor, ssm_pool=ssm.tensor, record=record,
            parent_tokens=parents, out=out,
        )  # fmt: skip
        assert o is out
        conv.assert_untouched("conv_pool")
        ssm.assert_untouched("ssm_pool")
        return Run(o, ssm=ssm, conv=conv, record=record)

    def expected_draft(self, parents=None) -> tuple[Tensor, ...]:
        """o, and the window and state after each token."""
        o, _, _, windows, states = oracle.gdn_update(
            self.layer, conv_pool=self.conv, ssm_pool=self.ssm, parent_tokens=parents, commit=False, rounded=False,
            **self.tokens, **self.rows,
        )  # fmt: skip
        return o, windows, states


def gate_of(problem: FusedLayer, seed: int = 1) -> Tensor:
    """z ``[N, HV, V]`` for the norm of a decode step; NaN where a row has no slot."""
    heads, ids = problem.heads, problem.rows["cache_indices"]
    gen = torch.Generator().manual_seed(seed)
    z = randn(gen, len(ids), heads.HV, heads.V, dtype=problem.activation).to(problem.device)
    z[ids < 0] = torch.nan
    return inside_nan(z)


def norm_of(
    problem: FusedLayer, dtype: torch.dtype = F32, activation: str = "silu", eps: float = 1e-6
) -> dict[str, object]:
    weight = 1 + 0.3 * randn(torch.Generator().manual_seed(2), problem.heads.V)
    return {"norm_weight": weight.to(dtype).to(problem.device), "norm_activation": activation, "norm_eps": eps}


def check_normalised(problem: FusedLayer, run: Run, z: Tensor, norm: dict) -> None:
    expected = problem.expected_decode()
    o = oracle.gated_norm(expected[0], z, norm["norm_weight"], norm["norm_eps"], norm["norm_activation"])
    rows = (problem.rows["cache_indices"].cpu() >= 0).nonzero()[:, 0]
    assert_rows(run.o, o, rows, limit(problem.device, "decode_o", problem.activation), "normalised o")


def check_tracked(run: Run, plain: Run, ids: Sequence[int], track: Sequence[int]) -> None:
    """Tracked slots hold the new state of their rows, everything else what it would hold without tracking."""
    for name, pool, before in (("ssm_pool", run.ssm, plain.ssm), ("conv_pool", run.conv, plain.conv)):
        pairs = [(slot, to) for slot, to in zip(ids, track, strict=True) if slot >= 0 and to >= 0]
        for slot, to in pairs:
            assert_bit_equal(pool.tensor[to], before.tensor[slot], f"{name}, tracked slot {to}")
            pool.tensor[to] = before.tensor[to]
        assert_bit_equal(pool.storage, before.storage, name)


def projections(problem: FusedLayer, z: Tensor, layout: str) -> dict[str, object]:
    """The tokens of a decode step as the two projections of a layer return them, inside wider rows of NaN."""
    heads, tokens = problem.heads, problem.tokens
    key_dim = heads.H * heads.K
    q, k, v = tokens["mixed_qkv"].split([key_dim, key_dim, heads.HV * heads.V], dim=1)
    if layout == "contiguous":
        qkvz, ba = [q, k, v, z.flatten(1)], [tokens["b"], tokens["a"]]
    else:
        qkvz, ba = [], []
        for h in range(heads.H):
            values = slice(h * heads.ratio, (h + 1) * heads.ratio)
            qkvz += [x[:, h * heads.K : (h + 1) * heads.K] for x in (q, k)]
            qkvz += [x.unflatten(1, (heads.HV, heads.V))[:, values].flatten(1) for x in (v, z.flatten(1))]
            ba += [tokens["b"][:, values], tokens["a"][:, values]]
    raw = {"qkvz": inside_nan(torch.cat(qkvz, dim=1)), "ba": inside_nan(torch.cat(ba, dim=1))}
    return raw | {"projection_layout": layout, "mixed_qkv": None, "a": None, "b": None}


def inside_nan(x: Tensor) -> Tensor:
    """The same values with NaN before, between and after the rows."""
    storage = torch.full((x.shape[0] + 2, *x.shape[1:-1], x.shape[-1] + 16), torch.nan, dtype=x.dtype, device=x.device)
    view = storage[1:-1, ..., 8:-8]
    view.copy_(x)
    return view


def window_buffer(spec_slots: int, drafts: int, conv_pool: Tensor, overlapping: bool) -> Tensor:
    """[spec_slots, T_d, D, W-1] of NaN; overlapping: window t + 1 shares all but one column with window t."""
    _, channels, size = conv_pool.shape
    if not overlapping:
        shape = (spec_slots, drafts, *((size, channels) if cases.WINDOWS_BY_TOKEN else (channels, size)))
        windows = torch.full(shape, torch.nan, dtype=conv_pool.dtype, device=conv_pool.device)
        return windows.mT if cases.WINDOWS_BY_TOKEN else windows
    columns = size + drafts - 1
    if cases.WINDOWS_BY_TOKEN:
        storage = torch.full((spec_slots, columns, channels), torch.nan, dtype=conv_pool.dtype, device=conv_pool.device)
        return storage.as_strided((spec_slots, drafts, channels, size), (channels * columns, channels, 1, channels))
    storage = torch.full((spec_slots, channels, columns), torch.nan, dtype=conv_pool.dtype, device=conv_pool.device)
    return storage.as_strided((spec_slots, drafts, channels, size), (channels * columns, 1, columns, 1))


def fused_layer(
    device: str, heads: Heads, *, lens: Sequence[int] | None = None, batch: int | None = None,
    drafts: int | None = None, ids: Sequence[int] | None = None, initial=None, act: torch.dtype | None = None,
    state: torch.dtype = F32, conv: torch.dtype = F32, width: int = 4, bias: bool = True,
    activation: str | None = "silu", seed: int = 0, index_dtype: torch.dtype = torch.int32, pad_tokens: int = 0,
    state_scale: float = 0.1,
) -> FusedLayer:  # fmt: skip
    """Prefill with ``lens``, decode with ``batch``, verify with ``batch`` and ``drafts``."""
    gen = torch.Generator().manual_seed(seed)
    act = act or cases.ACTIVATION
    layer = make_layer(gen, heads, device, act, width, bias, activation)
    rows = len(lens) if lens is not None else batch
    ids = default_ids(rows) if ids is None else ids
    shape = (sum(lens),) if lens is not None else (batch,) if drafts is None else (batch, drafts)
    tokens = {
        name: randn(gen, *shape, size, dtype=act)
        for name, size in (("mixed_qkv", heads.conv_dim), ("a", heads.HV), ("b", heads.HV))
    }
    if pad_tokens:
        tokens = {name: torch.cat([x, x.new_full((pad_tokens, x.shape[1]), torch.nan)]) for name, x in tokens.items()}
    args: dict[str, object] = {"cache_indices": torch.tensor(ids, dtype=index_dtype)}
    if lens is not None:
        args["query_start_loc"] = offsets(lens, index_dtype)
        args["has_initial_state"] = None if initial is None else torch.tensor(initial, dtype=torch.bool)
    slots = max([SLOTS, *(i + 1 for i in ids)])
    return FusedLayer(
        device, heads, layer,
        conv=randn(gen, slots, heads.conv_dim, width - 1, dtype=conv).to(device),
        ssm=(state_scale * randn(gen, slots, heads.HV, heads.V, heads.K)).to(state).to(device),
        tokens=moved(tokens, device), rows=moved(args, device),
    )  # fmt: skip


@dataclass
class Update:
    """``fused_sigmoid_gating_delta_rule_update`` on [N, T_d] tokens."""

    device: str
    heads: Heads
    ssm: Tensor
    args: dict[str, object]
    activation: torch.dtype

    def run(self, extra_pitch: int = 0, **changes) -> Run:
        args = self.args | changes
        pool = GuardedPool(args.pop("ssm_pool", self.ssm), self.device, extra_pitch)
        v = args["v"]
        out = torch.full(v.shape, torch.nan, dtype=v.dtype, device=self.device)
        o = ops.fused_sigmoid_gating_delta_rule_update(**args, ssm_pool=pool.tensor, out=out)
        assert o is out
        return Run(o, ssm=pool)

    def expected(self, **changes) -> tuple[Tensor, Tensor, Tensor]:
        args = self.args | changes
        commit = not args.pop("disable_state_update", False)
        norm = args.pop("use_qk_l2norm_in_kernel", True)
        pool = args.pop("ssm_pool", self.ssm)
        return oracle.delta_rule_update(**args, ssm_pool=pool, norm=norm, commit=commit)

    def check(self, run: Run, expected: tuple[Tensor, Tensor, Tensor]) -> None:
        ids = self.args["cache_indices"]
        rows = (ids.cpu() >= 0).nonzero()[:, 0]
        bound = limit(self.device, "decode_o", self.activation)
        if self.args["q"].shape[1] > 1:
            bound = draft_output_limit(self.device, self.activation, self.ssm.dtype)
        assert_rows(run.o, expected[0], rows, bound, "o")
        bound = limit(self.device, "decode_state", self.ssm.dtype)
        assert_slots(run.ssm, expected[1], live(ids), bound, "ssm_pool")


def update(
    device: str, heads: Heads, batch: int, drafts: int = 1, *, ids: Sequence[int] | None = None,
    act: torch.dtype | None = None, state: torch.dtype = F32, seed: int = 0, index_dtype: torch.dtype = torch.int32,
    state_scale: float = 0.1,
) -> Update:  # fmt: skip
    gen = torch.Generator().manual_seed(seed)
    act = act or cases.ACTIVATION
    ids = default_ids(batch) if ids is None else ids
    layer = make_layer(gen, heads, device, act, 4, False, None)
    args = {
        "A_log": layer.A_log, "dt_bias": layer.dt_bias,
        "a": randn(gen, batch, drafts, heads.HV, dtype=act), "b": randn(gen, batch, drafts, heads.HV, dtype=act),
        "q": randn(gen, batch, drafts, heads.H, heads.K, dtype=act),
        "k": randn(gen, batch, drafts, heads.H, heads.K, dtype=act),
        "v": randn(gen, batch, drafts, heads.HV, heads.V, dtype=act),
        "cache_indices": torch.tensor(ids, dtype=index_dtype),
    }  # fmt: skip
    slots = max([SLOTS, *(i + 1 for i in ids)])
    ssm = (state_scale * randn(gen, slots, heads.HV, heads.V, heads.K)).to(state)
    return Update(device, heads, ssm.to(device), moved(args, device), act)
