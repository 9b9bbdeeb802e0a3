"""``patch(model)``: the Gated DeltaNet layers of a transformers model run on ``sglang_gdn.ops``.

Everything between the projections of a layer and its gated norm is ours; the rest of the model is transformers'. States
stay in transformers' cache, so that ``generate``, beam search, ``cache.reset()`` and chunked prefill work as before,
and a cache may change hands between a patched and an unpatched model.

A cache layer holds ``conv_states`` ``[B, D, W-1]`` (transformers' own have a column more, which no later token reads)
and ``recurrent_states`` ``[B, HV, K, V]`` float32 with the strides of ``[B, HV, V, K]``.
"""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from sglang_gdn import ops
from sglang_gdn.errors import GdnUnsupportedError, GdnValueError

__all__ = ["patch", "unpatch"]

_LAYERS = {"Qwen3NextGatedDeltaNet", "Qwen3_5GatedDeltaNet", "Qwen3_5MoeGatedDeltaNet"}

# The gated norm makes some ten passes over its input; so many rows of it stay in a core's cache meanwhile.
_CACHED_NORM_ROWS = 512

Model = TypeVar("Model", bound=nn.Module)


def patch(model: Model, kernels: Any = ops) -> Model:
    """Makes the GDN layers of Qwen3-Next and Qwen3.5 models (dense, with experts, vision-language) use our operators.

    Inference only. Batches padded on either side give what the unpatched model gives: padded tokens are zeroed before
    the projections. Rows packed into one (``cu_seq_lens_q``) start from zeros each, which needs a call without a cache.

    Args:
        model: a transformers model, or any module that contains one. Patching twice is the same as once.
        kernels: what has the ``gdn_prefill`` and ``gdn_decode`` that are called; ours unless another is compared.

    Returns:
        ``model``, changed in place.

    Raises:
        GdnUnsupportedError: the model has no such layers, or parts of one are offloaded. While running: the cache
            records past states (assisted generation), rows are packed with a cache, or inputs require a gradient.
        GdnNoKernelError: while running, no kernel is built for the model's heads, dtypes or device.
    """
    layers = gdn_layers(model)
    if not layers:
        raise _refusal("model", f"have layers of {', '.join(sorted(_LAYERS))}", type(model).__name__)
    for name, layer in layers.items():
        if any(parameter.is_meta for parameter in layer.parameters()):
            raise _refusal("model", "hold the weights of its GDN layers on a device", f"offloaded ones in {name}")
    for layer in layers.values():
        layer.forward = MethodType(partial(_forward, kernels), layer)
    return model


def unpatch(model: Model) -> Model:
    """Undoes ``patch``; the model's caches go on working."""
    for layer in gdn_layers(model).values():
        if getattr(getattr(layer.forward, "__func__", None), "func", None) is _forward:
            del layer.forward
    return model


def gdn_layers(model: nn.Module) -> dict[str, Any]:
    """The layers that ``patch`` changes, by name; ``""`` is ``model`` itself."""
    return {
        name: module
        for name, module in model.named_modules()
        if any(base.__name__ in _LAYERS for base in type(module).__mro__)
    }


def _refusal(argument: str, rule: str, got: str) -> GdnUnsupportedError:
    op = "integrations.transformers"
    return GdnUnsupportedError(f"{op}: {argument} must {rule}; got {got}", op, argument)


class _States(NamedTuple):
    conv_pool: Tensor
    ssm_pool: Tensor
    continues: bool


def _forward(
    kernels: Any, layer: Any, hidden_states: Tensor, cache_params: Any = None, attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:  # fmt: skip
    """``forward`` of a GDN layer: ``[B, T, hidden size]`` in and out."""
    if attention_mask is not None:
        hidden_states = (hidden_states * attention_mask[:, :, None]).to(hidden_states.dtype)
    batch, tokens = hidden_states.shape[:2]
    mixed_qkv, z, b, a = (part.flatten(0, 1) for part in _project(layer, hidden_states))
    query_start_loc = kwargs.get("cu_seq_lens_q")
    if query_start_loc is None:
        query_start_loc = torch.arange(batch + 1, dtype=torch.int32, device=mixed_qkv.device) * tokens
    elif cache_params is not None:
        raise _refusal("cu_seq_lens_q", "be None with a cache", "packed rows")
    rows = query_start_loc.shape[0] - 1
    states = (
        _states_of(layer, mixed_qkv, rows)
        if cache_params is None
        else _cached_states(layer, cache_params, mixed_qkv, rows)
    )
    arguments = {
        "conv_weight": layer.conv1d.weight.squeeze(1),
        "conv_bias": layer.conv1d.bias,
        "A_log": layer.A_log,
        "dt_bias": layer.dt_bias,
        "num_k_heads": layer.num_k_heads,
        "num_v_heads": layer.num_v_heads,
        "head_k_dim": layer.head_k_dim,
        "head_v_dim": layer.head_v_dim,
        "conv_pool": states.conv_pool,
        "ssm_pool": states.ssm_pool,
        "cache_indices": torch.arange(rows, dtype=torch.int32, device=mixed_qkv.device),
        "activation": layer.activation,
    }
    if states.continues and tokens == 1:
        o = kernels.gdn_decode(mixed_qkv, a, b, **arguments)
    else:
        continues = torch.full((rows,), states.continues, device=mixed_qkv.device)
        prefill = kernels.gdn_prefill(
            mixed_qkv, a, b, query_start_loc=query_start_loc, has_initial_state=continues, **arguments
        )
        assert isinstance(prefill, Tensor)
        o = prefill
    if cache_params is not None:
        cache_params.layers[layer.layer_idx].has_previous_state[0] = True
    o, z = o.view(-1, layer.head_v_dim), z.reshape(-1, layer.head_v_dim)
    rows_at_a_time = _CACHED_NORM_ROWS if o.is_cpu else len(o)
    for part, gate in zip(o.split(rows_at_a_time), z.split(rows_at_a_time), strict=True):
        part.copy_(layer.norm(part, gate))
    return layer.out_proj(o.view(batch, tokens, -1))


def _project(layer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mixed_qkv ``[B, T, D]``, z ``[B, T, HV*V]`` or ``[B, T, HV, V]``, b and a ``[B, T, HV]``."""
    if hasattr(layer, "in_proj_qkv"):
        return layer.in_proj_qkv(x), layer.in_proj_z(x), layer.in_proj_b(x), layer.in_proj_a(x)
    q, k, v, z, b, a = layer.fix_query_key_value_ordering(layer.in_proj_qkvz(x), layer.in_proj_ba(x))
    return torch.cat([part.flatten(2) for part in (q, k, v)], dim=-1), z, b, a


def _states_of(layer: Any, mixed_qkv: Tensor, rows: int) -> _States:
    """Uninitialised states that no row continues."""
    return _States(
        mixed_qkv.new_empty((rows, layer.conv_dim, layer.conv_kernel_size - 1)),
        mixed_qkv.new_empty((rows, layer.num_v_heads, layer.head_v_dim, layer.head_k_dim), dtype=torch.float32),
        continues=False,
    )


def _cached_states(layer: Any, cache: Any, mixed_qkv: Tensor, rows: int) -> _States:
    """The pools that a cache layer holds, brought into our layout if transformers wrote or reordered them."""
    held = cache.layers[layer.layer_idx]
    if held.record_past:
        raise _refusal("cache_params", "not record past states (assisted generation)", "a cache that does")
    if not held.is_recurrent_states_initialized[0]:
        fresh = _states_of(layer, mixed_qkv, rows)
        held.lazy_initialization(conv_states=fresh.conv_pool)
        held.lazy_initialization(recurrent_states=fresh.ssm_pool.transpose(-1, -2))
    window = layer.conv_kernel_size - 1
    conv_pool, ssm_pool = held.conv_states[0], held.recurrent_states[0].transpose(-1, -2)
    if conv_pool.shape[0] != rows:
        raise GdnValueError(
            f"integrations.transformers: cache_params must hold {rows} rows; got {conv_pool.shape[0]}",
            "integrations.transformers", "cache_params",
        )  # fmt: skip
    if conv_pool.shape[2] != window or not conv_pool.is_contiguous():
        conv_pool = held.conv_states[0] = conv_pool[..., -window:].contiguous()
        held.conv_kernel_size[0] = window
    if not ssm_pool.is_contiguous():
        ssm_pool = ssm_pool.contiguous()
        held.recurrent_states[0] = ssm_pool.transpose(-1, -2)
    return _States(conv_pool, ssm_pool, held.has_previous_state[0])
