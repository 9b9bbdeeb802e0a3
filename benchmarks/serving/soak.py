"""Serves random arrivals with ``gdn_tile`` for a while and compares a sample of the answers with cold runs.

    python benchmarks/serving/soak.py --shape G --seconds 600 --output build/soak

Lengths from 1 to 8,192 tokens, shared prompt starts, aborts. ``soak.json`` is written every half minute. A sampled
answer may leave the cold one only where the two best tokens are closer than the two runs are apart (``run.agreement``).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import checkpoint
from engine import Engine
from run import TILE, about, add_engine_options, agreement, engine_arguments
from tqdm import tqdm

SLICE_SECONDS = 30.0
COUNTS = ("requests", "aborted", "prompt_tokens", "cached_tokens", "new_tokens")


def compare(engine: Engine, samples: list[dict[str, Any]]) -> dict[str, Any]:
    equal, mismatches = 0, []
    for sample in tqdm(samples, desc="cold runs", unit="answer", file=sys.stderr):
        engine.do("flush")
        cold = engine.do("generate", prompts=[sample["prompt"]], tokens=len(sample["outputs"][0]), logprobs=True)
        result = agreement(cold, sample)
        equal += result["equal"]
        mismatches += [mismatch | {"prompt": len(sample["prompt"])} for mismatch in result["mismatches"]]
    return {"equal": equal, "of": len(samples), "mismatches": mismatches}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_engine_options(parser)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=float, default=8, help="requests a second")
    parser.add_argument("--longest", type=int, default=8192)
    parser.add_argument("--new-tokens", type=int, default=128)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"about": about(options), **dict.fromkeys(COUNTS, 0), "seconds": 0.0}
    samples: list[dict[str, Any]] = []
    path = options.output / "soak.json"
    with tempfile.TemporaryDirectory() as model:
        checkpoint.write(Path(model), options.shape, options.dtype, options.device)
        vocab = checkpoint.SHAPES[options.shape]["vocab_size"]
        arguments = engine_arguments(options, TILE, Path(model), vocab)
        engine = Engine(TILE, arguments, options.output / "soak.log", {})
        try:
            engine.wait()
            slices = max(1, round(options.seconds / SLICE_SECONDS))
            for i in tqdm(range(slices), unit="slice", file=sys.stderr):
                one = engine.do(
                    "arrivals",
                    seconds=options.seconds / slices,
                    rate=options.rate,
                    longest=options.longest,
                    tokens=options.new_tokens,
                    seed=i + 1,
                )
                samples += one.pop("samples")
                for count in COUNTS:
                    results[count] += one[count]
                results["seconds"] += options.seconds / slices
                path.write_text(json.dumps(results, indent=1) + "\n")
                print(json.dumps({name: results[name] for name in ("seconds", *COUNTS)}), flush=True)
            results["against cold runs"] = compare(engine, samples)
            results["counters"] = engine.do("counters")
        finally:
            engine.stop()
            path.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps({key: value for key, value in results.items() if key != "about"}, indent=1))


if __name__ == "__main__":
    main()
