"""What is measured: our operators, and the same work by other projects' functions.

``OURS`` and ``PEERS`` map operator -> maker. A maker receives a workload, prepares what is not to be timed (layouts,
repeated heads, ready gates: always in the peer's favour) and returns the function to time. That function receives the
number of the step, so that states rotate, and returns the outputs by which it is judged.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sglang_gdn import ops
from sglang_gdn.bench.workloads import Heads, Inputs, Workload

TRANSFORMERS_MODEL = "transformers.models.qwen3_5.modeling_qwen3_5"
FLA_NAIVE = "fla.ops.gated_delta_rule.naive"


@dataclass
class Output:
    """``y [T, D]``, ``o [T, HV, V]`` and the states ``[N, HV, V, K]`` and windows ``[N, D, W-1]`` after the batch."""

    y: Tensor | None = None
    o: Tensor | None = None
    state: Tensor | None = None
    window: Tensor | None = None
    g: Tensor | None = None


Run = Callable[[int], Output]
Maker = Callable[[Workload], Run]


def layer_arguments(heads: Heads, x: Inputs) -> dict[str, Any]:
    return {
        "conv_weight": x.conv_weight,
        "A_log": x.A_log,
        "dt_bias": x.dt_bias,
        "num_k_heads": heads.k,
        "num_v_heads": heads.v,
        "head_k_dim": heads.dim,
        "head_v_dim": heads.dim,
    }


class Pools:
    """A private copy of the pools, because operators update them in place."""

    def __init__(self, workload: Workload) -> None:
        self.conv, self.ssm = workload.inputs.conv_pool.clone(), workload.inputs.ssm_pool.clone()
        self.batches = workload.inputs.batches

    def arguments(self, step: int) -> dict[str, Any]:
        return {"conv_pool": self.conv, "ssm_pool": self.ssm, "cache_indices": self.batches[step % len(self.batches)]}

    def rows(self, pool: Tensor, step: int) -> Tensor:
        """The states of one batch, as a view (batches are consecutive slots)."""
        first = self.batches[step % len(self.batches)][0]
        return pool[first : first + self.batches.shape[1]]


def gates(x: Inputs) -> tuple[Tensor, Tensor]:
    """Ready gates in float32, [T, HV]."""
    g, beta = ops.gdn_gating(x.A_log, x.a, x.b, x.dt_bias)
    return g[0], beta[0]


def our_conv(w: Workload) -> Run:
    x, pools = w.inputs, Pools(w)

    def run(step: int) -> Output:
        y = ops.causal_conv1d(
            x.mixed_qkv,
            x.conv_weight,
            query_start_loc=x.query_start_loc,
            conv_pool=pools.conv,
            cache_indices=pools.arguments(step)["cache_indices"],
        )
        return Output(y=y, window=pools.rows(pools.conv, step))

    return run


def our_conv_update(w: Workload) -> Run:
    x, pools = w.inputs, Pools(w)

    def run(step: int) -> Output:
        y = ops.causal_conv1d_update(
            x.mixed_qkv,
            x.conv_weight,
            conv_pool=pools.conv,
            cache_indices=pools.arguments(step)["cache_indices"],
        )
        return Output(y=y, window=pools.rows(pools.conv, step))

    return run


def our_gating(w: Workload) -> Run:
    x = w.inputs

    def run(step: int) -> Output:
        return Output(g=ops.gdn_gating(x.A_log, x.a, x.b, x.dt_bias)[0][0])

    return run


def our_chunk_rule(w: Workload) -> Run:
    x, pools = w.inputs, Pools(w)
    q, k, v = (part.unsqueeze(0) for part in w.heads.split(x.mixed_qkv))
    g, beta = (part.unsqueeze(0) for part in gates(x))

    def run(step: int) -> Output:
        o = ops.chunk_gated_delta_rule(
            q,
            k,
            v,
            g,
            beta,
            cu_seqlens=x.query_start_loc,
            use_qk_l2norm_in_kernel=True,
            ssm_pool=pools.ssm,
            cache_indices=pools.arguments(step)["cache_indices"],
        )[0]
        return Output(o=o[0], state=pools.rows(pools.ssm, step))

    return run


def our_rule_update(w: Workload) -> Run:
    x, pools = w.inputs, Pools(w)
    q, k, v = (part.unsqueeze(0) for part in w.heads.split(x.mixed_qkv))

    def run(step: int) -> Output:
        o = ops.fused_sigmoid_gating_delta_rule_update(
            x.A_log,
            x.a,
            x.dt_bias,
            q,
            k,
            v,
            x.b,
            ssm_pool=pools.ssm,
            cache_indices=pools.arguments(step)["cache_indices"],
        )
        return Output(o=o[0], state=pools.rows(pools.ssm, step))

    return run


def our_prefill(w: Workload) -> Run:
    x, pools, layer = w.inputs, Pools(w), layer_arguments(w.heads, w.inputs)

    def run(step: int) -> Output:
        o = ops.gdn_prefill(x.mixed_qkv, x.a, x.b, query_start_loc=x.query_start_loc, **layer, **pools.arguments(step))
        assert isinstance(o, Tensor)
        return Output(o=o[0], state=pools.rows(pools.ssm, step), window=pools.rows(pools.conv, step))

    return run


def our_decode(w: Workload) -> Run:
    x, pools, layer = w.inputs, Pools(w), layer_arguments(w.heads, w.inputs)

    def run(step: int) -> Output:
        o = ops.gdn_decode(x.mixed_qkv, x.a, x.b, **layer, **pools.arguments(step))
        return Output(o=o[0], state=pools.rows(pools.ssm, step), window=pools.rows(pools.conv, step))

    return run


def our_verify(w: Workload) -> Run:
    x, pools, layer = w.inputs, Pools(w), layer_arguments(w.heads, w.inputs)
    drafts = w.lens[0]
    mixed_qkv, a, b = (part.view(w.rows, drafts, -1) for part in (x.mixed_qkv, x.a, x.b))
    ssm = pools.ssm.new_empty((w.rows, drafts, *pools.ssm.shape[1:]))
    windows = pools.conv.new_empty((w.rows, drafts, *pools.conv.shape[1:]))
    rows = torch.arange(w.rows, dtype=torch.int32)

    def run(step: int) -> Output:
        o = ops.gdn_verify(
            mixed_qkv,
            a,
            b,
            **layer,
            **pools.arguments(step),
            intermediate_ssm=ssm,
            intermediate_conv_window=windows,
            intermediate_state_indices=rows,
        )
        return Output(o=o.flatten(0, 1), state=ssm[:, -1], window=windows[:, -1])

    return run


OURS: dict[str, Maker] = {
    "causal_conv1d": our_conv,
    "gdn_gating": our_gating,
    "chunk_gated_delta_rule": our_chunk_rule,
    "gdn_prefill": our_prefill,
    "causal_conv1d_update": our_conv_update,
    "fused_sigmoid_gating_delta_rule_update": our_rule_update,
    "gdn_decode": our_decode,
    "gdn_verify": our_verify,
}


def row_batches(w: Workload) -> list[tuple[list[int], slice]]:
    """Rows of one length go into one call, as a batch; ragged rows take a call each. Row numbers and their tokens."""
    if len(set(w.lens)) == 1:
        return [(list(range(w.rows)), slice(0, w.tokens))]
    return [([row], part) for row, part in enumerate(w.parts)]


class PeerStates:
    """States in the layout [N, HV, K, V] of transformers and FLA, and windows, for each batch of the ring."""

    def __init__(self, w: Workload) -> None:
        x = w.inputs
        self.ssm = x.ssm_pool.transpose(-1, -2).contiguous().unflatten(0, x.batches.shape)
        self.conv = x.conv_pool.clone().unflatten(0, x.batches.shape)

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        batch = step % self.ssm.shape[0]
        return self.ssm[batch], self.conv[batch]


def rule_of_peer(w: Workload, rule: Callable[..., Any], **options: Any) -> Run:
    """A delta rule ``rule(q, k, v, g=, beta=, initial_state=, output_final_state=)`` on repeated heads."""
    x, states = w.inputs, PeerStates(w)
    q, k, v = w.heads.split(x.mixed_qkv)
    ratio = w.heads.v // w.heads.k
    q, k = q.repeat_interleave(ratio, dim=1), k.repeat_interleave(ratio, dim=1)
    if "use_qk_l2norm_in_kernel" not in options:
        q, k = (torch.nn.functional.normalize(part.float(), dim=-1, eps=1e-6) for part in (q, k))
    g, beta = gates(x)
    calls = [
        (rows, [part[tokens].unflatten(0, (len(rows), -1)).contiguous() for part in (q, k, v, g, beta)])
        for rows, tokens in row_batches(w)
    ]

    def run(step: int) -> Output:
        ssm, _ = states.at(step)
        outputs, finals = [], []
        for rows, (q, k, v, g, beta) in calls:
            o, final = rule(
                q, k, v, g=g, beta=beta, initial_state=ssm[rows[0] : rows[-1] + 1], output_final_state=True, **options
            )
            outputs.append(o.flatten(0, 1))
            finals.append(final)
        return Output(o=torch.cat(outputs), state=torch.cat(finals).transpose(-1, -2))

    return run


def layer_of_transformers(w: Workload, model: Any, rule: Callable[..., Any]) -> Run:
    """What a transformers layer computes between its projections: conv, gates, repeated heads, delta rule."""
    x, states, heads = w.inputs, PeerStates(w), w.heads
    conv = inspect.unwrap(model.causal_conv1d_update)
    calls = [
        (rows, [part[tokens].unflatten(0, (len(rows), -1)) for part in (x.mixed_qkv, x.a, x.b)])
        for rows, tokens in row_batches(w)
    ]

    def run(step: int) -> Output:
        ssm, windows = states.at(step)
        outputs, finals = [], []
        for rows, (mixed_qkv, a, b) in calls:
            these = slice(rows[0], rows[-1] + 1)
            y = conv(mixed_qkv.transpose(1, 2), windows[these], x.conv_weight, None, "silu").transpose(1, 2)
            q, k, v = heads.split(y)
            g = -x.A_log.exp() * torch.nn.functional.softplus(a.float() + x.dt_bias)
            ratio = heads.v // heads.k
            o, final = rule(
                q.repeat_interleave(ratio, dim=2),
                k.repeat_interleave(ratio, dim=2),
                v,
                g=g,
                beta=b.float().sigmoid(),
                initial_state=ssm[these],
                output_final_state=True,
                use_qk_l2norm_in_kernel=True,
            )
            outputs.append(o.flatten(0, 1))
            finals.append(final)
        return Output(o=torch.cat(outputs), state=torch.cat(finals).transpose(-1, -2), window=windows)

    return run


def conv_of_transformers(w: Workload, model: Any) -> Run:
    """``causal_conv1d_update`` of transformers, which takes any number of tokens."""
    x, states = w.inputs, PeerStates(w)
    conv = inspect.unwrap(model.causal_conv1d_update)
    calls = [
        (rows, x.mixed_qkv[tokens].unflatten(0, (len(rows), -1)).transpose(1, 2)) for rows, tokens in row_batches(w)
    ]

    def run(step: int) -> Output:
        _, windows = states.at(step)
        outputs = [
            conv(mixed_qkv, windows[rows[0] : rows[-1] + 1], x.conv_weight, None, "silu").transpose(1, 2).flatten(0, 1)
            for rows, mixed_qkv in calls
        ]
        return Output(y=torch.cat(outputs), window=windows)

    return run


def gating_of_transformers(w: Workload) -> Run:
    """The expression of the transformers layer."""
    x = w.inputs

    def run(step: int) -> Output:
        g = -x.A_log.float().exp() * torch.nn.functional.softplus(x.a.float() + x.dt_bias)
        x.b.sigmoid()
        return Output(g=g)

    return run


def transformers_makers() -> dict[str, Maker]:
    model = importlib.import_module(TRANSFORMERS_MODEL)
    chunk = inspect.unwrap(model.torch_chunk_gated_delta_rule)
    recurrent = inspect.unwrap(model.torch_recurrent_gated_delta_rule)
    return {
        "causal_conv1d": lambda w: conv_of_transformers(w, model),
        "gdn_gating": gating_of_transformers,
        "chunk_gated_delta_rule": lambda w: rule_of_peer(w, chunk, use_qk_l2norm_in_kernel=True),
        "gdn_prefill": lambda w: layer_of_transformers(w, model, chunk),
        "causal_conv1d_update": lambda w: conv_of_transformers(w, model),
        "fused_sigmoid_gating_delta_rule_update": lambda w: rule_of_peer(w, recurrent, use_qk_l2norm_in_kernel=True),
        "gdn_decode": lambda w: layer_of_transformers(w, model, recurrent),
        "gdn_verify": lambda w: layer_of_transformers(w, model, recurrent),
    }


def fla_makers() -> dict[str, Maker]:
    """FLA's readable torch reference; its own kernels need a GPU. It has no convolution and no l2norm."""
    naive = importlib.import_module(FLA_NAIVE)
    return {
        "chunk_gated_delta_rule": lambda w: rule_of_peer(w, naive.naive_chunk_gated_delta_rule),
        "fused_sigmoid_gating_delta_rule_update": lambda w: rule_of_peer(w, naive.naive_recurrent_gated_delta_rule),
    }


def find_peers(peer_path: str | None) -> tuple[dict[str, dict[str, Maker]], list[str]]:
    """Makers by peer and operator, and a line about each peer that cannot be imported.

    ``peer_path``: a folder with FLA, made importable only after transformers, which would otherwise call FLA's GPU
    kernels in place of its own functions.
    """
    peers, missing = {}, []
    for name, makers in (("transformers", transformers_makers), ("fla", fla_makers)):
        if name == "fla" and peer_path is not None:
            sys.path.append(peer_path)
        try:
            peers[name] = makers()
        except (ImportError, AttributeError) as error:
            missing.append(f"{name} is left out: {type(error).__name__}: {error}")
    return peers, missing
