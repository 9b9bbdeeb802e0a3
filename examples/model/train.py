"""Trains the small Gated DeltaNet hybrid of this folder: ``python examples/model/train.py --output FOLDER``.

Qwen3.5 text architecture with GDN heads of the real size, one token a byte, weights stored in bfloat16. The text is
documentation: the topics and docstrings of Python's standard library, and docstrings of installed packages whose
metadata name a permissive licence. A sixth of the documents, chosen by their hash, is held out; ``held_out.txt`` are
those of the standard library.

Next to the weights stands ``training.json``: versions, sources with their licences, steps, losses and the perplexity of
the held-out text.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.metadata
import json
import math
import platform
import re
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from make_checkpoint import CONFIG, byte_tokenizer

SEED = 0
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 640,
    "head_dim": 64,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
}
PACKAGES = ("numpy", "scipy", "pandas", "networkx", "sympy", "transformers", "setuptools", "pydantic")
PERMISSIVE = re.compile(r"\b(MIT|BSD|Apache)\b")
SHORTEST_DOCUMENT = 200
HELD_OUT_SHARE = 0.17
HELD_OUT_BYTES = 200_000
WINDOW = 512
PEAK_LEARNING_RATE = 3e-3
WARM_UP_STEPS = 50


@dataclass
class Source:
    name: str
    version: str
    licence: str
    documents: list[str]


def docstrings(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.py")):
        inside = file.relative_to(folder).parts
        if {"test", "tests", "site-packages", "_vendor", "idlelib", "lib2to3"} & set(inside):
            continue
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text and len(text) >= SHORTEST_DOCUMENT:
                    yield text


def standard_library() -> Source:
    from pydoc_data.topics import topics

    documents = [text.strip() for _, text in sorted(topics.items())]
    documents += docstrings(Path(sysconfig.get_paths()["stdlib"]))
    return Source("python", platform.python_version(), "PSF-2.0", documents)


def package(name: str) -> Source:
    distribution = importlib.metadata.distribution(name)
    metadata = distribution.metadata
    claims = [metadata.get("License-Expression"), *(metadata.get_all("Classifier") or []), metadata.get("License")]
    licence = next((claim for claim in claims if claim and PERMISSIVE.search(claim)), None)
    if licence is None:
        raise SystemExit(f"{name}: no permissive licence in its metadata")
    documents = list(docstrings(Path(str(distribution.locate_file(name)))))
    return Source(name, distribution.version, licence.splitlines()[0].removeprefix("License :: "), documents)


def is_held_out(document: str) -> bool:
    return hashlib.sha256(document.encode()).digest()[0] < 256 * HELD_OUT_SHARE


def tokens_of(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def shuffled(documents: list[str]) -> list[str]:
    return sorted(documents, key=lambda text: hashlib.sha256(f"{SEED}{text}".encode()).digest())


def split(sources: list[Source]) -> tuple[str, str]:
    """The text to learn, and the first ``HELD_OUT_BYTES`` of what is held out of the standard library."""
    learnt = {document for source in sources for document in source.documents if not is_held_out(document)}
    held_out = {document for document in sources[0].documents if is_held_out(document)}
    joined = "\n\n".join(shuffled(list(held_out))).encode()[:HELD_OUT_BYTES]
    return "\n\n".join(shuffled(list(learnt))), joined.decode(errors="ignore")


def batches(text: torch.Tensor, steps: int, rows: int) -> Iterator[torch.Tensor]:
    """``[rows, WINDOW + 1]`` of consecutive windows, in random order; again from the start when they are used up."""
    windows = text[: (len(text) - 1) // WINDOW * WINDOW + 1].unfold(0, WINDOW + 1, WINDOW)
    random = torch.Generator().manual_seed(SEED)
    order = torch.cat([torch.randperm(len(windows), generator=random) for _ in range(steps * rows // len(windows) + 1)])
    for step in range(steps):
        yield windows[order[step * rows : (step + 1) * rows]].long()


def learning_rate(step: int, steps: int) -> float:
    if step < WARM_UP_STEPS:
        return PEAK_LEARNING_RATE * (step + 1) / WARM_UP_STEPS
    return PEAK_LEARNING_RATE * (0.05 + 0.475 * (1 + math.cos(math.pi * step / steps)))


def loss_of(model: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def perplexity(model: torch.nn.Module, text: torch.Tensor) -> float:
    """Per byte, in windows that do not see each other."""
    losses = [loss_of(model, rows) for rows in batches(text, len(text) // WINDOW // 8, 8)]
    return math.exp(torch.stack(losses).mean())


def train(model: torch.nn.Module, text: torch.Tensor, steps: int, rows: int, log: list[dict]) -> None:
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  betas=(0.9, 0.95))  # fmt: skip
    start, recent = time.monotonic(), []
    for step, batch in enumerate(batches(text, steps, rows)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent.append(loss.item())
        if (step + 1) % 50 == 0 or step + 1 == steps:
            seconds = round(time.monotonic() - start)
            log.append({"step": step + 1, "loss": round(sum(recent) / len(recent), 4), "seconds": seconds})
            print(log[-1], flush=True)
            recent.clear()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--steps", type=int, default=650)
    parser.add_argument("--rows", type=int, default=4, help=f"windows of {WINDOW} bytes a step")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)

    sources = [standard_library(), *(package(name) for name in PACKAGES)]
    learnt, held_out = split(sources)
    text = tokens_of(learnt)
    print(f"{len(text)} bytes to learn, {len(held_out.encode())} held out", flush=True)

    settings = CONFIG | SHAPE | {"dtype": "bfloat16"}
    fields = {key: value for key, value in settings.items() if key not in ("architectures", "dtype")}
    model = transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5ForCausalLM.config_class(**fields)).float()
    log: list[dict] = []
    train(model, text, options.steps, options.rows, log)

    model = model.to(torch.bfloat16).eval()
    options.output.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(options.output)
    byte_tokenizer().save_pretrained(options.output)
    (options.output / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (options.output / "held_out.txt").write_text(held_out)
    record = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "transformers": transformers.__version__},
        "date": time.strftime("%Y-%m-%d"),
        "sources": [{"name": s.name, "version": s.version, "licence": s.licence, "documents": len(s.documents)}
                    for s in sources],
        "learnt_bytes": len(text),
        "seen_bytes": options.steps * options.rows * WINDOW,
        "held_out_bytes": len(held_out.encode()),
        "held_out_perplexity_per_byte": perplexity(model.float(), tokens_of(held_out)),
        "log": log,
    }  # fmt: skip
    (options.output / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"held-out perplexity {record['held_out_perplexity_per_byte']:.3f} per byte", flush=True)


if __name__ == "__main__":
    main()
