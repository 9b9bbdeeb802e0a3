"""Prefill of a transformers model before and after ``sglang_gdn.integrations.transformers.patch``, on the CPU.

``python benchmarks/transformers_prefill.py --output FILE``. The model has random weights and the sizes of shape G of
``benchmarks/serving``, whose GDN layers outweigh the rest, with 4 of its 32 layers. Rounds alternate between the two;
both write a cache. With ``--threads 1`` times are CPU time, which a busy machine lengthens less than elapsed time.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from sglang_gdn import _C, bench
from sglang_gdn.bench.measure import Machine
from sglang_gdn.integrations.transformers import patch

sys.path.insert(0, str(Path(__file__).parent / "serving"))
from checkpoint import configuration

LAYERS = 4


def build(dtype: torch.dtype) -> torch.nn.Module:
    settings = configuration("G", "float32")
    settings |= {"num_hidden_layers": LAYERS, "layer_types": settings["layer_types"][:LAYERS]}
    fields = {key: value for key, value in settings.items() if key not in ("architectures", "dtype")}
    torch.manual_seed(0)
    model_class = transformers.Qwen3_5ForCausalLM
    return model_class(model_class.config_class(**fields)).to(dtype).eval().requires_grad_(False)


def prefill_ms(model: torch.nn.Module, tokens: torch.Tensor, clock: Callable[[], float]) -> float:
    cache = transformers.DynamicCache(config=model.config)
    start = clock()
    model(input_ids=tokens, past_key_values=cache, logits_to_keep=1)
    return (clock() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    _C.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    tokens = torch.randint(0, 16384, (1, options.tokens), generator=torch.Generator().manual_seed(0))
    facts, rows = bench.versions(Machine.measure(1.0)), []
    for dtype in ("bfloat16", "float32"):
        stock = build(getattr(torch, dtype))
        models = {"transformers": stock, "patched": patch(copy.deepcopy(stock))}
        times: dict[str, list[float]] = {name: [] for name in models}
        for round_ in range(options.rounds + 1):
            for name, model in models.items():
                elapsed = prefill_ms(model, tokens, clock)
                if round_:
                    times[name].append(elapsed)
        ms = {name: round(statistics.median(values), 1) for name, values in times.items()}
        rows.append({"op": "transformers prefill", "model": f"shape G, {LAYERS} layers", "dtype": dtype,
                     "tokens": options.tokens, "ours_ms": ms["patched"], "peers": {"transformers": ms["transformers"]},
                     "clock": clock.__name__, "versions": facts, "date": time.strftime("%Y-%m-%d")})  # fmt: skip
        print(f"{dtype}: transformers {ms['transformers']} ms, patched {ms['patched']} ms, "
              f"{ms['transformers'] / ms['patched']:.2f}x", flush=True)  # fmt: skip
    options.output.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
