"""Writes checkpoints with seeded weights for the serving benchmark.

Shape G is where Gated DeltaNet dominates; G8 is less deep, and so is G48, which has 48 value heads; shape R has the
proportions of Qwen3.5-4B with a small vocabulary; ``tiny`` is for trying the benchmark on a CPU.

Weights that are random throughout have no sure opinion about the next token, and every near tie may fall the other way
in another correct implementation. Therefore the first GDN layer is built to remember: its keys are the tokens before,
its values the tokens, its query the current token, and the output head reads what it recalls. Such a model goes on with
what followed the last time, far ahead of any other token, and only as long as the states of that layer are right. All
other layers are random, and so weak that they do not drown it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import silu

SEED = 0
CONSTANT = 8.0  # what every embedding has in its first place
WEAK = 0.1
_G = {
    "hidden_size": 1024,
    "intermediate_size": 1024,
    "num_hidden_layers": 32,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "vocab_size": 16384,
}
SHAPES: dict[str, dict[str, Any]] = {
    "G": _G,
    "G8": {**_G, "num_hidden_layers": 8},
    "G48": {**_G, "num_hidden_layers": 8, "linear_num_value_heads": 48},
    "R": {
        "hidden_size": 2560,
        "intermediate_size": 9216,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "vocab_size": 16384,
    },
    "tiny": {
        "hidden_size": 256,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "vocab_size": 2048,
    },
}


def configuration(shape: str, dtype: str) -> dict[str, Any]:
    sizes = SHAPES[shape]
    layers = sizes["num_hidden_layers"]
    rotary_pairs = sizes["head_dim"] // 8
    width = rotary_pairs // 3
    height = (rotary_pairs - width) // 2
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        **sizes,
        "full_attention_interval": 4,
        "layer_types": ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)],
        "hidden_act": "silu",
        "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "partial_rotary_factor": 0.25,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [rotary_pairs - height - width, height, width],
            "mrope_interleaved": True,
        },
        "attention_bias": False,
        "attn_output_gate": True,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": dtype,
    }


def write(folder: Path, shape: str, dtype: str = "bfloat16", device: str = "cpu") -> int:
    """Writes ``config.json`` and the weights; returns the number of parameters."""
    folder.mkdir(parents=True, exist_ok=True)
    config = configuration(shape, dtype)
    generator = torch.Generator(device).manual_seed(SEED)
    weights = {
        name: weight.to(getattr(torch, dtype)).cpu().contiguous() for name, weight in _weights(config, generator)
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return sum(weight.numel() for weight in weights.values())


def _weights(config: dict[str, Any], generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head, heads, kv_heads = config["head_dim"], config["num_attention_heads"], config["num_key_value_heads"]
    key_heads, value_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    value_size = config["linear_value_head_dim"]
    key_dim, value_dim = key_heads * config["linear_key_head_dim"], value_heads * value_size
    channels, width = 2 * key_dim + value_dim, config["linear_conv_kernel_dim"]
    device = generator.device

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Tensor:
        return torch.randn(rows, columns, generator=generator, device=device) * (gain * columns**-0.5)

    def between(low: float, high: float, count: int) -> Tensor:
        return torch.empty(count, device=device).uniform_(low, high, generator=generator)

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, device=device)

    def reading_the_constant(rows: int, weight: float) -> Tensor:
        """Rows that give every token the same value."""
        rows_of_one = zeros(rows, hidden)
        rows_of_one[:, 0] = weight
        return rows_of_one

    embedding = torch.randn(vocab, hidden, generator=generator, device=device)
    embedding[:, 0] = CONSTANT
    keys, values = matrix(key_dim, hidden, 0.5), matrix(value_dim, hidden)
    keys[:, 0] = values[:, 0] = 0
    output = matrix(hidden, value_dim)
    recalled = silu(_normalise(embedding) @ values.T).unflatten(1, (value_heads, value_size))
    lm_head = _normalise(recalled).flatten(1) @ output.T
    taps = zeros(channels, width)
    taps[:, -1] = 1
    taps[key_dim : 2 * key_dim] = taps[key_dim : 2 * key_dim].roll(-1, dims=1)

    yield "model.embed_tokens.weight", embedding
    yield "lm_head.weight", _normalise(lm_head - lm_head.mean(0))
    yield "model.norm.weight", zeros(hidden)
    for i, kind in enumerate(config["layer_types"]):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", zeros(hidden)
        yield f"{layer}.post_attention_layernorm.weight", zeros(hidden)
        yield f"{layer}.mlp.gate_proj.weight", matrix(inner, hidden)
        yield f"{layer}.mlp.up_proj.weight", matrix(inner, hidden)
        yield f"{layer}.mlp.down_proj.weight", matrix(hidden, inner, WEAK)
        if kind == "full_attention":
            yield f"{layer}.self_attn.q_proj.weight", matrix(2 * heads * head, hidden)
            yield f"{layer}.self_attn.k_proj.weight", matrix(kv_heads * head, hidden)
            yield f"{layer}.self_attn.v_proj.weight", matrix(kv_heads * head, hidden)
            yield f"{layer}.self_attn.o_proj.weight", matrix(hidden, heads * head, WEAK)
            yield f"{layer}.self_attn.q_norm.weight", zeros(head)
            yield f"{layer}.self_attn.k_norm.weight", zeros(head)
            continue
        gdn = f"{layer}.linear_attn"
        yield f"{gdn}.norm.weight", torch.ones(value_size, device=device)
        if i == 0:
            yield f"{gdn}.in_proj_qkv.weight", torch.cat([keys, keys, values])
            yield f"{gdn}.in_proj_z.weight", reading_the_constant(value_dim, 0.5)
            yield f"{gdn}.in_proj_a.weight", zeros(value_heads, hidden)
            yield f"{gdn}.in_proj_b.weight", reading_the_constant(value_heads, 0.1)
            yield f"{gdn}.out_proj.weight", output
            yield f"{gdn}.conv1d.weight", taps.unsqueeze(1)
            yield f"{gdn}.A_log", zeros(value_heads)
            yield f"{gdn}.dt_bias", torch.linspace(-10, -6, value_heads, device=device)
        else:
            yield f"{gdn}.in_proj_qkv.weight", matrix(channels, hidden)
            yield f"{gdn}.in_proj_z.weight", matrix(value_dim, hidden)
            yield f"{gdn}.in_proj_a.weight", matrix(value_heads, hidden, 0.5)
            yield f"{gdn}.in_proj_b.weight", matrix(value_heads, hidden)
            yield f"{gdn}.out_proj.weight", matrix(hidden, value_dim, WEAK)
            yield f"{gdn}.conv1d.weight", matrix(channels, width).unsqueeze(1)
            yield f"{gdn}.A_log", between(0.5, 4.0, value_heads).log()
            yield f"{gdn}.dt_bias", between(-7.0, -1.0, value_heads)


def _normalise(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
