"""A patched transformers model says what the unpatched one says, and its caches may change hands."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
import transformers

from compare import assert_bit_equal, assert_close, rel_l2
from serving.checkpoints import CONFIGS, IMAGE_TOKEN, randomise
from sglang_gdn.errors import GdnUnsupportedError, GdnValueError
from sglang_gdn.integrations.transformers import patch, unpatch
from sglang_gdn.stats import reset, stats

VOCAB = 1000
# Four float32 layers, each within 1e-5 of the float64 definition on both sides.
FLOAT32_LOGITS = 3e-5
MODELS = tuple(CONFIGS)


@cache
def unpatched(name: str) -> torch.nn.Module:
    config = CONFIGS[name]
    model_class = getattr(transformers, config["architectures"][0])
    fields = {key: value for key, value in config.items() if key not in ("architectures", "dtype")}
    torch.manual_seed(1)
    model = model_class(model_class.config_class(**fields)).float().eval()
    randomise(model)
    return model.requires_grad_(False)


@cache
def patched(name: str) -> torch.nn.Module:
    return patch(copy.deepcopy(unpatched(name)))


def prompt(length: int, rows: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def logits(model: torch.nn.Module, tokens: torch.Tensor, cache: transformers.Cache | None = None, **kwargs):
    use_cache = cache is not None
    if hasattr(model.model, "rope_deltas") and "pixel_values" not in kwargs:
        model.model.rope_deltas = None  # of the image before
    return model(input_ids=tokens, past_key_values=cache, use_cache=use_cache, **kwargs).logits


def empty_cache(model: torch.nn.Module) -> transformers.DynamicCache:
    return transformers.DynamicCache(config=model.config.get_text_config())


def generate(model: torch.nn.Module, tokens: torch.Tensor, count: int = 12, **kwargs) -> torch.Tensor:
    answer = model.generate(
        tokens, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0,
        **{"attention_mask": torch.ones_like(tokens), **kwargs},
    )  # fmt: skip
    return answer[:, tokens.shape[1] :]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("length", (1, 3, 63, 64, 65, 200))
def test_cold(name: str, length: int) -> None:
    tokens = prompt(length, rows=2)
    assert_close(logits(patched(name), tokens), logits(unpatched(name), tokens), FLOAT32_LOGITS)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_tokens_from_the_cache(name: str) -> None:
    tokens = prompt(70, rows=3)
    assert_bit_equal(generate(patched(name), tokens), generate(unpatched(name), tokens))


@pytest.mark.parametrize("name", MODELS)
def test_chunked(name: str) -> None:
    """Chunks of any size with a cache equal one forward without."""
    tokens, model = prompt(150, rows=2), patched(name)
    cache = empty_cache(model)
    pieces = [logits(model, piece, cache) for piece in tokens.split([1, 2, 64, 1, 1, 65, 16], dim=1)]
    assert_close(torch.cat(pieces, dim=1), logits(unpatched(name), tokens), FLOAT32_LOGITS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("side", ("left", "right"))
def test_padded_rows(name: str, side: str) -> None:
    tokens = prompt(100, rows=3)
    mask = torch.ones_like(tokens)
    for row, length in enumerate((100, 35, 98)):
        mask[row, : 100 - length] = 0
    if side == "right":
        mask = mask.flip(1)
    wanted = logits(unpatched(name), tokens, attention_mask=mask)
    actual = logits(patched(name), tokens, attention_mask=mask)
    assert_close(actual[mask.bool()], wanted[mask.bool()], FLOAT32_LOGITS)
    if side == "left":
        answers = [generate(model, tokens, attention_mask=mask) for model in (patched(name), unpatched(name))]
        assert_bit_equal(*answers)


def test_padding_on_the_left_does_not_change_a_row() -> None:
    tokens, model = prompt(40), patched("qwen3_5")
    padded = torch.cat([torch.full((1, 25), 7), tokens], dim=1)
    mask = torch.cat([torch.zeros(1, 25, dtype=torch.long), torch.ones_like(tokens)], dim=1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    actual = logits(model, padded, attention_mask=mask, position_ids=positions)
    assert_close(actual[:, 25:], logits(model, tokens), FLOAT32_LOGITS)


@pytest.mark.parametrize("first", ("patched", "unpatched"))
@pytest.mark.parametrize("length", (2, 90))
def test_a_cache_changes_hands(first: str, length: int) -> None:
    tokens, name = prompt(length + 40, rows=2), "qwen3_5"
    models = [patched(name), unpatched(name)]
    if first == "unpatched":
        models.reverse()
    cache = empty_cache(models[0])
    pieces = tokens.split([length, 1, 1, 20, 1, 17], dim=1)
    actual = [logits(models[i % 2], piece, cache) for i, piece in enumerate(pieces)]
    assert_close(torch.cat(actual, dim=1), logits(unpatched(name), tokens), FLOAT32_LOGITS)


def test_a_cache_is_reset() -> None:
    tokens, model = prompt(70), patched("qwen3_5")
    cache = transformers.StaticCache(model.config, max_cache_len=128)
    before = logits(model, tokens, cache)
    cache.reset()
    assert_bit_equal(logits(model, tokens, cache), before)


def test_beam_search() -> None:
    tokens = prompt(30, rows=2)
    answers = [generate(model("qwen3_5"), tokens, num_beams=3) for model in (patched, unpatched)]
    assert_bit_equal(*answers)


def test_image() -> None:
    name = "qwen3_5_vision"
    patches = torch.randn(16, 3 * 2 * 16 * 16, generator=torch.Generator().manual_seed(1))
    tokens = torch.cat([prompt(70), torch.full((1, 4), IMAGE_TOKEN), prompt(5, seed=1)], dim=1)
    inputs = {
        "pixel_values": patches,
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "mm_token_type_ids": (tokens == IMAGE_TOKEN).int(),
    }
    wanted = logits(unpatched(name), tokens, **inputs)
    assert_close(logits(patched(name), tokens, **inputs), wanted, FLOAT32_LOGITS)
    assert_bit_equal(*(generate(model(name), tokens, **inputs) for model in (patched, unpatched)))


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_in_bfloat16_is_as_close_to_float32_as_unpatched(name: str) -> None:
    layer = next(m for n, m in unpatched(name).named_modules() if n.endswith("layers.0.linear_attn"))
    x = torch.randn(2, 200, layer.hidden_size, generator=torch.Generator().manual_seed(1)).bfloat16()
    rounded = copy.deepcopy(layer).bfloat16()
    wanted = copy.deepcopy(rounded).float()(x.float())
    unpatched_error = rel_l2(rounded(x), wanted)
    assert rel_l2(patch(rounded)(x), wanted) <= unpatched_error


def test_a_model_in_bfloat16_is_as_close_to_float32_as_unpatched() -> None:
    """Without experts: a rounding that sends a token to another expert says nothing about a kernel."""
    tokens, half = prompt(200, rows=2), copy.deepcopy(unpatched("qwen3_5")).bfloat16()
    wanted = logits(unpatched("qwen3_5"), tokens)
    unpatched_error = rel_l2(logits(half, tokens), wanted)
    assert rel_l2(logits(patch(half), tokens), wanted) <= 1.1 * unpatched_error


def test_packed_rows_start_from_zeros() -> None:
    layer = patched("qwen3_5").get_submodule("model.layers.0.linear_attn")
    x = torch.randn(1, 100, layer.hidden_size, generator=torch.Generator().manual_seed(1))
    packed = layer(x, cu_seq_lens_q=torch.tensor([0, 30, 31, 100], dtype=torch.int32))
    alone = torch.cat([layer(row) for row in x.split([30, 1, 69], dim=1)], dim=1)
    assert_close(packed, alone, FLOAT32_LOGITS)


def test_only_our_operators_ran_and_unpatch_stops_them() -> None:
    model, tokens = copy.deepcopy(unpatched("qwen3_next_moe")), prompt(70)
    assert patch(patch(model)) is model
    reset()
    generate(model, tokens, count=5)
    assert stats()["calls"] == {"gdn_prefill/cpu": 3, "gdn_decode/cpu": 12}
    assert stats()["fallbacks"] == {}
    assert unpatch(model) is model
    reset()
    assert_bit_equal(logits(model, tokens), logits(unpatched("qwen3_next_moe"), tokens))
    assert stats()["calls"] == {}


def test_refusals() -> None:
    with pytest.raises(GdnUnsupportedError, match=r"model must have layers of .*; got Linear"):
        patch(torch.nn.Linear(1, 1))
    with torch.device("meta"):
        offloaded = transformers.Qwen3_5ForCausalLM(unpatched("qwen3_5").config)
    with pytest.raises(GdnUnsupportedError, match="model must hold the weights of its GDN layers on a device"):
        patch(offloaded)

    model, tokens = patched("qwen3_5"), prompt(10, rows=2)
    cache = empty_cache(model)
    logits(model, tokens, cache)
    with pytest.raises(GdnValueError, match="cache_params must hold 1 rows; got 2"):
        logits(model, tokens[:1], cache)
    layer = model.get_submodule("model.layers.0.linear_attn")
    x = torch.randn(1, 10, layer.hidden_size)
    with pytest.raises(GdnUnsupportedError, match="cu_seq_lens_q must be None with a cache"):
        layer(x, cache_params=cache, cu_seq_lens_q=torch.tensor([0, 4, 10]))
    recording = empty_cache(model)
    recording.layers[0].activate_past_recording()
    with pytest.raises(GdnUnsupportedError, match=r"cache_params must not record past states"):
        logits(model, tokens, recording)
    with pytest.raises(GdnUnsupportedError, match=r"inference only; use torch\.no_grad"):
        layer(x.requires_grad_())
