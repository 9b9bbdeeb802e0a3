"""The GDN layers of a served model: one operator call per layer and phase, on SGLang's own state pools."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.layers.attention.linear.gdn_backend import GDNAttnBackend
from torch import Tensor

from sglang_gdn import ops
from sglang_gdn.capability import PHASES, explain_phase
from sglang_gdn.serving import compat, observe
from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.stats import fallback

logger = logging.getLogger("sglang_gdn")

LINE, _ = compat.select()
MAX_DRAFT_TOKENS = 16


@dataclass(frozen=True)
class Snapshots:
    """Where the rows of a prefill batch leave the states of an earlier depth for the prefix cache.

    Attributes:
        conv_slots: ``[N]`` int64 slot for the conv window, -1 for none.
        lens: ``[N]`` tokens of the row before that depth.
        chunks: ``[N]`` the same in chunks of the kernels, -1 for none.
        rows, ssm_slots: ``[M]`` int64, the rows that keep a state and the slot of each.
    """

    conv_slots: Tensor
    lens: Tensor
    chunks: Tensor
    rows: Tensor
    ssm_slots: Tensor


@dataclass(frozen=True)
class PrefillRows:
    """What the layers of one prefill batch share.

    Attributes:
        has_initial_state: ``[N]`` bool; False for a prompt that starts from nothing.
        snapshots: None if no row keeps one.
    """

    has_initial_state: Tensor
    snapshots: Snapshots | None


class GdnTileBackend(GDNAttnBackend):
    """Replaces conv, gates, prefill, decode and verify of SGLang's GDN backend.

    Slots, snapshots and their schedule stay SGLang's: this class owns no state. What it cannot serve goes to the base
    class, counted and logged by ``sglang_gdn.stats.fallback``. Between the metadata of a batch and its results, nothing
    waits for the device and nothing is read from it.
    """

    supports_mis = False
    requires_contiguous_prefill_state = False

    def __init__(self, model_runner: Any) -> None:
        LINE.prepare_runner(model_runner)
        super().__init__(model_runner)
        pools = self.req_to_token_pool.mamba_pool.mamba_cache
        logger.info("gdn_tile: %s", describe_service(pools.conv[0][0], pools.temporal[0], model_runner.dtype))
        self._checks = observe.StateChecks(self._layer_states) if observe.StateChecks.asked_for() else None
        if model_runner.server_args.enable_metrics:
            observe.Metrics().start()

    def init_forward_metadata(self, forward_batch: Any) -> None:
        super().init_forward_metadata(forward_batch)
        if forward_batch.extend_prefix_lens is not None:
            self.forward_metadata.prefill_rows = self._prefill_rows(forward_batch)
        self._observe(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        super().init_forward_metadata_out_graph(forward_batch, in_capture=in_capture)
        if not in_capture:
            self._observe(forward_batch)

    def _observe(self, forward_batch: Any) -> None:
        phase = observe.phase_of(forward_batch)
        live = observe.count(forward_batch, phase)
        if self._checks is not None:
            continued = self.forward_metadata.prefill_rows.has_initial_state if phase == "prefill" else None
            rids = getattr(forward_batch, "rids", None)
            self._checks.check(self.forward_metadata.mamba_cache_indices, live, rids, continued)

    def _layer_states(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        for layer in self.req_to_token_pool.mamba_map:
            pools = self.req_to_token_pool.mamba2_layer_cache(layer)
            yield layer, pools.conv[0], pools.temporal

    def _init_prefill_conv_block_table(self, forward_batch: Any) -> None:
        self.forward_metadata.conv_block_table = None

    def _init_track_conv_indices(self, *_: Any) -> None:
        """Only SGLang's own kernels need these, and those of the next method, which would wait for the device."""

    def _init_track_ssm_indices(self, *_: Any) -> tuple[None, ...]:
        return (None,) * LINE.track_index_tensors

    def _prefill_rows(self, forward_batch: Any) -> PrefillRows:
        metadata = self.forward_metadata
        has_initial_state = forward_batch.extend_prefix_lens > 0
        lens = LINE.track_lens(forward_batch) if metadata.has_mamba_track_mask else None
        if lens is None:
            return PrefillRows(has_initial_state, None)
        rows, slots = metadata.mamba_track_mask_indices, metadata.conv_states_mask_indices
        conv_slots = slots.new_full(lens.shape, -1)
        conv_slots[rows] = slots
        chunks = torch.where(conv_slots >= 0, lens // ops.CHUNK_SIZE, -1)
        return PrefillRows(has_initial_state, Snapshots(conv_slots, lens, chunks, rows, slots))

    @observe.nvtx_range
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
        tracking: dict[str, Any] = {}
        if rows.snapshots is not None:
            tracking = {
                "track_slots": rows.snapshots.conv_slots,
                "track_lens": rows.snapshots.lens,
                "track_chunk_idx": rows.snapshots.chunks,
                "track_state": torch.empty(
                    (metadata.mamba_cache_indices.shape[0], *pools.temporal.shape[1:]),
                    dtype=torch.float32,
                    device=mixed_qkv.device,
                ),
            }
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
            out=kwargs.get("linear_attn_output"),
            **tracking,
        )
        if rows.snapshots is not None:
            kept = tracking["track_state"][rows.snapshots.rows]
            pools.temporal[rows.snapshots.ssm_slots] = kept.to(pools.temporal.dtype)
        return out

    @observe.nvtx_range
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
        draft_tokens = forward_batch.spec_info.draft_token_num
        if pools.replayssm_d is not None or pools.replayssm_rawv is not None:
            fallback("gdn_verify", "ReplaySSM keeps draft tokens, not states")
        elif getattr(forward_batch.spec_info, "ragged_verify_layout", None) is not None:
            fallback("gdn_verify", "rows with different numbers of draft tokens")
        elif draft_tokens > MAX_DRAFT_TOKENS:
            fallback("gdn_verify", f"more than {MAX_DRAFT_TOKENS} draft tokens")
        else:
            rows = mixed_qkv.shape[0] // draft_tokens
            cache_indices = metadata.mamba_cache_indices[:rows]
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
                intermediate_state_indices=LINE.draft_rows(self, forward_batch, cache_indices)[:rows],
                parent_tokens=self._parent_tokens(layer, rows),
            )
            return out.flatten(0, 1).unsqueeze(0)
        return super().forward_extend(layer, forward_batch, mixed_qkv, a, b, **kwargs)

    def _parent_tokens(self, layer: Any, rows: int) -> Tensor | None:
        """``[rows, T_d]`` for a draft tree, None for a chain. The first layer computes it for all: under a graph, what
        links the tree changes with every replay."""
        metadata = self.forward_metadata
        if metadata.retrieve_parent_token is None:
            return None
        parents = metadata.retrieve_parent_token[:rows]
        if layer.layer_id == min(self.req_to_token_pool.mamba_map):
            parents.copy_(parents_of(metadata.retrieve_next_token[:rows], metadata.retrieve_next_sibling[:rows]))
        return parents


def parents_of(first_child: Tensor, next_sibling: Tensor) -> Tensor:
    """Parent of each token of draft trees.

    Args:
        first_child, next_sibling: ``[N, T_d]`` integer, an index into the row or -1 for none.

    Returns:
        ``[N, T_d]`` int64; -1 for the root.
    """
    tokens = first_child.shape[1]
    own = torch.arange(tokens, device=first_child.device).expand_as(first_child)
    nowhere = torch.full_like(first_child, tokens)

    def inverted(links: Tensor, unlinked: Tensor) -> Tensor:
        padded = torch.cat([unlinked, unlinked[:, :1]], dim=1)
        return padded.scatter(1, torch.where(links < 0, nowhere, links).long(), own)[:, :tokens]

    eldest = inverted(next_sibling, own)
    for _ in range((tokens - 1).bit_length()):
        eldest = eldest.gather(1, eldest)
    return inverted(first_child, torch.full_like(own, -1)).gather(1, eldest)


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
