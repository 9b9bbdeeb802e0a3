"""Tensor parallel serving on any number of GPUs: gdn_tile split over all of them against gdn_tile on one.

    python tests/gpu/multi/tensor_parallel.py --output build/tensor-parallel

* states of a GDN layer go from all ranks to one and back, bit for bit, and decoding goes on from either;
* greedy outputs, prefix hits and cached tokens of the ranks equal those of one GPU;
* first token and decode step beside stock SGLang on the same ranks.

``tensor_parallel.json`` is written after every step. The exit code is 1 if a state or a number of cached tokens is not
the same, or more than one output in twenty. ``--device cpu --shapes tiny --engines gdn_tile`` runs on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from sglang_gdn import cpu_engine, ops, state

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "serving"))
import checkpoint
from engine import Engine
from run import TILE, about, add_engine_options, agreement, engine_arguments, summary

# NVLink multicast is a resource of the whole host, which other programs share.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
NO_MULTICAST_IN_SGLANG = {"disable_custom_all_reduce": True, "enforce_disable_flashinfer_allreduce_fusion": True}
# Engines of one and of several ranks leave different amounts of memory free on the GPUs.
UNEVEN_MEMORY = {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}
PAIRS = [(16, 32), (16, 48)]
HEAD_SIZE, TOKENS = 128, 200


class Layer:
    """One GDN layer with seeded weights and inputs: all heads, or those of one rank."""

    def __init__(self, pair: tuple[int, int], device: str) -> None:
        self.heads = {"num_k_heads": pair[0], "num_v_heads": pair[1], "head_k_dim": HEAD_SIZE, "head_v_dim": HEAD_SIZE}
        channels = (2 * pair[0] + pair[1]) * HEAD_SIZE
        source = torch.Generator().manual_seed(0)

        def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
            return torch.randn(shape, generator=source).to(device, dtype)

        self.mixed_qkv = normal(TOKENS + 1, channels)
        self.a, self.b = normal(TOKENS + 1, pair[1]), normal(TOKENS + 1, pair[1])
        self.conv_weight = normal(channels, 4)
        self.A_log, self.dt_bias = normal(pair[1], dtype=torch.float32), normal(pair[1], dtype=torch.float32)
        self.new_states()

    def new_states(self) -> None:
        channels, device = self.mixed_qkv.shape[1], self.mixed_qkv.device
        heads = self.heads["num_v_heads"]
        self.conv_pool = torch.zeros(2, channels, 3, dtype=torch.bfloat16, device=device)
        self.ssm_pool = torch.zeros(2, heads, HEAD_SIZE, HEAD_SIZE, device=device)

    def of_rank(self, rank: int, ranks: int) -> Layer:
        shard = object.__new__(Layer)
        shard.heads = dict(self.heads)
        for name in ("num_k_heads", "num_v_heads"):
            shard.heads[name] //= ranks
        shard.mixed_qkv = state.split_conv_state(self.mixed_qkv.T, ranks, **self.heads)[rank].T.contiguous()
        shard.conv_weight = state.split_conv_state(self.conv_weight, ranks, **self.heads)[rank]
        shard.a, shard.b = (x.chunk(ranks, dim=1)[rank].contiguous() for x in (self.a, self.b))
        shard.A_log, shard.dt_bias = (x.chunk(ranks)[rank] for x in (self.A_log, self.dt_bias))
        shard.new_states()
        return shard

    def _arguments(self) -> dict[str, Any]:
        names = ("conv_weight", "A_log", "dt_bias", "conv_pool", "ssm_pool")
        slots = torch.tensor([1], dtype=torch.int32, device=self.a.device)
        return {**self.heads, **{name: getattr(self, name) for name in names}, "cache_indices": slots}

    def prefill(self) -> None:
        ends = torch.tensor([0, TOKENS], dtype=torch.int32, device=self.a.device)
        inputs = (x[:TOKENS] for x in (self.mixed_qkv, self.a, self.b))
        ops.gdn_prefill(*inputs, **self._arguments(), query_start_loc=ends)

    def decode(self) -> Tensor:
        return ops.gdn_decode(*(x[TOKENS:] for x in (self.mixed_qkv, self.a, self.b)), **self._arguments())


def resize(rank: int, ranks: int, device: str, port: int, path: str) -> None:
    """All ranks prefill; rank 0 decodes from their merged states, and all of them from what it splits again."""
    if device == "cuda":
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks
    )
    found = []
    for pair in PAIRS:
        whole = Layer(pair, device)
        mine = whole.of_rank(rank, ranks)
        mine.prefill()
        sent = (mine.conv_pool[1].clone(), mine.ssm_pool[1].clone())
        gathered = [[torch.empty_like(x) for _ in range(ranks)] if rank == 0 else None for x in sent]
        for x, into in zip(sent, gathered, strict=True):
            distributed.gather(x, into, dst=0)
        split: list[list[Tensor] | None] = [None, None]
        one: dict[str, Any] = {"heads": pair, "ranks": ranks}
        if rank == 0:
            whole.prefill()
            conv, ssm = state.merge_conv_state(gathered[0], **whole.heads), state.merge_ssm_state(gathered[1])
            one["merged equals one rank"] = torch.equal(conv, whole.conv_pool[1]) and torch.equal(
                ssm, whole.ssm_pool[1]
            )
            split = [state.split_conv_state(conv, ranks, **whole.heads), state.split_ssm_state(ssm, ranks)]
        returned = [torch.empty_like(x) for x in sent]
        for x, shards in zip(returned, split, strict=True):
            distributed.scatter(x, shards, src=0)
        equal = torch.tensor(
            [all(torch.equal(*pair) for pair in zip(sent, returned, strict=True))], device=device
        ).int()
        mine.conv_pool[1], mine.ssm_pool[1] = returned
        step = mine.decode()
        steps = [torch.empty_like(step) for _ in range(ranks)] if rank == 0 else None
        distributed.gather(step, steps, dst=0)
        distributed.all_reduce(equal, distributed.ReduceOp.MIN)
        if rank == 0:
            one["round trip"] = bool(equal)
            one["next token equals one rank"] = torch.equal(torch.cat(steps, dim=2), whole.decode())
            found.append(one)
    distributed.destroy_process_group()
    if rank == 0:
        Path(path).write_text(json.dumps(found))


def resized(ranks: int, device: str) -> list[dict[str, Any]]:
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        path = Path(folder) / "found.json"
        probe.close()
        torch.multiprocessing.spawn(resize, (ranks, device, port, str(path)), nprocs=ranks)
        return json.loads(path.read_text())


class Engines:
    """Those of one shape, started together: ours on one rank, and each of ``names`` on all."""

    def __init__(self, options: argparse.Namespace, shape: str, names: list[str], model: Path, port: int) -> None:
        vocab = checkpoint.SHAPES[shape]["vocab_size"]
        self._engines: dict[str, Engine] = {}
        self.arguments: dict[str, Any] = {}
        for i, (name, ranks) in enumerate([(TILE, 1), *((name, options.ranks) for name in names)]):
            label = f"{name} on {ranks}"
            arguments = engine_arguments(options, name, model, vocab) | NO_MULTICAST_IN_SGLANG
            arguments |= {"tp_size": ranks, "port": port + 200 * i}
            log = options.output / f"{shape}-{name}-{ranks}.log"
            self._engines[label] = Engine(label, arguments, log, UNEVEN_MEMORY)
            self.arguments[label] = {key: value for key, value in arguments.items() if key != "model_path"}

    def wait(self) -> dict[str, float]:
        return {label: engine.wait() for label, engine in self._engines.items()}

    def each(self, name: str, **arguments: Any) -> dict[str, Any]:
        return {label: engine.do(name, **arguments) for label, engine in self._engines.items()}

    def stop(self) -> None:
        for engine in self._engines.values():
            engine.stop()


def compare(engines: Engines, prompts: int, tokens: int) -> dict[str, Any]:
    """Outputs and cached tokens of every engine against ours on one rank, cold and with prefixes cached."""
    lengths = [16 + (37 * i) % 1000 for i in range(prompts)]
    engines.each("flush")
    cold, hits = (engines.each("recall", lengths=lengths, tokens=tokens, seed=7) for _ in range(2))
    reference = f"{TILE} on 1"
    return {
        label: {
            "recalled": [sum(cold[label]["recalled"]), sum(cold[label]["to_recall"])],
            "recalled from cached states": [sum(hits[label]["recalled"]), sum(hits[label]["to_recall"])],
            "cached tokens": sum(hits[label]["cached"]),
            "cached tokens equal": cold[label]["cached"] == cold[reference]["cached"]
            and hits[label]["cached"] == hits[reference]["cached"],
            "outputs": agreement(cold[reference], cold[label]),
            "outputs from cached states": agreement(hits[reference], hits[label]),
        }
        for label in cold
    }


def timed(engines: Engines, lengths: list[int], batches: list[int], rounds: int) -> Iterator[tuple[str, Any]]:
    """The first prompt of each length, and the first run of each batch, is not counted."""
    for length in lengths:
        engines.each("flush")
        found = engines.each("time_to_first_token", length=length, seeds=[length + i for i in range(2 * rounds + 1)])
        yield f"first token after {length}", {label: summary(seconds[1:]) for label, seconds in found.items()}
    for batch in batches:
        engines.each("flush")
        runs = [engines.each("time_per_token", batch=batch, length=128, tokens=64, seed=i) for i in range(rounds + 1)]
        yield f"step at batch {batch}", {label: summary([run[label] for run in runs[1:]]) for label in runs[0]}


def wrong(results: dict[str, Any]) -> Iterator[str]:
    for one in results.get("states", []):
        if not (one["round trip"] and one["merged equals one rank"] and one["next token equals one rank"]):
            yield f"states: {one}"
    for shape, measured in results["shapes"].items():
        for label, one in measured.get("compared", {}).items():
            if not label.startswith(TILE):
                continue
            outputs = one["outputs"]
            if not one["cached tokens equal"]:
                yield f"{shape}: {label}: other cached tokens"
            if outputs["equal"] < 0.95 * outputs["of"]:
                yield f"{shape}: {label}: {outputs['equal']} of {outputs['of']} outputs are equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_engine_options(parser)
    parser.add_argument("--ranks", type=int, help="default: all GPUs, or 2 on a CPU")
    parser.add_argument("--shapes", default="G8,G48", help="of the checkpoints; the first is timed")
    parser.add_argument("--engines", default=f"{TILE},stock", help="those on all ranks")
    parser.add_argument("--only-states", action="store_true", help="start no engine")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.shape = options.shapes.split(",")[0]
    options.ranks = options.ranks or (torch.cuda.device_count() if options.device == "cuda" else 2)
    options.output.mkdir(parents=True, exist_ok=True)
    os.environ.update(NO_MULTICAST)
    if options.device == "cpu":
        os.environ.update(cpu_engine.environment())
        os.environ.setdefault("SGLANG_CPU_OMP_THREADS_BIND", "|".join(map(str, range(options.ranks))))
    path = options.output / "tensor_parallel.json"
    results: dict[str, Any] = {"about": about(options), "shapes": {}}

    def save() -> None:
        path.write_text(json.dumps(results, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as folder:
        running: dict[str, Engines] = {}
        try:
            for i, shape in enumerate([] if options.only_states else options.shapes.split(",")):
                model = Path(folder) / shape
                checkpoint.write(model, shape, options.dtype, options.device)
                names = options.engines.split(",") if i == 0 else [TILE]
                running[shape] = Engines(options, shape, names, model, 31000 + 1000 * i)
                results["shapes"][shape] = {"sizes": checkpoint.SHAPES[shape], "engines": running[shape].arguments}
            results["states"] = resized(options.ranks, options.device)
            save()
            for shape, engines in running.items():
                results["shapes"][shape]["start_seconds"] = engines.wait()
            for shape, engines in running.items():
                results["shapes"][shape]["compared"] = compare(engines, options.prompts, options.new_tokens)
                save()
            for shape, engines in list(running.items())[:1]:
                lengths, batches = ([int(n) for n in text.split(",")] for text in (options.lengths, options.batches))
                for label, row in timed(engines, lengths, batches, options.rounds):
                    results["shapes"][shape].setdefault("timed", {})[label] = row
                    save()
        finally:
            for engines in running.values():
                engines.stop()
            save()
    for label, row in (item for one in results["shapes"].values() for item in one.get("timed", {}).items()):
        print(f"{label}: " + ", ".join(f"{name} {times['median_ms']:.2f} ms" for name, times in row.items()))
    faults = list(wrong(results))
    print("\n".join(faults) or f"{options.ranks} ranks equal one: states, outputs and cached tokens")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
