"""Relative L2 errors of the SM90 kernels, and of others that Python finds, against float64 on the same inputs.

The reference is the recurrence, one token after another, of ``tests/oracle.py``. Others are those of ``sm90.py``; which
of a kernel's results are outputs and states, and whether its states are transposed, is found by trying: what is nearest
to the reference counts.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import sm90
from sm90 import ChunkRule, D, Layer, Verify, reporting_failure

import oracle
from compare import rel_l2
from sglang_gdn import ops

Errors = dict[str, float]


def tensors_in(result: object) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from tensors_in(part)


def nearest(candidates: list[Tensor], expected: Tensor) -> float:
    """``expected`` has the shape of a candidate, or that with its last two dimensions exchanged."""
    fitting = [x for x in candidates if x.numel() == expected.numel() and x.shape[-1] == D]
    errors = [rel_l2(x.reshape(expected.shape), expected) for x in fitting]
    if expected.shape[-2] == D:
        errors += [rel_l2(x.reshape(expected.shape).mT, expected) for x in fitting]
    return min(error for error in errors if error == error)


def chunk_rule_inputs(kind: str, hk: int, hv: int, lens: list[int]) -> ChunkRule:
    case = ChunkRule(hk, hv, lens)
    if kind == "long memory":
        case.g = -0.02 * torch.rand_like(case.g)
    if kind == "nearly equal keys":
        near = torch.randn(1, 1, hk, D, device="cuda") + 0.05 * torch.randn_like(case.k.float())
        case.k = torch.nn.functional.normalize(near, dim=-1).bfloat16()
        case.g = torch.full_like(case.g, -1e-3)
        case.beta = torch.full_like(case.beta, 0.99)
    return case


CHUNK_RULES: dict[str, Callable[[ChunkRule, int], object]] = {
    "ours": ChunkRule.ours, "flashinfer": ChunkRule.flashinfer, "flashqla": ChunkRule.flashqla,
    "fla": ChunkRule.fla, "sglang": partial(ChunkRule.sglang, l2norm=False),
}  # fmt: skip


def chunk_rule_errors(kernel: Callable[[ChunkRule, int], object], case: ChunkRule, expected: oracle.Prefill) -> Errors:
    before, best = case.states.clone(), {}
    for transposed in (False, True):
        case.states = before.mT.contiguous() if transposed else before.clone()
        results = list(tensors_in(kernel(case, 0)))
        found = {
            "o": nearest([*results, case.out], expected.o[None]),
            "state": nearest([x for x in [*results, case.states] if x.dim() == 4 and x.shape[-2] == D], expected.pool),
        }
        if not best or found["o"] < best["o"]:
            best = found
    case.states = before
    return best


def layer_of(case: Layer) -> SimpleNamespace:
    sizes = {"H": case.hk, "HV": case.hv, "K": D, "V": D, "activation": "silu", "conv_bias": None}
    return SimpleNamespace(**case.weights, **sizes)


def decode_errors(hk: int, hv: int, batch: int) -> dict[str, Errors]:
    layer = Layer(hk, hv, batch)
    slots = layer.indices[0].long()
    conv, ssm = layer.conv.clone(), layer.ssm.clone()
    o, _, states, *_ = oracle.gdn_update(
        layer_of(layer), layer.mixed_qkv[:, None], layer.a[:, None], layer.b[:, None], conv_pool=conv[slots],
        ssm_pool=ssm[slots], cache_indices=torch.arange(batch),
    )  # fmt: skip
    errors = {}
    for name, kernel in (("ours", Layer.decode), ("sglang", sm90.sglang_decode)):
        with reporting_failure(name):
            layer.conv.copy_(conv), layer.ssm.copy_(ssm)
            kernel(layer, 0)
            errors[name] = {"o": rel_l2(layer.out.view(o.shape), o), "state": rel_l2(layer.ssm[slots], states)}
    return errors


def recurrent_errors(hk: int, hv: int, batch: int) -> dict[str, Errors]:
    """Without the convolution, as FlashInfer's decode is."""
    layer, rows = Layer(hk, hv, batch), torch.arange(batch, dtype=torch.int32, device="cuda")
    keys, ssm, weights = hk * D, layer.ssm[:batch].clone(), layer.weights
    q, k, v = layer.mixed_qkv[:, None].split([keys, keys, hv * D], dim=-1)
    q, k, v = q.unflatten(-1, (hk, D)), k.unflatten(-1, (hk, D)), v.unflatten(-1, (hv, D))
    a, b = layer.a[:, None], layer.b[:, None]
    o, states, _ = oracle.delta_rule_update(
        weights["A_log"], a, weights["dt_bias"], q, k, v, b, ssm_pool=ssm, cache_indices=rows
    )

    def ours() -> object:
        return ops.fused_sigmoid_gating_delta_rule_update(
            weights["A_log"], a, weights["dt_bias"], q, k, v, b, ssm_pool=layer.ssm, cache_indices=rows
        )

    errors = {}
    for name, kernel in (("ours", ours), ("flashinfer", partial(sm90.flashinfer_decode, layer, 0))):
        with reporting_failure(name):
            layer.ssm[:batch].copy_(ssm)
            results = list(tensors_in(kernel()))
            errors[name] = {"o": nearest(results, o), "state": rel_l2(layer.ssm[:batch], states)}
    return errors


def verify_errors(hk: int, hv: int, batch: int, drafts: int, tree: bool) -> dict[str, Errors]:
    layer = Verify(hk, hv, batch, drafts, tree)
    slots = layer.indices[0].long()
    parents = None if layer.parents is None else layer.parents.cpu()
    o, _, _, _, states = oracle.gdn_update(
        layer_of(layer), layer.mixed_qkv, layer.a, layer.b, conv_pool=layer.conv[slots], ssm_pool=layer.ssm[slots],
        cache_indices=torch.arange(batch), parent_tokens=parents, commit=False, rounded=False,
    )  # fmt: skip
    errors = {}
    with reporting_failure("ours"):
        layer.verify_recorded(0)
        errors["ours"] = {"o": rel_l2(layer.out.view(o.shape), o)}
        if not tree:
            layer.verify_stored(0)
            errors["ours, states stored"] = {
                "o": rel_l2(layer.out.view(o.shape), o),
                "state": rel_l2(layer.state, states),
            }
    with reporting_failure("sglang"):
        errors["sglang"] = {"o": nearest([sm90.sglang_verify(layer, 0)], o), "state": rel_l2(layer.state, states)}
    return errors


def rows(facts: dict) -> Iterator[dict]:
    def row(op: str, shape: dict, errors: dict[str, Errors]) -> dict:
        print(op, shape, {name: {k: f"{v:.2e}" for k, v in e.items()} for name, e in errors.items()}, flush=True)
        return {"op": op, "shape": shape, "errors": errors, "versions": facts, "date": str(datetime.date.today())}

    for hk, hv in ((2, 8), (16, 32)):
        yield row("gdn_decode", {"hk": hk, "hv": hv, "batch": 4}, decode_errors(hk, hv, 4))
        shape = {"hk": hk, "hv": hv, "batch": 4}
        yield row("fused_sigmoid_gating_delta_rule_update", shape, recurrent_errors(hk, hv, 4))
        for drafts, tree in ((4, False), (4, True)):
            shape = {"hk": hk, "hv": hv, "batch": 4, "drafts": drafts, "tree": tree}
            yield row("gdn_verify", shape, verify_errors(hk, hv, 4, drafts, tree))
    for kind in ("model gates", "long memory", "nearly equal keys"):
        for hk, hv, lens in ((2, 8, [2048]), (2, 8, [777, 64, 1, 130, 17])):
            case = chunk_rule_inputs(kind, hk, hv, lens)
            expected = oracle.chunk_gated_delta_rule(
                case.q[0], case.k[0], case.v[0], case.g[0], case.beta[0], ssm_pool=case.states,
                query_start_loc=case.offsets, cache_indices=case.indices,
            )  # fmt: skip
            errors = {}
            for name, kernel in CHUNK_RULES.items():
                with reporting_failure(name):
                    errors[name] = chunk_rule_errors(kernel, case, expected)
            yield row("chunk_gated_delta_rule", {"hk": hk, "hv": hv, "lens": lens, "inputs": kind}, errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/h200/studies/errors.json"))
    path = parser.parse_args().output
    torch.manual_seed(0)
    facts = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    sm90.write_as_measured(path, rows(facts))


if __name__ == "__main__":
    main()
