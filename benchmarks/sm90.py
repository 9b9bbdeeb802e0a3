"""Times the SM90 kernels on one Hopper GPU; writes a JSON file for each of the groups in ``main``.

Every time is the median of CUDA-graph replays. A graph holds many launches that each work on other slots, so that
states come from HBM as they do between the layers of a model. Floors are bytes at the rate of an in-place update.

``--peers`` also times others on the same tensors, from wherever Python finds them: for decode, SGLang's convolution
update with its packed decode (two kernels) and FlashInfer's decode (no convolution); for verify, SGLang's default, the
convolution update that stores windows and the recurrent kernel that stores the state after each token, and its commit;
for the front-end, SGLang's convolution, split, l2norm and gating kernels; for the chunk rule, FlashInfer with and
without context parallelism, FlashQLA, flash-linear-attention and SGLang's Triton kernels; for a prefill of a layer,
SGLang's convolution, split, gating and chunk kernels.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from sglang_gdn import ops

D = 128
HEADS = [(16, 32), (2, 8), (16, 64), (8, 24), (16, 16)]
BATCHES = [1, 4, 16, 64, 256]
STATE_BYTES = 4
TOUCHED_BYTES = 400 << 20  # several times the L2 cache
REPLAYS = 15
WARM_UP_MS = 50  # of replays before those that count; after a pause, (16, 32) at batch 64 takes 1 % longer without


@contextmanager
def reporting_failure(name: str) -> Iterator[None]:
    """Says which kernel could not be run, and goes on."""
    try:
        yield
    except Exception as error:
        print(f"{name} not measured: {type(error).__name__}: {error}"[:300], flush=True)


def graph_ms(launch: Callable[[int], object], count: int) -> float:
    """Median time of one of ``launch(0) .. launch(count - 1)``."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(2):
            launch(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            launch(i)
    times: list[float] = []
    while sum(times) < WARM_UP_MS:
        times.append(replay_ms(graph))
    return statistics.median(replay_ms(graph) for _ in range(REPLAYS)) / count


def replay_ms(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def host_us(launch: Callable[[int], object], calls: int = 300) -> float:
    """Median host time of one eager call."""
    for _ in range(20):
        launch(0)
    torch.cuda.synchronize()
    times = []
    for i in range(calls):
        begin = time.perf_counter_ns()
        launch(0)
        times.append((time.perf_counter_ns() - begin) / 1000)
        if i % 50 == 49:
            torch.cuda.synchronize()
    return statistics.median(times)


def update_rate() -> float:
    """Bytes a second of an in-place update of 4 GiB, reads and writes counted: what decode does to its states."""
    states = torch.randn(1 << 30, device="cuda")
    return 2 * 4 * states.numel() / graph_ms(lambda _: states.mul_(1.0001), 3) * 1e3


class Layer:
    """Weights, projections and pools of one layer for ``launches`` launches on slots of their own."""

    def __init__(self, hk: int, hv: int, batch: int, drafts: int = 1) -> None:
        self.hk, self.hv, self.batch, self.drafts = hk, hv, batch, drafts
        self.channels = 2 * hk * D + hv * D
        state = batch * hv * D * D * STATE_BYTES
        self.launches = max(16, min(512, TOUCHED_BYTES // state))
        slots = self.launches * batch
        shape = (batch,) if drafts == 1 else (batch, drafts)

        def bf16(*size: int) -> torch.Tensor:
            return torch.randn(*size, device="cuda").bfloat16()

        self.mixed_qkv, self.a, self.b = bf16(*shape, self.channels), bf16(*shape, hv), bf16(*shape, hv)
        self.ssm = torch.randn(slots, hv, D, D, device="cuda").mul_(0.05)
        self.conv = bf16(slots, self.channels, 3)
        self.indices = torch.randperm(slots, device="cuda").int().view(self.launches, batch)
        dt = torch.exp(torch.empty(hv, device="cuda").uniform_(-6.9, -2.3))
        self.weights = {
            "conv_weight": bf16(self.channels, 4) / 2,
            "A_log": torch.empty(hv, device="cuda").uniform_(0.01, 16).log(),
            "dt_bias": dt + torch.log(-torch.expm1(-dt)),
        }
        self.sizes = {"num_k_heads": hk, "num_v_heads": hv, "head_k_dim": D, "head_v_dim": D}
        self.out = torch.empty(1, batch * drafts, hv, D, dtype=torch.bfloat16, device="cuda")

    def decode_bytes(self) -> int:
        state = 2 * self.batch * self.hv * D * D * STATE_BYTES
        window = 2 * self.batch * self.channels * 3 * 2
        return state + window + self.batch * (self.channels + self.hv * D) * 2

    def arguments(self, i: int) -> dict:
        return {
            "mixed_qkv": self.mixed_qkv, "a": self.a, "b": self.b, **self.weights, **self.sizes,
            "conv_pool": self.conv, "ssm_pool": self.ssm, "cache_indices": self.indices[i],
        }  # fmt: skip

    def decode(self, i: int) -> torch.Tensor:
        return ops.gdn_decode(**self.arguments(i), out=self.out)


def sglang_decode(layer: Layer, i: int) -> None:
    from sglang.kernels.ops.attention.fla.fused_recurrent import fused_recurrent_gated_delta_rule_packed_decode
    from sglang.kernels.ops.mamba.causal_conv1d_triton import causal_conv1d_update

    indices = layer.indices[i]
    mixed = causal_conv1d_update(
        layer.mixed_qkv, layer.conv, layer.weights["conv_weight"], None, "silu", conv_state_indices=indices
    )
    fused_recurrent_gated_delta_rule_packed_decode(
        mixed_qkv=mixed, a=layer.a, b=layer.b, A_log=layer.weights["A_log"], dt_bias=layer.weights["dt_bias"],
        scale=D**-0.5, initial_state=layer.ssm, out=layer.out.view(layer.batch, 1, layer.hv, D),
        ssm_state_indices=indices, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip


def flashinfer_decode(layer: Layer, i: int) -> object:
    from flashinfer.gdn_decode import gated_delta_rule_decode_pretranspose

    keys = layer.hk * D
    q, k, v = layer.mixed_qkv.split([keys, keys, layer.hv * D], dim=1)
    batch = layer.batch
    return gated_delta_rule_decode_pretranspose(
        q=q.reshape(batch, 1, layer.hk, D), k=k.reshape(batch, 1, layer.hk, D), v=v.reshape(batch, 1, layer.hv, D),
        state=layer.ssm[i * batch : (i + 1) * batch], A_log=layer.weights["A_log"], a=layer.a.view(batch, 1, layer.hv),
        dt_bias=layer.weights["dt_bias"], b=layer.b.view(batch, 1, layer.hv), use_qk_l2norm=True,
    )  # fmt: skip


PEERS = {"sglang": sglang_decode, "flashinfer": flashinfer_decode}


def sglang_verify(layer: Verify, i: int) -> torch.Tensor:
    from sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent import (
        fused_sigmoid_gating_delta_rule_update,
    )
    from sglang.kernels.ops.mamba.causal_conv1d_triton import causal_conv1d_update

    indices, keys = layer.indices[i], layer.hk * D
    mixed = causal_conv1d_update(
        layer.mixed_qkv.transpose(1, 2), layer.conv, layer.weights["conv_weight"], None, "silu",
        conv_state_indices=indices, intermediate_conv_window=layer.window, intermediate_state_indices=layer.rows,
        **layer.sglang_tree,
    ).transpose(1, 2).view(1, -1, layer.channels)  # fmt: skip
    q, k, v = mixed.split([keys, keys, layer.hv * D], dim=2)
    return fused_sigmoid_gating_delta_rule_update(
        A_log=layer.weights["A_log"], dt_bias=layer.weights["dt_bias"], q=q.unflatten(2, (layer.hk, D)),
        k=k.unflatten(2, (layer.hk, D)), v=v.unflatten(2, (layer.hv, D)), a=layer.a.flatten(0, 1),
        b=layer.b.flatten(0, 1), initial_state_source=layer.ssm, initial_state_indices=indices,
        cu_seqlens=layer.offsets, use_qk_l2norm_in_kernel=True, softplus_beta=1.0, softplus_threshold=20.0,
        disable_state_update=True, intermediate_states_buffer=layer.state, intermediate_state_indices=layer.rows,
        cache_steps=layer.drafts, retrieve_parent_token=layer.sglang_tree.get("retrieve_parent_token"),
    )  # fmt: skip


def sglang_commit(layer: Verify, i: int) -> None:
    from sglang.kernels.ops.mamba.mamba_state_scatter_triton import (
        fused_conv_window_scatter_with_mask,
        fused_mamba_state_scatter_with_mask,
    )

    steps = layer.last_steps
    fused_mamba_state_scatter_with_mask(layer.ssm[None], layer.state[None], layer.indices[i], steps)
    fused_conv_window_scatter_with_mask(layer.conv[None], layer.window[None], layer.indices[i], steps)


def row(op: str, shape: dict, ours_ms: float, peers: dict[str, float], floor_ms: float, facts: dict) -> dict:
    rates = "".join(f"  {name} {ms * 1e3:.2f} us ({ms / ours_ms:.2f}x)" for name, ms in peers.items())
    print(f"{op} {shape}: {ours_ms * 1e3:.2f} us, {floor_ms / ours_ms:.0%} of the floor{rates}", flush=True)
    return {
        "op": op, "shape": shape, "ours_ms": round(ours_ms, 6),
        "peers": {name: round(ms, 6) for name, ms in peers.items()}, "floor_ms": round(floor_ms, 6),
        "versions": facts, "date": datetime.date.today().isoformat(),
    }  # fmt: skip


def peer_times(peers: dict[str, Callable], layer: Layer, wanted: bool) -> dict[str, float]:
    times = {}
    for name, peer in peers.items() if wanted else ():
        with reporting_failure(name):
            times[name] = graph_ms(partial(peer, layer), layer.launches)
    return times


def decode_rows(rate: float, facts: dict, with_peers: bool) -> Iterator[dict]:
    for hk, hv in HEADS:
        for batch in BATCHES:
            layer = Layer(hk, hv, batch)
            ours = graph_ms(layer.decode, layer.launches)
            peers = peer_times(PEERS, layer, with_peers)
            shape = {"hk": hk, "hv": hv, "d": D, "batch": batch}
            yield row("gdn_decode", shape, ours, peers, layer.decode_bytes() / rate * 1e3, facts)
            torch.cuda.empty_cache()


def extras_rows(rate: float, facts: dict) -> Iterator[dict]:
    """``gdn_decode`` with each of its options; the floor counts the gate, and tracked states once more."""
    for hk, hv in ((16, 32), (8, 24)):
        for batch in BATCHES[::2]:
            layer = Layer(hk, hv, batch)
            z = torch.randn(batch, hv, D, device="cuda").bfloat16()
            qkvz = torch.cat([layer.mixed_qkv, z.flatten(1)], dim=1)
            norm = {"z": z, "norm_weight": torch.ones(D, device="cuda")}
            raw = {"mixed_qkv": None, "a": None, "b": None, "qkvz": qkvz, "ba": torch.cat([layer.b, layer.a], dim=1)}
            half = layer.launches // 2
            none = torch.full_like(layer.indices[0], -1)
            state, gate = batch * hv * D * D * STATE_BYTES, z.nbytes
            options: dict[str, tuple[Callable[[int], dict], int]] = {
                "none": (lambda i: {}, 0),
                "norm": (lambda i, norm=norm: norm, gate),
                "projections": (lambda i, raw=raw: raw | {"projection_layout": "interleaved"}, 0),
                "tracking no row": (lambda i, none=none: {"track_slots": none}, 0),
                "tracking every row": (
                    lambda i, layer=layer, half=half: {"track_slots": layer.indices[half + i]},
                    state,
                ),
            }
            for extras, (arguments, more_bytes) in options.items():
                ours = graph_ms(
                    lambda i, f=arguments, layer=layer: ops.gdn_decode(**layer.arguments(i) | f(i), out=layer.out), half
                )
                shape = {"hk": hk, "hv": hv, "d": D, "batch": batch, "extras": extras}
                floor = (layer.decode_bytes() + more_bytes) / rate * 1e3
                yield row("gdn_decode", shape, ours, {}, floor, facts)
            torch.cuda.empty_cache()


def binary_tree(drafts: int) -> list[int]:
    return [-1, *((t - 1) // 2 for t in range(1, drafts))]


class Verify(Layer):
    """``gdn_verify`` and what commits its tokens, all but the last of them accepted (in a tree: its path)."""

    def __init__(self, hk: int, hv: int, batch: int, drafts: int, tree: bool) -> None:
        super().__init__(hk, hv, batch, drafts)
        self.state = torch.empty(batch, drafts, hv, D, D, device="cuda")
        self.window = torch.empty(batch, drafts, self.channels, 3, dtype=torch.bfloat16, device="cuda")
        self.rows = torch.arange(batch, dtype=torch.int32, device="cuda")
        self.offsets = torch.arange(batch + 1, dtype=torch.int32, device="cuda") * drafts
        self.record = ops.DraftRecord.empty(batch, drafts, **self.sizes, conv_dtype=torch.bfloat16, device="cuda")
        self.last_steps = torch.full_like(self.rows, max(drafts - 2, 0))
        self.parents, self.sglang_tree = None, {}
        if tree:
            self.parents = torch.tensor([binary_tree(drafts)] * batch, device="cuda")
            children = [[t for t in range(drafts) if t > 0 and (t - 1) // 2 == parent] for parent in range(drafts)]
            first = [c[0] if c else -1 for c in children]
            sibling = [t + 1 if t % 2 == 1 and t + 1 < drafts else -1 for t in range(drafts)]
            self.sglang_tree = {
                "retrieve_next_token": torch.tensor([first] * batch, device="cuda"),
                "retrieve_next_sibling": torch.tensor([sibling] * batch, device="cuda"),
                "retrieve_parent_token": self.parents.clone(),
            }

    def state_bytes(self, crossings: int) -> int:
        return crossings * self.batch * self.hv * D * D * STATE_BYTES

    def verify(self, i: int, **kept: object) -> torch.Tensor:
        return ops.gdn_verify(
            self.mixed_qkv, self.a, self.b, **self.weights, **self.sizes, conv_pool=self.conv, ssm_pool=self.ssm,
            cache_indices=self.indices[i], parent_tokens=self.parents,
            out=self.out.view(self.batch, self.drafts, self.hv, D), **kept,
        )  # fmt: skip

    def verify_recorded(self, i: int) -> None:
        self.verify(i, record=self.record)

    def verify_stored(self, i: int) -> None:
        self.verify(
            i, intermediate_ssm=self.state, intermediate_conv_window=self.window, intermediate_state_indices=self.rows
        )

    def fold(self, i: int) -> None:
        ops.gdn_fold(
            conv_pool=self.conv, ssm_pool=self.ssm, cache_indices=self.indices[i], record=self.record,
            last_steps=self.last_steps, parent_tokens=self.parents,
        )  # fmt: skip

    def commit(self, i: int) -> None:
        ops.gdn_commit(
            conv_pool=self.conv, ssm_pool=self.ssm, cache_indices=self.indices[i], intermediate_ssm=self.state,
            intermediate_conv_window=self.window, intermediate_state_indices=self.rows, last_steps=self.last_steps,
        )  # fmt: skip


# (batch, drafts)
VERIFY_SHAPES = [(1, 4), (16, 4), (16, 8), (64, 4)]
MORE_VERIFY_SHAPES = [(4, 4), (16, 2), (16, 16)]


def verify_rows(rate: float, facts: dict, with_peers: bool) -> Iterator[dict]:
    """``gdn_verify`` and its commit, with a record (``stored`` false) and with the state after each token stored."""
    shapes = [(hk, hv, *shape, False) for hk, hv in HEADS[:3] for shape in VERIFY_SHAPES]
    shapes += [(*HEADS[0], *shape, False) for shape in MORE_VERIFY_SHAPES]
    shapes += [(*HEADS[0], 16, drafts, True) for drafts in (4, 8, 16)]
    for hk, hv, batch, drafts, tree in shapes:
        layer = Verify(hk, hv, batch, drafts, tree)
        measured = [
            ("gdn_verify", {"stored": False}, layer.verify_recorded, 1, {"sglang": sglang_verify}),
            ("gdn_fold", {}, layer.fold, 2, {"sglang": sglang_commit}),
        ]
        if not tree:
            measured.append(("gdn_verify", {"stored": True}, layer.verify_stored, 1 + drafts, {}))
        if not tree and drafts == 4:
            measured.append(("gdn_commit", {}, layer.commit, 2, {}))
        for op, form, ours, crossings, peers in measured:
            shape = {"hk": hk, "hv": hv, "d": D, "batch": batch, "drafts": drafts, "tree": tree} | form
            floor_ms = layer.state_bytes(crossings) / rate * 1e3
            peer_ms = peer_times(peers, layer, with_peers)
            yield row(op, shape, graph_ms(ours, layer.launches), peer_ms, floor_ms, facts)
        del layer
        torch.cuda.empty_cache()


class Conv:
    COPIES = 4  # of the input, so that it comes from HBM

    def __init__(self, channels: int, lens: list[int]) -> None:
        tokens = sum(lens)
        self.inputs = torch.randn(self.COPIES, tokens, channels, device="cuda").bfloat16()
        self.pool = torch.randn(len(lens), channels, 3, device="cuda").bfloat16()
        self.weight = torch.randn(channels, 4, device="cuda").bfloat16()
        self.offsets = torch.tensor([0, *lens], device="cuda").cumsum(0).int()
        self.indices = torch.arange(len(lens), device="cuda").int()
        self.out = torch.empty(tokens, channels, dtype=torch.bfloat16, device="cuda")
        self.moved_bytes = 4 * tokens * channels

    def conv(self, i: int) -> torch.Tensor:
        return ops.causal_conv1d(
            self.inputs[i % self.COPIES], self.weight, query_start_loc=self.offsets, conv_pool=self.pool,
            cache_indices=self.indices, out=self.out,
        )  # fmt: skip


def conv_rows(rate: float, facts: dict) -> Iterator[dict]:
    for hk, hv in HEADS[:3]:
        for label, lens in (("1x512", [512]), ("1x8192", [8192]), ("32x256", [256] * 32)):
            problem = Conv(2 * hk * D + hv * D, lens)
            ours = graph_ms(problem.conv, 16)
            shape = {"hk": hk, "hv": hv, "d": D, "lens": lens, "label": label}
            yield row("causal_conv1d", shape, ours, {}, problem.moved_bytes / rate * 1e3, facts)


class Frontend:
    """Everything before the chunk rule, on the columns of a projection that also holds z."""

    COPIES = 4  # of the projection, so that it comes from HBM

    def __init__(self, hk: int, hv: int, lens: list[int], l2norm: bool = True) -> None:
        self.hk, self.hv, self.lens, self.l2norm = hk, hv, lens, l2norm
        self.tokens, self.channels = sum(lens), (2 * hk + hv) * D

        def bf16(*size: int) -> torch.Tensor:
            return torch.randn(*size, device="cuda").bfloat16()

        self.projections = bf16(self.COPIES, self.tokens, self.channels + hv * D)
        self.a, self.b = bf16(self.tokens, hv), bf16(self.tokens, hv)
        self.weights = {
            "conv_weight": bf16(self.channels, 4) / 2, "A_log": torch.rand(hv, device="cuda"),
            "dt_bias": torch.randn(hv, device="cuda"),
        }  # fmt: skip
        self.pool = bf16(len(lens), self.channels, 3)
        self.offsets = torch.tensor([0, *lens], device="cuda").cumsum(0).int()
        self.indices = torch.arange(len(lens), device="cuda").int()
        self.initial = torch.ones(len(lens), dtype=torch.bool, device="cuda")
        self.out = torch.empty(self.tokens, self.channels, dtype=torch.bfloat16, device="cuda")
        self.moved_bytes = self.tokens * (2 * 2 * self.channels + (2 * 2 + 2 * 4) * hv)

    def mixed_qkv(self, i: int) -> torch.Tensor:
        return self.projections[i % self.COPIES, :, : self.channels]

    def frontend(self, i: int) -> object:
        return ops.gdn_frontend(
            self.mixed_qkv(i), self.a, self.b, **self.weights, num_k_heads=self.hk, num_v_heads=self.hv, head_k_dim=D,
            head_v_dim=D, conv_pool=self.pool, query_start_loc=self.offsets, cache_indices=self.indices,
            has_initial_state=self.initial, use_qk_l2norm_in_kernel=self.l2norm, out=self.out,
        )  # fmt: skip

    def copy(self, i: int) -> None:
        """As many bytes of activations, read here and written there: what memory allows at most."""
        packed = self.projections[i % self.COPIES].view(-1)[: self.out.numel()]
        torch.neg(packed, out=self.out.view(-1))


def sglang_projections(case: Frontend, i: int) -> tuple[torch.Tensor, ...]:
    """q, k, v, g and beta; q and k are not normalised."""
    from sglang.kernels.ops.attention.linear.fused_gdn_gating import fused_gdn_gating
    from sglang.kernels.ops.attention.triton_gdn_fused_proj import fused_qkv_split_gdn_prefill
    from sglang.kernels.ops.mamba.causal_conv1d_triton import causal_conv1d_fn

    max_fused_split_channels = 8192  # SGLang copies q, k and v one by one above
    convolved = causal_conv1d_fn(
        case.mixed_qkv(i).transpose(0, 1), case.weights["conv_weight"], None, activation="silu", conv_states=case.pool,
        has_initial_state=case.initial, cache_indices=case.indices, query_start_loc=case.offsets,
        seq_lens_cpu=case.lens,
    ).transpose(0, 1)  # fmt: skip
    if case.channels <= max_fused_split_channels:
        q, k, v = fused_qkv_split_gdn_prefill(convolved, case.hk, case.hk, case.hv, D, D, D)
    else:
        parts = convolved.split([case.hk * D, case.hk * D, case.hv * D], dim=-1)
        q, k, v = (x.unflatten(-1, (-1, D)).unsqueeze(0).contiguous() for x in parts)
    gates = fused_gdn_gating(case.weights["A_log"], case.a, case.b, case.weights["dt_bias"])
    return q, k, v, *gates


def sglang_frontend(case: Frontend, i: int) -> object:
    from sglang.kernels.ops.attention.fla.l2norm import l2norm_fwd

    q, k, v, *gates = sglang_projections(case, i)
    return l2norm_fwd(q), l2norm_fwd(k), v, *gates


def frontend_rows(rate: float, facts: dict, with_peers: bool) -> Iterator[dict]:
    lengths = {"1x8192": [8192], "32x256": [256] * 32, "1x512": [512]}
    cases = [(heads, label, True) for heads in HEADS[:3] for label in lengths]
    cases += [(heads, "1x8192", True) for heads in HEADS[3:]] + [(heads, "1x8192", False) for heads in HEADS[:3]]
    for (hk, hv), label, l2norm in cases:
        case = Frontend(hk, hv, lengths[label], l2norm)
        ours, copied = graph_ms(case.frontend, 16), graph_ms(case.copy, 16)
        peers = {}
        if with_peers and l2norm:
            with reporting_failure("sglang"):
                peers["sglang"] = graph_ms(partial(sglang_frontend, case), 16)
        shape = {"hk": hk, "hv": hv, "d": D, "lens": case.lens, "label": label, "l2norm": l2norm}
        measured = row("gdn_frontend", shape, ours, peers, case.moved_bytes / rate * 1e3, facts)
        yield measured | {"bytes": case.moved_bytes, "copy_ms": round(copied, 6)}
        print(f"  {case.moved_bytes / ours / 1e9:.2f} TB/s; a copy takes {copied * 1e3:.2f} us", flush=True)
        torch.cuda.empty_cache()


# Head pairs of public models under tensor parallelism, and what prompts look like in a batch.
CHUNK_HEADS = [(16, 32), (2, 8), (16, 64), (16, 48), (8, 24), (4, 16)]
RAGGED = [2049, 1011, 513, 256, 128, 65, 32, 16, 1800, 700, 600, 500, 200, 130, 100, 64, 28]
CHUNK_LENGTHS = {
    "1x512": [512], "1x2048": [2048], "1x8192": [8192], "1x32768": [32768], "2x16384": [16384] * 2,
    "4x8192": [8192] * 4, "8x1024": [1024] * 8, "32x256": [256] * 32, "ragged 8192 in 17": RAGGED,
}  # fmt: skip
PEAK = {"peak_tflops": 790, "peak_gb_s": 4300}  # of an H200: dense bfloat16, memory


class ChunkRule:
    """Normalised q and k, gates as Qwen's layers have them, states by slot."""

    def __init__(self, hk: int, hv: int, lens: list[int]) -> None:
        def randn(*size: int) -> torch.Tensor:
            return torch.randn(*size, device="cuda")

        self.tokens = tokens = sum(lens)
        self.rows, self.hk, self.hv = len(lens), hk, hv
        self.q, self.k = (torch.nn.functional.normalize(randn(1, tokens, hk, D), dim=-1).bfloat16() for _ in range(2))
        self.v = randn(1, tokens, hv, D).bfloat16()
        dt = torch.exp(torch.rand(hv, device="cuda") * 4.6 - 6.9)
        softplus = torch.nn.functional.softplus(randn(1, tokens, hv) / 2 + dt.expm1().log())
        self.g = -16 * torch.rand(hv, device="cuda") * softplus
        self.beta = randn(1, tokens, hv).sigmoid()
        self.states = randn(self.rows, hv, D, D) / 20
        self.offsets = torch.tensor([0, *lens], device="cuda").cumsum(0)
        self.indices = torch.arange(self.rows, dtype=torch.int32, device="cuda")
        self.out = torch.empty_like(self.v)

    def floor_ms(self) -> float:
        flops = self.tokens * self.hv * (8 * ops.CHUNK_SIZE * D + 6 * D * D)
        moved = self.tokens * (4 * (self.hk + self.hv) * D + 8 * self.hv) + 8 * self.rows * self.hv * D * D
        return max(flops / PEAK["peak_tflops"] / 1e9, moved / PEAK["peak_gb_s"] / 1e6)

    def ours(self, i: int) -> object:
        return ops.chunk_gated_delta_rule(
            self.q, self.k, self.v, self.g, self.beta, cu_seqlens=self.offsets, ssm_pool=self.states,
            cache_indices=self.indices, out=self.out,
        )  # fmt: skip

    def fla(self, i: int) -> object:
        from fla.ops.gated_delta_rule.chunk import chunk_gated_delta_rule_fwd

        return chunk_gated_delta_rule_fwd(
            q=self.q, k=self.k, v=self.v, g=self.g, beta=self.beta, scale=D**-0.5, initial_state=self.states,
            output_final_state=True, cu_seqlens=self.offsets,
        )  # fmt: skip

    def flashqla(self, i: int) -> object:
        from flash_qla.ops.gated_delta_rule.chunk import chunk_gated_delta_rule_fwd

        return chunk_gated_delta_rule_fwd(
            self.q, self.k, self.v, self.g, self.beta, scale=D**-0.5, initial_state=self.states,
            cu_seqlens=self.offsets, output_final_state=True, output_h=False,
        )  # fmt: skip

    def flashinfer(self, i: int, context_parallel: str | bool = "auto") -> object:
        """Takes exp(g), which is a kernel of its own and counted."""
        from flashinfer.gdn_prefill import chunk_gated_delta_rule

        return chunk_gated_delta_rule(
            self.q[0], self.k[0], self.v[0], self.g[0].exp(), self.beta[0], scale=D**-0.5, initial_state=self.states,
            output_final_state=True, cu_seqlens=self.offsets, use_cp=context_parallel,
        )  # fmt: skip

    def flashinfer_unsplit(self, i: int) -> object:
        return self.flashinfer(i, context_parallel=False)

    def sglang(self, i: int, l2norm: bool = True) -> object:
        from sglang.kernels.ops.attention.fla.chunk import chunk_gated_delta_rule

        return chunk_gated_delta_rule(
            q=self.q, k=self.k, v=self.v, g=self.g, beta=self.beta, initial_state=self.states,
            initial_state_indices=self.indices, cu_seqlens=self.offsets, head_first=False,
            use_qk_l2norm_in_kernel=l2norm,
        )  # fmt: skip


def chunk_rule_rows(facts: dict, with_peers: bool) -> Iterator[dict]:
    for hk, hv in CHUNK_HEADS:
        for label, lens in CHUNK_LENGTHS.items():
            case = ChunkRule(hk, hv, lens)
            ours, peers = graph_ms(case.ours, 5), {}
            for peer in ("flashinfer", "flashinfer_unsplit", "flashqla", "fla", "sglang") if with_peers else ():
                with reporting_failure(peer):
                    peers[peer] = graph_ms(getattr(case, peer), 5)
            shape = {"hk": hk, "hv": hv, "d": D, "lens": lens, "label": label}
            yield row("chunk_gated_delta_rule", shape, ours, peers, case.floor_ms(), facts | PEAK)
            torch.cuda.empty_cache()


class Prefill(Frontend):
    """A layer from the projection to the output of the chunk rule."""

    def __init__(self, hk: int, hv: int, lens: list[int]) -> None:
        super().__init__(hk, hv, lens)
        self.states = torch.randn(len(lens), hv, D, D, device="cuda") / 20
        self.out = torch.empty(1, self.tokens, hv, D, dtype=torch.bfloat16, device="cuda")

    def ours(self, i: int) -> object:
        return ops.gdn_prefill(
            self.mixed_qkv(i), self.a, self.b, **self.weights, num_k_heads=self.hk, num_v_heads=self.hv, head_k_dim=D,
            head_v_dim=D, conv_pool=self.pool, ssm_pool=self.states, query_start_loc=self.offsets,
            cache_indices=self.indices, has_initial_state=self.initial, out=self.out,
        )  # fmt: skip

    def sglang(self, i: int) -> object:
        from sglang.kernels.ops.attention.fla.chunk import chunk_gated_delta_rule

        q, k, v, g, beta = sglang_projections(self, i)
        return chunk_gated_delta_rule(
            q=q, k=k, v=v, g=g, beta=beta, initial_state=self.states, initial_state_indices=self.indices,
            cu_seqlens=self.offsets, head_first=False, use_qk_l2norm_in_kernel=True,
        )  # fmt: skip


def prefill_rows(rate: float, facts: dict, with_peers: bool) -> Iterator[dict]:
    for hk, hv in HEADS[:3]:
        for label in ("1x512", "1x2048", "1x8192", "8x1024"):
            case = Prefill(hk, hv, CHUNK_LENGTHS[label])
            ours, peers = graph_ms(case.ours, 5), {}
            if with_peers:
                with reporting_failure("sglang"):
                    peers["sglang"] = graph_ms(case.sglang, 5)
            shape = {"hk": hk, "hv": hv, "d": D, "lens": case.lens, "label": label}
            floor_ms = case.moved_bytes / rate * 1e3 + ChunkRule(hk, hv, case.lens).floor_ms()
            yield row("gdn_prefill", shape, ours, peers, floor_ms, facts | PEAK)
            torch.cuda.empty_cache()


def host_rows(facts: dict) -> Iterator[dict]:
    """Of the call alone, without what the caller does to name its arguments."""
    for hk, hv in HEADS[:2]:
        layer = Layer(hk, hv, 4)
        arguments = layer.arguments(0)
        with torch.no_grad():
            for out, options in (("given", {"out": layer.out}), ("allocated", {})):
                us = host_us(lambda _, call=arguments | options: ops.gdn_decode(**call))
                print(f"gdn_decode ({hk}, {hv}), out {out}: {us:.1f} us of host time a call", flush=True)
                shape = {"hk": hk, "hv": hv, "d": D, "batch": 4, "out": out}
                yield {
                    "op": "gdn_decode", "shape": shape, "host_us": round(us, 2), "versions": facts,
                    "date": datetime.date.today().isoformat(),
                }  # fmt: skip


def versions(rate: float) -> dict:
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[0]
    return {
        "gpu": torch.cuda.get_device_name(), "driver": driver, "cuda": torch.version.cuda, "torch": torch.__version__,
        "update_gb_s": round(rate / 1e9),
    }  # fmt: skip


GROUPS: dict[str, Callable[[float, dict, bool], Iterator[dict]]] = {
    "decode": decode_rows,
    "decode_extras": lambda rate, facts, _: extras_rows(rate, facts),
    "verify": verify_rows,
    "conv1d": lambda rate, facts, _: conv_rows(rate, facts),
    "frontend": frontend_rows,
    "chunk_rule": lambda _, facts, with_peers: chunk_rule_rows(facts, with_peers),
    "prefill": prefill_rows,
    "host": lambda _, facts, __: host_rows(facts),
}


def write_as_measured(path: Path, rows: Iterable[dict]) -> None:
    """Each row is in the file as soon as there is one, so that a run that is cut off keeps what it measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    measured = []
    for one in rows:
        measured.append(one)
        path.write_text(json.dumps(measured, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/h200"))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", choices=GROUPS)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rate = update_rate()
    facts = versions(rate)
    print(facts, flush=True)
    for name in [arguments.only] if arguments.only else GROUPS:
        write_as_measured(arguments.output / f"{name}.json", GROUPS[name](rate, facts, arguments.peers))


if __name__ == "__main__":
    main()
