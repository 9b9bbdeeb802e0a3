"""Serves one model with stock SGLang and with ``gdn_tile``, side by side on one device, and compares them.

    python benchmarks/serving/run.py --shape G --output build/serving

All engines start together and stay up; each measurement goes round all of them, several times, with the same seeds.
``results.json`` is written after every measurement, so that an interrupted run keeps what it has. Ratios compare
engines of one run; times of different runs move by some percent.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import checkpoint
import torch
from engine import Engine
from tqdm import tqdm

TILE = "gdn_tile"
NGRAM = "-ngram"
NGRAM_DRAFTS = 8
TRACE_SECONDS = 30
LENGTHS = [512, 2048, 8192, 32768, 65536]
BATCHES = [1, 4, 16, 64]
PAIRS, PAIR_TOKENS = 200, 64
PROFILED = 8192
AGENTS = {"system": 6144, "branches": 32, "turns": 6, "turn": 128, "answer": 32}
QUICK = {
    "lengths": [64, 256],
    "batches": [1, 4],
    "pairs": 4,
    "profiled": 256,
    "agents": {"system": 192, "branches": 2, "turns": 2, "turn": 32, "answer": 8},
}
# Kernels between the projections of a GDN layer, stock's and ours, its split and its gated norm included.
GDN_KERNELS = re.compile(
    r"conv1d|gdn|gated_delta|delta_rule|chunk_|recurrent|recompute_w_u|solve_tril|merge_16x16|l2norm|cumsum|qkv_split|"
    r"qkvzba_split|layer_norm_fwd_1pass|track_mamba|mamba_state",
    re.IGNORECASE,
)


def engine_arguments(options: argparse.Namespace, name: str, model: Path, vocab: int) -> dict[str, Any]:
    arguments = {
        "model_path": str(model),
        "vocab_size": vocab,
        "device": options.device,
        "skip_tokenizer_init": True,
        "grammar_backend": "none",
        "sampling_backend": "pytorch",
        "random_seed": 0,
        "attention_backend": options.softmax,
        "mamba_radix_cache_strategy": options.radix,
        "max_running_requests": 64,
        "max_mamba_cache_size": options.slots,
        "max_total_tokens": options.tokens,
        "mem_fraction_static": options.memory,
        "log_level": "info",
        **json.loads(options.engine),
    }
    if name.endswith(NGRAM):
        arguments |= {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": NGRAM_DRAFTS}
        name = name.removesuffix(NGRAM)
    if name == TILE:
        arguments |= {
            "attention_backend": TILE,
            "prefill_attention_backend": options.softmax,
            "decode_attention_backend": options.softmax,
        }
    elif name == "stock-triton":
        arguments["linear_attn_backend"] = "triton"
    return arguments


class Run:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.path = options.output / "results.json"
        self.results: dict[str, Any] = {"about": about(options), "engines": {}}
        self.engines: list[Engine] = []

    def save(self) -> None:
        self.path.write_text(json.dumps(self.results, indent=1) + "\n")

    def start(self, model: Path, vocab: int) -> None:
        for i, name in enumerate(self.options.engines.split(",")):
            port = self.options.first_port + 200 * i
            arguments = engine_arguments(self.options, name, model, vocab) | {"port": port}
            self.results["engines"][name] = {key: value for key, value in arguments.items() if key != "model_path"}
            self.engines.append(Engine(name, arguments, self.options.output / f"{name}.log", {}))
            if self.options.one_by_one:
                self.results["engines"][name]["start_seconds"] = self.engines[-1].wait()
        for engine in [] if self.options.one_by_one else self.engines:
            self.results["engines"][engine.name]["start_seconds"] = engine.wait()
        self.save()

    def measure(self) -> None:
        while self.options.after is not None and not self.options.after.exists():
            time.sleep(0.5)
        steps = [(name, step) for name in self.options.measure.split(",") for step in getattr(self, f"{name}_steps")()]
        with tqdm(steps, unit="step", file=sys.stderr) as progress:
            for name, (label, step) in progress:
                progress.set_postfix_str(f"{name} {label}")
                try:
                    self.results.setdefault(name, {})[label] = step()
                except RuntimeError as error:
                    self.results.setdefault("errors", {})[f"{name} {label}"] = str(error)
                    if not all(engine.alive() for engine in self.engines):
                        raise
                self.save()
        self.results["counters"] = {engine.name: engine.do("counters") for engine in self.engines}
        self.save()

    def each(self, name: str, **arguments: Any) -> dict[str, Any]:
        return {engine.name: engine.do(name, **arguments) for engine in self.engines}

    def flush(self) -> None:
        self.each("flush")

    # Every *_steps yields (label, function); the function measures all engines.

    def warmup_steps(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        def first_requests() -> dict[str, list[float]]:
            return self.each("time_to_first_token", length=self.lengths[0], seeds=[1, 2, 3, 5, 6])

        yield "warm-up of a server", lambda: self.each("warm_up")
        yield "first requests", first_requests
        for length in self.lengths:
            yield f"{length}", lambda n=length: self.each("time_to_first_token", length=n, seeds=[4])

    def ttft_steps(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        def measure(length: int) -> dict[str, Any]:
            self.flush()
            rounds = [
                self.each("time_to_first_token", length=length, seeds=[100 * length + 10 * turn + i for i in range(3)])
                for turn in range(self.options.rounds)
            ]
            return {name: summary([s for one in rounds for s in one[name]]) for name in rounds[0]}

        for length in self.lengths:
            yield f"{length}", lambda n=length: measure(n)

    def decode_steps(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        def measure(batch: int) -> dict[str, Any]:
            self.flush()
            rounds = [
                self.each("time_per_token", batch=batch, length=128, tokens=self.options.decode_tokens, seed=turn)
                for turn in range(self.options.rounds)
            ]
            return {name: summary([one[name] for one in rounds]) for name in rounds[0]}

        for batch in self.batches:
            yield f"{batch}", lambda n=batch: measure(n)

    def agents_steps(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        def measure() -> dict[str, Any]:
            self.flush()
            self.each("agents", **{**self.agent_trace, "turns": 1}, seed=1)
            self.flush()
            return self.each("agents", **self.agent_trace, seed=2)

        yield "trace", measure

    def mixed_steps(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Prompts of mixed lengths sent together: long prefills run while short prompts already decode."""

        def measure() -> dict[str, Any]:
            lengths = [self.lengths[0] * (1 + i % 8) // 2 for i in range(self.batches[-1])]
            self.flush()
            rounds = [
                self.each("generate_random", lengths=lengths, tokens=self.options.decode_tokens, seed=900 + turn)
                for turn in range(self.options.rounds)
            ]
            return {name: summary([one[name]["seconds"] for one in rounds]) for name in rounds[0]}

        yield f"{self.batches[-1]} prompts", measure

    def pairs_steps(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Greedy outputs of all engines against the first, and of each against itself with its prefixes cached."""

        def measure() -> dict[str, Any]:
            self.flush()
            lengths = [16 + (37 * i) % 1000 for i in range(self.pair_count)]
            asked = {"lengths": lengths, "tokens": PAIR_TOKENS, "seed": 7}
            cold, hits = self.each("recall", **asked), self.each("recall", **asked)
            reference = self.engines[0].name
            answer: dict[str, Any] = {}
            for name in cold:
                answer[name] = {
                    "recalled": [sum(cold[name]["recalled"]), sum(cold[name]["to_recall"])],
                    "recalled from cached states": [sum(hits[name]["recalled"]), sum(hits[name]["to_recall"])],
                    "cached_tokens": sum(hits[name]["cached"]),
                    "prompt_tokens": sum(lengths),
                    "verified drafts": sum(cold[name]["verified"]),
                    f"against {reference}": agreement(cold[reference], cold[name]),
                    "cached against cold": agreement(cold[name], hits[name]),
                }
            return answer

        yield f"{self.pair_count} prompts", measure

    def profile_steps(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Share of the GPU's busy time that the GDN layers take between their projections."""

        def measure(lengths: list[int], tokens: int) -> dict[str, Any]:
            shares = {}
            for engine in self.engines:
                with tempfile.TemporaryDirectory() as folder:
                    engine.do("profile", folder=folder, lengths=lengths, tokens=tokens, seed=11)
                    shares[engine.name] = kernel_times(Path(folder))
            return shares

        if self.options.device == "cpu":
            return
        yield "prefill", lambda: measure([QUICK["profiled"] if self.options.quick else PROFILED], 1)
        yield "decode 1", lambda: measure([64], 64)
        yield f"decode {self.batches[-1]}", lambda: measure([64] * self.batches[-1], 64)

    @property
    def lengths(self) -> list[int]:
        return QUICK["lengths"] if self.options.quick else LENGTHS

    @property
    def batches(self) -> list[int]:
        if self.options.batches is not None:
            return [int(batch) for batch in self.options.batches.split(",")]
        return QUICK["batches"] if self.options.quick else BATCHES

    @property
    def pair_count(self) -> int:
        return QUICK["pairs"] if self.options.quick else PAIRS

    @property
    def agent_trace(self) -> dict[str, int]:
        return QUICK["agents"] if self.options.quick else AGENTS


def summary(seconds: list[float]) -> dict[str, Any]:
    return {"median_ms": statistics.median(seconds) * 1e3, "min_ms": min(seconds) * 1e3, "count": len(seconds)}


def agreement(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """How many outputs are equal, and for the others the first token that differs: how far ahead of the second best
    token the first engine's was, and how far the two engines are apart on that token, in log-probability."""
    mismatches = []
    for i, (a, b) in enumerate(zip(one["outputs"], other["outputs"], strict=True)):
        if a == b:
            continue
        at = next(step for step, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1])
        best, theirs = one["best"][i][at], dict((token, value) for value, token in other["best"][i][at])
        apart = abs(theirs[best[0][1]] - best[0][0]) if best[0][1] in theirs else None
        mismatches.append({"prompt": i, "step": at, "margin": best[0][0] - best[1][0], "apart": apart})
    result = {"equal": len(one["outputs"]) - len(mismatches), "of": len(one["outputs"]), "mismatches": mismatches}
    for name in ("step", "margin", "apart"):
        values = [mismatch[name] for mismatch in mismatches if mismatch[name] is not None]
        if values:
            result[f"median_{name}"], result[f"max_{name}"] = statistics.median(values), max(values)
    return result


def kernel_times(folder: Path) -> dict[str, Any]:
    deadline = time.monotonic() + TRACE_SECONDS
    while not (traces := sorted(folder.rglob("*.trace.json.gz"))) and time.monotonic() < deadline:
        time.sleep(0.2)
    times: Counter[str] = Counter()
    for trace in traces:
        with gzip.open(trace) as file:
            for event in json.load(file)["traceEvents"]:
                if event.get("cat") == "kernel":
                    times[event["name"]] += event["dur"]
    total = sum(times.values())
    gdn = {name: time for name, time in times.items() if GDN_KERNELS.search(name)}
    return {
        "busy_us": total,
        "gdn_us": sum(gdn.values()),
        "gdn_share": sum(gdn.values()) / total if total else None,
        "gdn_kernels": {name[:100]: round(time, 1) for name, time in Counter(gdn).most_common(12)},
        "other_kernels": {
            name[:100]: round(time, 1) for name, time in (times - Counter(gdn)).most_common(12) if name not in gdn
        },
    }


def about(options: argparse.Namespace) -> dict[str, Any]:
    gpu = options.device == "cuda"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name() if gpu else "cpu",
        "torch": torch.__version__,
        "sglang": version("sglang"),
        "sglang_gdn": version("sglang-gdn"),
        "shape": {"name": options.shape, **checkpoint.SHAPES[options.shape]},
        "options": {name: value for name, value in vars(options).items() if not isinstance(value, Path)},
    }


def table(results: dict[str, Any]) -> str:
    """Times of all engines as Markdown, and how many times faster than the first each is."""
    names = list(results["engines"])
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]

    def add(label: str, times: dict[str, float], unit: str) -> None:
        cells = [f"{times[name]:.4g} {unit} ({times[names[0]] / times[name]:.2f}x)" for name in names]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")

    for kind, what in (("ttft", "first token after {}"), ("decode", "step at batch {}"), ("mixed", "mixed, {}")):
        for label, row in results.get(kind, {}).items():
            add(what.format(label), {name: row[name]["median_ms"] for name in names}, "ms")
    for row in results.get("agents", {}).values():
        add("agent trace", {name: row[name]["seconds"] for name in names}, "s")
        hit_rates = [f"{row[name]['cached'] / row[name]['sent']:.1%}" for name in names]
        lines.append("| its hit rate | " + " | ".join(hit_rates) + " |")
    for label, row in results.get("profile", {}).items():
        shares = [row[name]["gdn_share"] for name in names]
        cells = ["-" if share is None else f"{share:.1%}" for share in shares]
        lines.append(f"| GDN's share of {label} | " + " | ".join(cells) + " |")
        if None not in shares:
            add(f"GDN kernels in {label}", {name: row[name]["gdn_us"] / 1e3 for name in names}, "ms")
            stock = row[names[0]]
            allowed = {name: stock["busy_us"] - stock["gdn_us"] + row[name]["gdn_us"] for name in names}
            add(f"busy time of {label}, if only those change", {name: us / 1e3 for name, us in allowed.items()}, "ms")
    return "\n".join(lines)


def plot(results: dict[str, Any], folder: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no plots: matplotlib is not installed", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    title = (
        f"{results['about']['device']}, SGLang {results['about']['sglang']}, shape {results['about']['shape']['name']}"
    )
    for name, axis in (("ttft", "prompt tokens"), ("decode", "batch")):
        if name not in results:
            continue
        figure, axes = pyplot.subplots(figsize=(6, 4))
        for engine in results["engines"]:
            points = {int(label): row[engine]["median_ms"] for label, row in results[name].items()}
            axes.plot(list(points), list(points.values()), "o-", label=engine)
        axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="ms" if name == "ttft" else "ms per step", title=title)
        axes.set_xticks(list(points), [str(x) for x in points])
        axes.legend()
        figure.tight_layout()
        figure.savefig(folder / f"{name}.png", dpi=120)
        pyplot.close(figure)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", choices=list(checkpoint.SHAPES), default="G")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--softmax", default="triton", help="softmax backend of all engines")
    parser.add_argument("--radix", default="extra_buffer", help="--mamba-radix-cache-strategy of all engines")
    parser.add_argument("--slots", type=int, default=512, help="--max-mamba-cache-size of all engines")
    parser.add_argument("--tokens", type=int, default=400_000, help="--max-total-tokens of all engines")
    parser.add_argument("--memory", type=float, default=0.8, help="--mem-fraction-static of all engines")
    parser.add_argument("--engine", default="{}", help="JSON: more arguments of every engine")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_engine_options(parser)
    parser.add_argument(
        "--engines", default=f"stock,{TILE}", help=f"of stock, stock-triton and {TILE}; with {NGRAM}: with drafts"
    )
    parser.add_argument("--measure", default="warmup,pairs,ttft,decode,mixed,agents,profile")
    parser.add_argument("--batches", help="comma-separated; of decode and, the largest, of mixed and profile")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--decode-tokens", type=int, default=256)
    parser.add_argument("--first-port", type=int, default=31000)
    parser.add_argument("--after", type=Path, help="measure when this file exists; the engines start at once")
    parser.add_argument("--one-by-one", action="store_true", help="start the engines one after the other")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    run = Run(options)
    with tempfile.TemporaryDirectory() as model:
        print(f"writing shape {options.shape}", file=sys.stderr)
        run.results["about"]["parameters"] = checkpoint.write(Path(model), options.shape, options.dtype, options.device)
        try:
            run.start(Path(model), checkpoint.SHAPES[options.shape]["vocab_size"])
            run.measure()
        finally:
            for engine in run.engines:
                engine.stop()
            run.save()
    print(table(run.results))
    plot(run.results, options.output)


if __name__ == "__main__":
    main()
