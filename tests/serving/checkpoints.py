"""Tiny random GDN hybrids in float32, and transformers as the oracle of what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import transformers
from PIL.Image import Image
from tokenizers import Tokenizer, models

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

IMAGE_TOKEN, VISION_START, VISION_END = 1000, 1002, 1003
CONFIGS["qwen3_5_vision"] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "image_token_id": IMAGE_TOKEN,
    "video_token_id": 1001,
    "vision_start_token_id": VISION_START,
    "vision_end_token_id": VISION_END,
    "tie_word_embeddings": False,
    "dtype": "float32",
    "text_config": {key: value for key, value in CONFIGS["qwen3_5"].items() if key != "architectures"},
    "vision_config": {
        "model_type": "qwen3_5_vision",
        "depth": 2,
        "hidden_size": 64,
        "hidden_act": "gelu_pytorch_tanh",
        "intermediate_size": 128,
        "num_heads": 2,
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 128,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [],
    },
}


@dataclass(frozen=True)
class Sample:
    """A prompt and what the oracle continues it with."""

    prompt: list[int]
    output: list[int]


@contextmanager
def one_thread() -> Iterator[None]:
    """The oracle shares the cores with a server; threads that wait for each other would spin."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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

    @one_thread()
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


class VisionCheckpoint(Checkpoint):
    """A vision-language model with its processor; its tokenizer knows the vision tokens and nothing else."""

    def __init__(self, folder: Path) -> None:
        super().__init__("qwen3_5_vision", folder)
        names = {IMAGE_TOKEN: "<|image_pad|>", 1001: "<|video_pad|>", VISION_START: "<|vision_start|>"}
        names[VISION_END] = "<|vision_end|>"
        words = {names.get(token, f"t{token}"): token for token in range(VOCAB)}
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="t0")),
            unk_token="t0",
            pad_token="t0",
            eos_token="t2",
            additional_special_tokens=list(names.values()),
        )
        patches = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}
        self._images = transformers.Qwen2VLImageProcessor(
            **patches, size={"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
        )
        transformers.Qwen3VLProcessor(
            image_processor=self._images,
            tokenizer=tokenizer,
            video_processor=transformers.Qwen3VLVideoProcessor(**patches),
        ).save_pretrained(folder)

    @one_thread()
    def output_with_image(self, before: list[int], image: Image, after: list[int]) -> list[int]:
        """Greedy tokens after ``before``, the image and ``after``."""
        features = self._images(images=[image], return_tensors="pt")
        image_tokens = int(features.image_grid_thw.prod()) // 4
        tokens = torch.tensor([[*before, VISION_START, *[IMAGE_TOKEN] * image_tokens, VISION_END, *after]])
        answer = self._model.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            mm_token_type_ids=(tokens == IMAGE_TOKEN).int(),
            pixel_values=features.pixel_values,
            image_grid_thw=features.image_grid_thw,
            max_new_tokens=OUTPUT_TOKENS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        return answer[0, tokens.shape[1] :].tolist()


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
