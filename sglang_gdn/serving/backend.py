"""The GDN layers of a served model: one operator call per layer and phase, on SGLang's own state pools."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.layers.attention.linear.gdn_backend import GDNAttnBackend
from sglang.srt.layers.attention.linear.utils import (
    LinearAttnBackends,
    LinearAttnKernelBackend,
    select_verify_intermediate_state_indices,
)
from torch import Tensor

from sglang_gdn import ops
from sglang_gdn.capability import PHASES, explain_phase
from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.stats import fallback

logger = logging.getLogger("sglang_gdn")


@dataclass(frozen=True)
class PrefillRows:
    """What the layers of one prefill batch share.

    Attributes:
        has_initial_state: ``[N]`` bool; False for a prompt that starts from nothing.
        track_slots: ``[N]`` int64 slot that receives the conv window at a chunk boundary, -1 for none; or None.
        track_lens: ``[N]`` tokens of the row before that boundary; or None.
    """

    has_initial_state: Tensor
    track_slots: Tensor | None = None
    track_lens: Tensor | None = None


class GdnTileBackend(GDNAttnBackend):
    """Replaces conv, gates, prefill, decode and verify of SGLang's GDN backend.

    Slots, snapshots and their schedule stay SGLang's: this class owns no state. What it cannot serve goes to the base
    class, counted and logged by ``sglang_gdn.stats.fallback``.
    """

    supports_mis = False
    requires_contiguous_prefill_state = False

    def __init__(self, model_runner: Any) -> None:
        # Otherwise SGLang may plan the checkpoints of another prefill kernel.
        triton = LinearAttnKernelBackend.TRITON
        model_runner.linear_attn_backends = LinearAttnBackends(decode=triton, prefill=triton, verify=triton)
        super().__init__(model_runner)
        pools = self.req_to_token_pool.mamba_pool.mamba_cache
        logger.info("gdn_tile: %s", describe_service(pools.conv[0][0], pools.temporal[0], model_runner.dtype))

    def init_forward_metadata(self, forward_batch: Any) -> None:
        super().init_forward_metadata(forward_batch)
        if forward_batch.extend_prefix_lens is not None:
            self.forward_metadata.prefill_rows = self._prefill_rows(forward_batch)

    def _init_prefill_conv_block_table(self, forward_batch: Any) -> None:
        self.forward_metadata.conv_block_table = None

    def _prefill_rows(self, forward_batch: Any) -> PrefillRows:
        metadata = self.forward_metadata
        has_initial_state = forward_batch.extend_prefix_lens > 0
        if not metadata.has_mamba_track_mask:
            return PrefillRows(has_initial_state)
        destinations = metadata.conv_states_mask_indices
        track_slots = destinations.new_full(has_initial_state.shape, -1)
        track_slots[metadata.mamba_track_mask_indices] = destinations
        return PrefillRows(has_initial_state, track_slots, forward_batch.mamba_track_aligned_lens())

    def forward_extend(
        self, layer: Any, forward_batch: Any, mixed_qkv: Tensor, a: Tensor, b: Tensor, **kwargs: Any
    ) -> Tensor:
        if mixed_qkv.shape[0] == 0:
            return _no_tokens(layer, mixed_qkv)
        if forward_batch.forward_mode.is_target_verify():
            return self._forward_verify(layer, forward_batch, mixed_qkv, a, b, **kwargs)
        metadata = self.forward_metadata
        rows = metadata.prefill_rows
        pools = self.req_to_token_pool.mamba2_layer_cache(layer.layer_id)
        track_state = None
        if metadata.has_mamba_track_mask and metadata.track_ssm_h_src.numel() > 0:
            track_state = torch.empty(
                (metadata.mamba_cache_indices.shape[0], *pools.temporal.shape[1:]),
                dtype=torch.float32,
                device=mixed_qkv.device,
            )
        out: Any = ops.gdn_prefill(
            mixed_qkv,
            a,
            b,
            **_layer_arguments(layer),
            conv_pool=pools.conv[0],
            ssm_pool=pools.temporal,
            query_start_loc=metadata.query_start_loc,
            cache_indices=metadata.mamba_cache_indices,
            has_initial_state=rows.has_initial_state,
            track_slots=rows.track_slots,
            track_lens=rows.track_lens,
            track_state=track_state,
            track_chunk_idx=None if track_state is None else metadata.track_chunk_idx,
            out=kwargs.get("linear_attn_output"),
        )
        if metadata.has_mamba_track_mask:
            self._track_mamba_state_extend(forward_batch, None, pools.temporal, metadata, h_track_buf=track_state)
        return out

    def forward_decode(
        self,
        layer: Any,
        forward_batch: Any,
        mixed_qkv: Tensor | tuple[Tensor, ...],
        a: Tensor,
        b: Tensor,
        **kwargs: Any,
    ) -> Tensor | tuple[Tensor, Tensor]:
        pools = self.req_to_token_pool.mamba2_layer_cache(layer.layer_id)
        if isinstance(mixed_qkv, tuple):
            fallback("gdn_decode", "SGLang fused the projection with the convolution")
        elif pools.replayssm_d is not None:
            fallback("gdn_decode", "ReplaySSM keeps the last tokens outside the state")
        elif mixed_qkv.shape[0] == 0:
            return _no_tokens(layer, mixed_qkv)
        else:
            cache_indices = self.forward_metadata.mamba_cache_indices
            out = ops.gdn_decode(
                mixed_qkv,
                a,
                b,
                **_layer_arguments(layer),
                conv_pool=pools.conv[0],
                ssm_pool=pools.temporal,
                cache_indices=cache_indices,
            )
            self._track_mamba_state_decode(forward_batch, pools.conv[0], pools.temporal, cache_indices, layer.layer_id)
            return out
        return super().forward_decode(layer, forward_batch, mixed_qkv, a, b, **kwargs)

    def _forward_verify(
        self, layer: Any, forward_batch: Any, mixed_qkv: Tensor, a: Tensor, b: Tensor, **kwargs: Any
    ) -> Tensor:
        metadata = self.forward_metadata
        pools = self.req_to_token_pool.mamba2_layer_cache(layer.layer_id)
        if pools.replayssm_d is not None or pools.replayssm_rawv is not None:
            fallback("gdn_verify", "ReplaySSM keeps draft tokens, not states")
        elif metadata.retrieve_parent_token is not None:
            fallback("gdn_verify", "draft trees")
        elif getattr(forward_batch.spec_info, "ragged_verify_layout", None) is not None:
            fallback("gdn_verify", "rows with different numbers of draft tokens")
        else:
            draft_tokens = forward_batch.spec_info.draft_token_num
            rows = mixed_qkv.shape[0] // draft_tokens
            cache_indices = metadata.mamba_cache_indices[:rows]
            draft_rows = select_verify_intermediate_state_indices(
                self.verify_intermediate_state_indices,
                forward_batch.req_pool_indices,
                cache_indices >= 0,
                self.req_to_token_pool.size,
            )
            per_row = (rows, draft_tokens)
            out = ops.gdn_verify(
                mixed_qkv.unflatten(0, per_row),
                a.unflatten(0, per_row),
                b.unflatten(0, per_row),
                **_layer_arguments(layer),
                conv_pool=pools.conv[0],
                ssm_pool=pools.temporal,
                cache_indices=cache_indices,
                intermediate_ssm=pools.intermediate_ssm,
                intermediate_conv_window=pools.intermediate_conv_window[0],
                intermediate_state_indices=draft_rows[:rows],
            )
            return out.flatten(0, 1).unsqueeze(0)
        return super().forward_extend(layer, forward_batch, mixed_qkv, a, b, **kwargs)


def _layer_arguments(layer: Any) -> dict[str, Any]:
    return {
        "conv_weight": layer.conv_weights,
        "conv_bias": layer.bias,
        "A_log": layer.A_log,
        "dt_bias": layer.dt_bias,
        "num_k_heads": layer.num_k_heads,
        "num_v_heads": layer.num_v_heads,
        "head_k_dim": layer.head_k_dim,
        "head_v_dim": layer.head_v_dim,
        "activation": layer.activation,
    }


def _no_tokens(layer: Any, mixed_qkv: Tensor) -> Tensor:
    return mixed_qkv.new_empty((1, 0, layer.num_v_heads, layer.head_v_dim))


def describe_service(conv_pool: Tensor, ssm_pool: Tensor, dtype: torch.dtype) -> str:
    """One line: the kernel of each phase, the dtypes and slot pitches of the pools.

    Args:
        conv_pool: ``[slots, D, W-1]`` of one layer.
        ssm_pool: ``[slots, HV, V, K]`` of one layer.
        dtype: of the activations.

    Raises:
        GdnServingError: prefill or decode has no kernel; the message lists the kernels and why each does not serve.
    """
    _, num_v_heads, head_v_dim, head_k_dim = ssm_pool.shape
    num_k_heads = (conv_pool.shape[1] - num_v_heads * head_v_dim) // (2 * head_k_dim)

    served = []
    for phase in PHASES:
        answer = explain_phase(
            phase,
            device=ssm_pool.device.type,
            act=_dtype_name(dtype),
            state=_dtype_name(ssm_pool.dtype),
            conv=_dtype_name(conv_pool.dtype),
            head_k_dim=head_k_dim,
            head_v_dim=head_v_dim,
            ratio=num_v_heads // num_k_heads,
            conv_width=conv_pool.shape[2] + 1,
        )
        if not answer.kernels and phase != "verify":
            raise GdnServingError(f"gdn_tile has no kernel for {phase}:\n{answer.reason}")
        served.append(f"{phase} {' + '.join(answer.kernels) or 'none'}")
    return (
        f"{', '.join(served)}; {num_k_heads}/{num_v_heads} heads of {head_k_dim}/{head_v_dim}, "
        f"activations {_dtype_name(dtype)}, conv state {_dtype_name(conv_pool.dtype)} pitch {conv_pool.stride(0)}, "
        f"ssm state {_dtype_name(ssm_pool.dtype)} pitch {ssm_pool.stride(0)} elements"
    )


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
