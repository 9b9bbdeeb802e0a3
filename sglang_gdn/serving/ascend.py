"""The GDN layers of a model served on an Ascend NPU: our operators, in place, at the calls of SGLang's Ascend backend.

Never run on an NPU. SGLang keeps the windows of a slot there as ``[W-1, D]``, and before them one more row for each
draft token but one, so that accepting drafts is a shift of rows.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from sglang.srt.hardware_backend.npu.attention.ascend_gdn_backend import AscendGDNAttnBackend
from torch import Tensor

from sglang_gdn import ops
from sglang_gdn.serving import observe
from sglang_gdn.serving.backend import TilePrefill, describe_service, layer_arguments, no_tokens
from sglang_gdn.stats import fallback

logger = logging.getLogger("sglang_gdn")


class GdnTileAscendBackend(TilePrefill, AscendGDNAttnBackend):
    """Replaces conv, gates, prefill, decode and verify of SGLang's Ascend backend. States are read and written where
    they are; accepted drafts are committed by SGLang. What it cannot serve goes to the base class, counted and logged.
    """

    supports_mis = False

    def __init__(self, model_runner: Any) -> None:
        super().__init__(model_runner)
        pools = self.req_to_token_pool.mamba_pool.mamba_cache
        self._set_draft_rows(pools)
        windows = self._windows(pools.conv[0][0])
        logger.info("gdn_tile: %s", describe_service(windows, pools.temporal[0], model_runner.dtype))
        self._checks = observe.StateChecks(self._layer_states) if observe.StateChecks.asked_for() else None
        if model_runner.server_args.enable_metrics:
            observe.Metrics().start()

    def _set_draft_rows(self, pools: Any) -> None:
        states = getattr(pools, "intermediate_ssm", None)
        self._draft_rows = 0 if states is None else states.shape[2] - 1

    def _windows(self, conv_pool: Tensor) -> Tensor:
        """``[slots, D, W-1]`` of ``[slots, draft rows + W-1, D]``."""
        return conv_pool[:, self._draft_rows :].mT

    def _draft_windows(self, pools: Any) -> Tensor:
        """SGLang's buffer for the windows of drafts, which it does not read on an NPU, in the kernels' layout."""
        windows = pools.intermediate_conv_window[0]
        return windows.flatten(2).unflatten(2, windows.shape[:-3:-1]).mT

    def _pools_of(self, layer_id: int) -> tuple[Tensor, Tensor]:
        pools = self.req_to_token_pool.mamba2_layer_cache(layer_id)
        return self._windows(pools.conv[0]), pools.temporal

    def init_forward_metadata(self, forward_batch: Any) -> None:
        super().init_forward_metadata(forward_batch)
        if forward_batch.forward_mode.is_draft_extend_v2():
            return
        if forward_batch.extend_prefix_lens is not None:
            metadata = self.forward_metadata
            if metadata.has_mamba_track_mask and metadata.mamba_track_mask_indices is None:
                metadata.mamba_track_mask_indices = forward_batch.mamba_track_mask.nonzero(as_tuple=True)[0]
            metadata.prefill_rows = self._prefill_rows(forward_batch)
        self._observe(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        super().init_forward_metadata_out_graph(forward_batch, in_capture=in_capture)
        if not in_capture and not forward_batch.forward_mode.is_draft_extend_v2():
            self._observe(forward_batch)

    def forward_extend(
        self, layer: Any, forward_batch: Any, mixed_qkv: Tensor, a: Tensor, b: Tensor, **kwargs: Any
    ) -> Tensor:
        if mixed_qkv.shape[0] == 0:
            return no_tokens(layer, mixed_qkv)
        if forward_batch.forward_mode.is_target_verify():
            return self._forward_verify(layer, forward_batch, mixed_qkv, a, b, **kwargs)
        return self._forward_prefill(layer, mixed_qkv, a, b, kwargs.get("linear_attn_output"))

    def forward_decode(
        self, layer: Any, forward_batch: Any, mixed_qkv: Tensor, a: Tensor, b: Tensor, **kwargs: Any
    ) -> Tensor:
        if mixed_qkv.shape[0] == 0:
            return no_tokens(layer, mixed_qkv)
        windows, ssm_pool = self._pools_of(layer.layer_id)
        cache_indices = self.forward_metadata.mamba_cache_indices
        out: Any = ops.gdn_decode(
            mixed_qkv,
            a,
            b,
            **layer_arguments(layer),
            conv_pool=windows,
            ssm_pool=ssm_pool,
            cache_indices=cache_indices,
        )
        conv_pool = self.req_to_token_pool.mamba2_layer_cache(layer.layer_id).conv[0]
        self._track_mamba_state_decode(forward_batch, conv_pool, ssm_pool, cache_indices)
        return out

    def _forward_verify(
        self, layer: Any, forward_batch: Any, mixed_qkv: Tensor, a: Tensor, b: Tensor, **kwargs: Any
    ) -> Tensor:
        metadata = self.forward_metadata
        if metadata.retrieve_next_token is not None:
            fallback("gdn_verify", "draft trees")
            return super().forward_extend(layer, forward_batch, mixed_qkv, a, b, **kwargs)
        pools = self.req_to_token_pool.mamba2_layer_cache(layer.layer_id)
        drafts = forward_batch.spec_info.draft_token_num
        rows = min(mixed_qkv.shape[0] // drafts, metadata.mamba_cache_indices.shape[0])
        tokens = rows * drafts
        per_row = (rows, drafts)
        cache_indices = metadata.mamba_cache_indices[:rows]
        out = mixed_qkv.new_zeros((1, mixed_qkv.shape[0], layer.num_v_heads, layer.head_v_dim))
        ops.gdn_verify(
            mixed_qkv[:tokens].unflatten(0, per_row),
            a[:tokens].unflatten(0, per_row),
            b[:tokens].unflatten(0, per_row),
            **layer_arguments(layer),
            conv_pool=self._windows(pools.conv[0]),
            ssm_pool=pools.temporal,
            cache_indices=cache_indices,
            intermediate_ssm=pools.intermediate_ssm,
            intermediate_conv_window=self._draft_windows(pools),
            intermediate_state_indices=torch.arange(rows, dtype=torch.int32, device=mixed_qkv.device),
            out=out[0, :tokens].unflatten(0, per_row),
        )
        _append(pools.conv[0], cache_indices, mixed_qkv[:tokens].unflatten(0, per_row))
        return out


def _append(conv_pool: Tensor, cache_indices: Tensor, drafts: Tensor) -> None:
    """The inputs ``[rows, T_d, D]`` of drafts behind the rows of their slots, as SGLang's commit expects them. Rows of
    padding write to slot 0, which SGLang reserves."""
    slots = cache_indices.clamp(min=0).long()
    conv_pool[slots] = torch.cat((conv_pool[slots], drafts.to(conv_pool.dtype)), 1)[:, drafts.shape[1] :]
