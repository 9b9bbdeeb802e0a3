"""Tiny random GDN hybrids in float32, and transformers as the oracle of what they say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import transformers

SEED = 1
VOCAB = 1024
OUTPUT_TOKENS = 16
# Two float32 implementations of one model differ by about 1e-5 in a logit; a choice closer than this proves nothing.
DECISIVE_MARGIN = 1e-3

_ROTARY_FACTOR = 0.5
_COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "full_attention_interval": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    # SGLang reads the first, transformers the second.
    "partial_rotary_factor": _ROTARY_FACTOR,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": _ROTARY_FACTOR,
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    },
    "attention_bias": False,
    "attn_output_gate": True,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "float32",
}
_EXPERTS = {
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}


def _heads(num_k_heads: int, num_v_heads: int, size: int) -> dict[str, int]:
    return {
        "linear_num_key_heads": num_k_heads,
        "linear_num_value_heads": num_v_heads,
        "linear_key_head_dim": size,
        "linear_value_head_dim": size,
    }


CONFIGS: dict[str, dict] = {
    "qwen3_5": {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        **_COMMON,
        **_heads(2, 6, 64),
    },
    "qwen3_next_moe": {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        **_COMMON,
        **_EXPERTS,
        **_heads(2, 4, 32),
        "decoder_sparse_step": 1,
        # transformers honours this list, SGLang does not.
        "mlp_only_layers": [],
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": _ROTARY_FACTOR},
    },
    "qwen3_5_moe": {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        **_COMMON,
        **_EXPERTS,
        **_heads(1, 2, 128),
    },
}


@dataclass(frozen=True)
class Sample:
    """A prompt and what the oracle continues it with."""

    prompt: list[int]
    output: list[int]


class Checkpoint:
    """A model folder that SGLang loads, and the same weights in transformers."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        config = CONFIGS[name]
        model_class = getattr(transformers, config["architectures"][0])
        fields = {key: value for key, value in config.items() if key not in ("architectures", "dtype")}
        torch.manual_seed(SEED)
        self._model = model_class(model_class.config_class(**fields)).float().eval()
        randomise(self._model)
        self._model.save_pretrained(folder)
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        self.continue_greedily = cache(self._continue_greedily)

    def _continue_greedily(self, prompt: tuple[int, ...], count: int) -> tuple[list[int], list[float]]:
        """Greedy tokens, and at each the distance between the best and the second logit."""
        answer = self._model.generate(
            torch.tensor([prompt]),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best, second = torch.cat(answer.logits).topk(2, dim=-1).values.unbind(-1)
        return answer.sequences[0, len(prompt) :].tolist(), (best - second).tolist()

    def decisive_output(self, prompt: list[int], count: int) -> list[int]:
        """The greedy tokens before the first that another float32 implementation might choose differently."""
        tokens, margins = self.continue_greedily(tuple(prompt), count)
        decisive = next((i for i, margin in enumerate(margins) if margin < DECISIVE_MARGIN), count)
        return tokens[:decisive]

    def sample(self, length: int, seed: int, start: list[int] | None = None) -> Sample:
        """The first decisive prompt of ``length`` tokens that begins with ``start``."""
        start = start or []
        generator = torch.Generator().manual_seed(seed * 10_000 + length)
        for _ in range(50):
            tail = torch.randint(3, VOCAB, (length - len(start),), generator=generator).tolist()
            output = self.decisive_output(start + tail, OUTPUT_TOKENS)
            if len(output) == OUTPUT_TOKENS and len(set(output)) > OUTPUT_TOKENS // 4:
                return Sample(start + tail, output)
        raise AssertionError(f"{self.name}: no decisive prompt of {length} tokens in 50 draws")


def randomise(model: torch.nn.Module) -> None:
    """Weights large enough that greedy text is not constant, gates that neither forget at once nor never."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.uniform_(0.5, 4.5).log_()
            elif name.endswith("dt_bias"):
                parameter.uniform_(-4.0, 0.0)
            elif parameter.dim() >= 2:
                parameter.normal_(0, 0.5 if "embed" in name else 0.08)
