"""Writes a small Gated DeltaNet hybrid with random weights: ``python examples/make_checkpoint.py FOLDER``.

Qwen3.5 text architecture, three GDN layers to one softmax layer, GDN heads of the real size (128), everything else
tiny. The tokenizer maps one byte to one token. The output rows of unprintable bytes and special tokens are zero, so
that whatever the model says can be printed and two texts are equal exactly when their tokens are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3_5ForCausalLM

SEED = 0
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PRINTABLE = slice(ord(" "), ord("~") + 1)
PARTIAL_ROTARY_FACTOR = 0.5
DECAY_RATES = (0.002, 0.2)  # slow enough that the answer depends on the whole prompt

CONFIG = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "vocab_size": 320,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "full_attention_interval": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    # SGLang reads the first, transformers the second.
    "partial_rotary_factor": PARTIAL_ROTARY_FACTOR,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": PARTIAL_ROTARY_FACTOR,
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    },
    "attention_bias": False,
    "attn_output_gate": True,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "mamba_ssm_dtype": "float32",
    "bos_token_id": 256,
    "eos_token_id": 258,
    "dtype": "float32",
}

CHAT_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if loop.first and tools %}
{{- 'Tools:\n' }}
{%- for tool in tools %}{{- tool | tojson }}{{- '\n' }}{%- endfor %}
{%- endif %}
{{- message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""


def byte_symbols() -> list[str]:
    """The character by which byte-level tokenizers write each byte: itself if it shows, else one from U+0100 on."""
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    vocab = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIAL_TOKENS[0],
        pad_token=SPECIAL_TOKENS[0],
        eos_token=SPECIAL_TOKENS[2],
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONFIG["max_position_embeddings"],
    )


def random_model() -> Qwen3_5ForCausalLM:
    settings = {key: value for key, value in CONFIG.items() if key not in ("architectures", "dtype")}
    model = Qwen3_5ForCausalLM(Qwen3_5ForCausalLM.config_class(**settings)).float().eval()
    random = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.uniform_(*DECAY_RATES, generator=random).log_()
            elif name.endswith("dt_bias"):
                parameter.uniform_(-1, 1, generator=random)
            elif parameter.ndim >= 2:
                parameter.normal_(0, 0.5 if "embed" in name else 0.08, generator=random)
        printable_rows = model.lm_head.weight[PRINTABLE].clone()
        model.lm_head.weight.zero_()
        model.lm_head.weight[PRINTABLE] = printable_rows
    return model


def write_checkpoint(folder: Path) -> None:
    random_model().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]))
