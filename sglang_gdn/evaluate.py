"""``python -m sglang_gdn eval MODEL``: how far a model on our operators is from the same model in transformers.

One model object is run patched and unpatched on the same text: the output of each GDN layer, logits, perplexity, greedy
tokens, and how errors grow with the length of a text, with float32 and with bfloat16 states. With ``--sglang`` it also
runs on SGLang's own kernels. ``--output`` receives ``report.md`` with plots and ``report.json``. Exit code 0 if every
threshold holds, else 1.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sglang_gdn import machine, ops, sglang_kernels
from sglang_gdn.integrations.transformers import gdn_layers, patch, unpatch

PERPLEXITY_LIMITS = {"float32": 1e-5, "bfloat16": 5e-4, "float16": 5e-4}
# Float32 layers are each within 1e-5 of the definition; others round their convolution and their output, in float16 to
# three more bits than in bfloat16.
LAYER_LIMITS = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 2.5e-3}
GREEDY_LIMIT = 0.99
SEGMENT = 1024
SGLANG_DTYPES = ({"bfloat16", "float16"}, {"float16"})  # on a GPU, in Triton's interpreter


@dataclass
class Check:
    """``value`` must be at most ``limit``, or at least, as ``rule`` says."""

    name: str
    value: float
    rule: str
    limit: float

    @property
    def holds(self) -> bool:
        return self.value <= self.limit if self.rule == "at most" else self.value >= self.limit


@dataclass
class Report:
    facts: dict[str, Any]
    checks: list[Check] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(json.dumps(asdict(self), indent=1) + "\n")
        lines = [
            "# Accuracy of a model on sglang-gdn",
            "",
            *(f"- {name}: {value}" for name, value in self.facts.items()),
        ]
        lines += ["", "| check | value | threshold | |", "|---|---:|---:|---|"]
        for check in self.checks:
            verdict = "holds" if check.holds else "**fails**"
            lines.append(f"| {check.name} | {check.value:.3g} | {check.rule} {check.limit:.3g} | {verdict} |")
        for title, rows in self.tables.items():
            lines += ["", f"## {title}", "", "| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
            lines += ["| " + " | ".join(_cell(value) for value in row.values()) + " |" for row in rows]
            if (x := next(iter(rows[0]))) == "tokens":
                name = title.lower().replace(" ", "-").replace(",", "") + ".svg"
                (folder / name).write_text(line_plot(title, rows, x))
                lines += ["", f"![{title}]({name})"]
        (folder / "report.md").write_text("\n".join(lines) + "\n")


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def line_plot(title: str, rows: list[dict[str, Any]], x: str) -> str:
    """An SVG of every column over column ``x``, the vertical axis logarithmic."""
    series = {name: [max(float(row[name]), 1e-12) for row in rows] for name in rows[0] if name != x}
    logs = [math.log10(value) for values in series.values() for value in values]
    low, high = math.floor(min(logs)), math.ceil(max(logs) + 1e-9)
    last = rows[-1][x]
    width, height, left, top = 640, 320, 60, 30

    def point(at: float, value: float) -> str:
        share = (math.log10(value) - low) / max(high - low, 1)
        return f"{left + (width - 80) * at / last:.1f},{top + (height - 70) * (1 - share):.1f}"

    colours = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
    parts = [f'<text x="{left}" y="18">{title}</text>', f'<text x="{width - 80}" y="{height - 10}">{last} {x}</text>']
    for power in range(low, high + 1):
        start, end = point(0, 10.0**power), point(last, 10.0**power)
        parts.append(f'<polyline points="{start} {end}" stroke="#ddd"/>')
        parts.append(f'<text x="4" y="{start.split(",")[1]}">1e{power}</text>')
    for i, (name, values) in enumerate(series.items()):
        points = " ".join(point(row[x], value) for row, value in zip(rows, values, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[i % 4]}" stroke-width="2"/>')
        parts.append(f'<text x="{left + 150 * i}" y="{height - 26}" fill="{colours[i % 4]}">{name}</text>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12">\n{body}\n</svg>\n'
    )


@contextmanager
def on_our_operators(model: torch.nn.Module, kernels: Any = ops) -> Iterator[None]:
    patch(model, kernels)
    try:
        yield
    finally:
        unpatch(model)


# What a model is put into to run as it would without us.
Reference = Callable[[torch.nn.Module], AbstractContextManager[None]]
SGLANG: Reference = partial(on_our_operators, kernels=sglang_kernels)


def on_transformers(model: torch.nn.Module) -> AbstractContextManager[None]:
    return nullcontext()


def both(model: torch.nn.Module, run: Callable[[], Any], reference: Reference = on_transformers) -> tuple[Any, Any]:
    """What ``run`` returns on our operators, and on those of ``reference``."""
    with on_our_operators(model):
        ours = run()
    with reference(model):
        return ours, run()


def relative_error(x: Tensor, wanted: Tensor) -> float:
    """``||x - wanted|| / ||wanted||``."""
    return ((x.double() - wanted.double()).norm() / wanted.double().norm()).item()


def compare_layers(model: Any, tokens: Tensor, reference: Reference) -> list[dict[str, Any]]:
    """Each GDN layer on the input that transformers' model gives it, and the hidden states that have grown apart."""
    inputs: dict[str, tuple[tuple, dict]] = {}

    def recorder(name: str) -> Callable[..., None]:
        return lambda layer, args, kwargs: inputs.__setitem__(name, (args, kwargs))

    layers = gdn_layers(model)
    hooks = [layer.register_forward_pre_hook(recorder(name), with_kwargs=True) for name, layer in layers.items()]
    model(input_ids=tokens, use_cache=False)
    for hook in hooks:
        hook.remove()
    ours, wanted = both(model, lambda: model(input_ids=tokens, use_cache=False, output_hidden_states=True), reference)
    rows = []
    for name, layer in layers.items():
        args, kwargs = inputs[name]
        mine, theirs = both(layer, partial(layer, *args, **kwargs), reference)
        after = int(layer.layer_idx) + 1
        apart = relative_error(ours.hidden_states[after], wanted.hidden_states[after])
        rows.append({"layer": name, "error of the layer": relative_error(mine, theirs), "error so far": apart})
    rows.append(
        {"layer": "logits", "error of the layer": 0.0, "error so far": relative_error(ours.logits, wanted.logits)}
    )
    return rows


def perplexity(model: Any, tokens: Tensor, window: int, rows: int) -> float:
    """In windows that do not see each other; every token but the first of a window is predicted."""
    losses, count = 0.0, 0
    for batch in tokens[: len(tokens) // window * window].view(-1, window).split(rows):
        logits = model(input_ids=batch, use_cache=False).logits[:, :-1].float()
        losses += cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum").double().item()
        count += batch[:, 1:].numel()
    return math.exp(losses / count)


def greedy(model: Any, prompts: Tensor, count: int) -> Tensor:
    """``[N, count]``."""
    outputs = [
        model.generate(
            batch, attention_mask=torch.ones_like(batch), max_new_tokens=count, do_sample=False, eos_token_id=None,
            pad_token_id=0,
        )[:, prompts.shape[1] :]
        for batch in prompts.split(25)
    ]  # fmt: skip
    return torch.cat(outputs)


def compare_greedy(model: Any, prompts: Tensor, count: int, reference: Reference) -> dict[str, float]:
    """Shares of tokens: generated freely, and chosen after what the model of ``reference`` wrote so far."""
    ours, wanted = both(model, lambda: greedy(model, prompts, count), reference)
    texts = torch.cat([prompts, wanted], dim=1)

    def choices() -> Tensor:
        best = [model(input_ids=rows, use_cache=False).logits.argmax(-1) for rows in texts.split(25)]
        return torch.cat(best)[:, prompts.shape[1] - 1 : -1]

    chosen, also = both(model, choices, reference)
    return {
        "free": (ours == wanted).double().mean().item(),
        "forced": (chosen == also).double().mean().item(),
        "identical outputs": (ours == wanted).all(1).double().mean().item(),
    }


def through_cache(model: Any, tokens: Tensor, state_dtype: torch.dtype) -> Iterator[Tensor]:
    """Logits ``[SEGMENT, vocabulary]`` of one segment after another, recurrent states kept in ``state_dtype``."""
    import transformers

    cache: Any = transformers.DynamicCache(config=model.config.get_text_config())
    for segment in tokens.split(SEGMENT):
        yield model(input_ids=segment[None], past_key_values=cache).logits[0].float()
        states = (layer.recurrent_states for layer in cache.layers if hasattr(layer, "recurrent_states"))
        for state in states:
            state[0] = state[0].to(state_dtype)


def drift(model: Any, tokens: Tensor) -> list[dict[str, Any]]:
    """Error of the logits in every segment of one long text, with states of two dtypes."""
    wanted = list(through_cache(model, tokens, torch.float32))
    with on_our_operators(model):
        runs = {
            f"{str(dtype).removeprefix('torch.')} state": [
                relative_error(x, y) for x, y in zip(through_cache(model, tokens, dtype), wanted, strict=True)
            ]
            for dtype in (torch.float32, torch.bfloat16)
        }
    ends = [min((i + 1) * SEGMENT, len(tokens)) for i in range(len(wanted))]
    return [{"tokens": end, **{name: errors[i] for name, errors in runs.items()}} for i, end in enumerate(ends)]


def compare(
    model: Any, dtype: str, tokens: Tensor, prompts: Tensor, options: argparse.Namespace, name: str,
    reference: Reference,
) -> tuple[list[Check], dict[str, list[dict[str, Any]]]]:  # fmt: skip
    """Checks, and tables by title."""
    layers = compare_layers(model, tokens[: options.window][None], reference)
    worst = max(row["error of the layer"] for row in layers)
    read = tokens[: options.perplexity_tokens or None]
    ours, wanted = both(model, partial(perplexity, model, read, options.window, options.rows), reference)
    shares = compare_greedy(model, prompts, options.new_tokens, reference)
    # A rounding that tips one choice changes every later token of a free run; with 16 bits only choices count.
    kind = "free" if dtype == "float32" else "forced"
    checks = [
        Check("largest error of a layer", worst, "at most", LAYER_LIMITS[dtype]),
        Check("perplexity apart", abs(ours / wanted - 1), "at most", PERPLEXITY_LIMITS[dtype]),
        Check(f"greedy agreement, {kind}", shares[kind], "at least", GREEDY_LIMIT),
    ]
    perplexities = {"ours": f"{ours:.7f}", name: f"{wanted:.7f}", "tokens read": len(read)}
    return checks, {"Layers": layers, "Perplexity": [perplexities], "Greedy tokens": [dict(shares)]}


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sglang_gdn eval", description=__doc__)
    parser.add_argument("model", help="folder or name of a Qwen3-Next or Qwen3.5 checkpoint, with its tokenizer")
    parser.add_argument("--text", type=Path, required=True, help="UTF-8 text that the model was not trained on")
    parser.add_argument("--output", type=Path, required=True, help="folder for report.md, report.json and plots")
    parser.add_argument("--dtypes", nargs="+", choices=sorted(PERPLEXITY_LIMITS), default=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--window", type=int, default=2048, help="tokens of a window of the perplexity")
    parser.add_argument("--rows", type=int, default=4, help="windows at a time")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--drift-tokens", type=int, default=65536, help="length of the long text, 0 for none")
    parser.add_argument("--perplexity-tokens", type=int, default=0, help="read only so many, 0 for the whole text")
    parser.add_argument("--sglang", action="store_true", help="compare with SGLang's own kernels too")
    options = parser.parse_args(argv)
    if options.sglang and (refused := set(options.dtypes) - SGLANG_DTYPES[options.device == "cpu"]):
        parser.error(f"--sglang: SGLang's kernels do not compute in {', '.join(sorted(refused))} on {options.device}")
    return options


@torch.no_grad()
def main(argv: list[str]) -> int:
    options = arguments(argv)
    if options.sglang and options.device == "cpu":
        sglang_kernels.interpret()
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    text = options.text.read_text(encoding="utf-8")
    tokens = tokenizer(text, return_tensors="pt", verbose=False).input_ids[0].to(options.device)
    if len(tokens) < options.window + options.prompts + options.prompt_tokens:
        raise SystemExit(f"{options.text}: too short for these windows and prompts; got {len(tokens)} tokens")
    starts = torch.linspace(0, len(tokens) - options.prompt_tokens, options.prompts).long().tolist()
    prompts = torch.stack([tokens[start : start + options.prompt_tokens] for start in starts])
    facts = {"model": options.model, "text": f"{options.text.name}, {len(tokens)} tokens", "device": options.device}
    report = Report(facts | machine.versions())
    references = {"transformers": on_transformers} | ({"SGLang": SGLANG} if options.sglang else {})
    for dtype in options.dtypes:
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, dtype))
        model = model.to(options.device).eval()
        for name, reference in references.items():
            about = dtype if name == "transformers" else f"{dtype}, against {name}"
            checks, tables = compare(model, dtype, tokens, prompts, options, name, reference)
            report.tables |= {f"{title}, {about}": rows for title, rows in tables.items()}
            for check in checks:
                check.name = f"{about}: {check.name}"
                print(f"{check.name}: {check.value:.3g}, {check.rule} {check.limit:.3g}", flush=True)
            report.checks += checks
        if dtype == "float32" and options.drift_tokens:
            repeats = -(-options.drift_tokens // len(tokens))
            report.tables["Error over length, float32"] = drift(model, tokens.repeat(repeats)[: options.drift_tokens])
    report.write(options.output)
    failed = [check.name for check in report.checks if not check.holds]
    print(f"wrote {options.output / 'report.md'}", *(f"fails: {name}" for name in failed), sep="\n")
    return 1 if failed else 0
