"""The GDN layers of a served model: one operator call per layer and phase, on SGLang's own state pools."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.layers.attention.linear.gdn_backend import GDNAttnBackend
from torch import Tensor

from sglang_gdn import context_parallel, ops
from sglang_gdn.capability import PHASES, explain, explain_phase
from sglang_gdn.serving import compat, observe
from sglang_gdn.serving.drafts import parents_of, record_in
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

    @classmethod
    def of(cls, lens: Tensor, rows: Tensor, slots: Tensor) -> Snapshots:
        """Of the ``rows``, to one of ``slots`` each; ``lens`` as in the attributes."""
        conv_slots = slots.new_full(lens.shape, -1)
        conv_slots[rows] = slots
        return cls(conv_slots, lens, torch.where(conv_slots >= 0, lens // ops.CHUNK_SIZE, -1), rows, slots)

    def tracking(self, ssm_pool: Tensor) -> dict[str, Any]:
        """The arguments of ``gdn_prefill``; ``track_state`` is what ``store`` takes."""
        shape = (self.lens.shape[0], *ssm_pool.shape[1:])
        return {
            "track_slots": self.conv_slots,
            "track_lens": self.lens,
            "track_chunk_idx": self.chunks,
            "track_state": torch.empty(shape, dtype=torch.float32, device=ssm_pool.device),
        }

    def store(self, track_state: Tensor, ssm_pool: Tensor) -> None:
        ssm_pool[self.ssm_slots] = track_state[self.rows].to(ssm_pool.dtype)


@dataclass(frozen=True)
class PrefillRows:
    """What the layers of one prefill batch share.

    Attributes:
        has_initial_state: ``[N]`` bool; False for a prompt that starts from nothing.
        snapshots: None if no row keeps one.
    """

    has_initial_state: Tensor
    snapshots: Snapshots | None


@dataclass(frozen=True)
class Projections:
    """What a layer hands over instead of ``mixed_qkv`` while decoding, to be normalised and gated in the same launch.

    Attributes:
        qkvz, ba, layout: as in ``gdn_decode``.
        norm: SGLang's gated RMSNorm of the layer.
    """

    qkvz: Tensor
    ba: Tensor
    layout: str
    norm: Any

    def inputs(self) -> dict[str, Any]:
        return {
            "qkvz": self.qkvz,
            "ba": self.ba,
            "projection_layout": self.layout,
            "norm_weight": self.norm.weight,
            "norm_eps": self.norm.eps,
            "norm_activation": "sigmoid" if self.norm.activation == "sigmoid" else "silu",
        }


class TilePrefill:
    """What prefills and plans batches on any device; for a class of SGLang's that plans its own metadata."""

    forward_metadata: Any
    req_to_token_pool: Any
    _checks: observe.StateChecks | None

    def _pools_of(self, layer_id: int) -> tuple[Tensor, Tensor]:
        """Windows ``[slots, D, W-1]`` and states of a layer."""
        pools = self.req_to_token_pool.mamba2_layer_cache(layer_id)
        return pools.conv[0], pools.temporal

    def _observe(self, forward_batch: Any) -> None:
        phase = observe.phase_of(forward_batch)
        live = observe.count(forward_batch, phase)
        if self._checks is not None:
            continued = self.forward_metadata.prefill_rows.has_initial_state if phase == "prefill" else None
            rids = getattr(forward_batch, "rids", None)
            self._checks.check(self.forward_metadata.mamba_cache_indices, live, rids, continued)

    def _layer_states(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        for layer in self.req_to_token_pool.mamba_map:
            yield layer, *self._pools_of(layer)

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
        return PrefillRows(has_initial_state, Snapshots.of(lens, rows, slots))

    def _forward_prefill(self, layer: Any, mixed_qkv: Tensor, a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
        metadata = self.forward_metadata
        rows = metadata.prefill_rows
        conv_pool, ssm_pool = self._pools_of(layer.layer_id)
        tracking: dict[str, Any] = {} if rows.snapshots is None else rows.snapshots.tracking(ssm_pool)
        o: Any = ops.gdn_prefill(
            mixed_qkv,
            a,
            b,
            **layer_arguments(layer),
            conv_pool=conv_pool,
            ssm_pool=ssm_pool,
            query_start_loc=metadata.query_start_loc,
            cache_indices=metadata.mamba_cache_indices,
            has_initial_state=rows.has_initial_state,
            out=out,
            **tracking,
        )
        if rows.snapshots is not None:
            rows.snapshots.store(tracking["track_state"], ssm_pool)
        return o


class GdnTileBackend(TilePrefill, GDNAttnBackend):
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
        warm_up(pools.conv[0][0], pools.temporal[0], model_runner.dtype)
        self.decodes_whole_layers = getattr(pools, "replayssm_d", None) is None
        self._record = self._record_of_drafts(pools, model_runner.dtype)
        self._checks = observe.StateChecks(self._layer_states) if observe.StateChecks.asked_for() else None
        if model_runner.server_args.enable_deterministic_inference:
            context_parallel.forbid()
        if model_runner.server_args.enable_metrics:
            observe.Metrics().start()

    def init_forward_metadata(self, forward_batch: Any) -> None:
        super().init_forward_metadata(forward_batch)
        if forward_batch.extend_prefix_lens is not None:
            self.forward_metadata.prefill_rows = self._prefill_rows(forward_batch)
        self._plan_drafts(forward_batch)
        self._observe(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        super().init_forward_metadata_out_graph(forward_batch, in_capture=in_capture)
        self._plan_drafts(forward_batch)
        if not in_capture:
            self._observe(forward_batch)

    def _init_prefill_conv_block_table(self, forward_batch: Any) -> None:
        self.forward_metadata.conv_block_table = None

    @observe.nvtx_range
    def forward_extend(
        self, layer: Any, forward_batch: Any, mixed_qkv: Tensor, a: Tensor, b: Tensor, **kwargs: Any
    ) -> Tensor:
        if mixed_qkv.shape[0] == 0:
            return no_tokens(layer, mixed_qkv)
        if forward_batch.forward_mode.is_target_verify():
            return self._forward_verify(layer, forward_batch, mixed_qkv, a, b, **kwargs)
        return self._forward_prefill(layer, mixed_qkv, a, b, kwargs.get("linear_attn_output"))

    @observe.nvtx_range
    def forward_decode(
        self,
        layer: Any,
        forward_batch: Any,
        mixed_qkv: Tensor | tuple[Tensor, ...] | Projections,
        a: Tensor,
        b: Tensor,
        **kwargs: Any,
    ) -> Tensor | tuple[Tensor, Tensor]:
        pools = self.req_to_token_pool.mamba2_layer_cache(layer.layer_id)
        if pools.replayssm_d is not None:
            fallback("gdn_decode", "ReplaySSM keeps the last tokens outside the state")
            return super().forward_decode(layer, forward_batch, mixed_qkv, a, b, **kwargs)
        inputs: dict[str, Any]
        z = None
        if isinstance(mixed_qkv, Projections):
            projected, inputs = mixed_qkv.qkvz, mixed_qkv.inputs()
        elif isinstance(mixed_qkv, tuple):
            projected, ba = mixed_qkv
            inputs = {"qkvz": projected, "ba": ba, "projection_layout": "contiguous"}
            z = _gate_columns(layer, projected)
        else:
            projected = mixed_qkv
            inputs = {"mixed_qkv": projected, "a": a, "b": b}
        if projected.shape[0] == 0:
            out = no_tokens(layer, projected)
        else:
            cache_indices = self.forward_metadata.mamba_cache_indices
            out = ops.gdn_decode(
                **inputs,
                **layer_arguments(layer),
                conv_pool=pools.conv[0],
                ssm_pool=pools.temporal,
                cache_indices=cache_indices,
            )
            self._track_mamba_state_decode(forward_batch, pools.conv[0], pools.temporal, cache_indices, layer.layer_id)
        return out if z is None else (out, z)

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
            record = metadata.draft_record
            if record is None:
                kept = {
                    "intermediate_ssm": pools.intermediate_ssm,
                    "intermediate_conv_window": pools.intermediate_conv_window[0],
                    "intermediate_state_indices": LINE.draft_rows(self, forward_batch, cache_indices)[:rows],
                }
            else:
                kept = {"record": record.layer(self.req_to_token_pool.mamba_map[layer.layer_id])}
            out = ops.gdn_verify(
                mixed_qkv.unflatten(0, per_row),
                a.unflatten(0, per_row),
                b.unflatten(0, per_row),
                **layer_arguments(layer),
                conv_pool=pools.conv[0],
                ssm_pool=pools.temporal,
                cache_indices=cache_indices,
                parent_tokens=self._parent_tokens(layer, rows),
                **kept,
            )
            return out.flatten(0, 1).unsqueeze(0)
        return super().forward_extend(layer, forward_batch, mixed_qkv, a, b, **kwargs)

    def _record_of_drafts(self, pools: Any, dtype: torch.dtype) -> ops.DraftRecord | None:
        """Of all layers; None if SGLang commits drafts in its own way, or no kernel takes a record."""
        states = getattr(pools, "intermediate_ssm", None)
        if states is None or pools.replayssm_d is not None or not LINE.commits_at_once(self.req_to_token_pool):
            return None
        model = _specialization(pools.conv[0][0], pools.temporal[0], dtype)
        if explain("gdn_verify", **model, record=True).kernel is None or explain("gdn_fold", **model).kernel is None:
            return None
        return record_in(states, **_heads_of(pools.conv[0][0], pools.temporal[0]), conv_dtype=pools.conv[0].dtype)

    def _plan_drafts(self, forward_batch: Any) -> None:
        """``draft_record`` of the metadata: all layers, as many tokens as the batch drafts; None where the states after
        each token are stored. A replayed batch decides as its capture did."""
        self.forward_metadata.draft_record = None
        if self._record is None or not forward_batch.forward_mode.is_target_verify():
            return
        _, rows, longest = self._record.x.shape[:3]
        tokens = forward_batch.spec_info.draft_token_num
        ragged = getattr(forward_batch.spec_info, "ragged_verify_layout", None) is not None
        if forward_batch.batch_size <= rows and tokens <= min(longest, MAX_DRAFT_TOKENS) and not ragged:
            self.forward_metadata.draft_record = ops.DraftRecord(*(part[:, :, :tokens] for part in self._record))

    def commit_drafts(
        self,
        stock: Callable[..., None],
        last_correct_step_indices: Tensor,
        mamba_track_indices: Tensor | None,
        mamba_steps_to_track: Tensor | None,
        model: Any,
        req_pool_indices: Tensor | None = None,
    ) -> None:
        """``HybridLinearAttnBackend.update_mamba_state_after_mtp_verify``; ``stock`` is SGLang's."""
        metadata = self.forward_metadata
        if metadata.draft_record is None:
            stock(last_correct_step_indices, mamba_track_indices, mamba_steps_to_track, model, req_pool_indices)
            return
        rows = last_correct_step_indices.shape[0]
        parents, track_slots = metadata.retrieve_parent_token, mamba_track_indices
        if track_slots is not None:
            track_slots = self._translate_mamba_indices(track_slots)[:rows]
        pools = self.req_to_token_pool.get_speculative_mamba2_params_all_layers()
        ops.gdn_fold(
            conv_pool=pools.conv[0],
            ssm_pool=pools.temporal,
            cache_indices=metadata.mamba_cache_indices[:rows],
            record=metadata.draft_record,
            last_steps=last_correct_step_indices,
            parent_tokens=None if parents is None else parents[:rows],
            track_slots=track_slots,
            track_steps=None if track_slots is None else mamba_steps_to_track,
        )

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


def layer_arguments(layer: Any) -> dict[str, Any]:
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


def _gate_columns(layer: Any, qkvz: Tensor) -> Tensor:
    """z ``[N, HV, V]`` of ``[N, D + HV*V]`` in the order q, k, v, z."""
    value_dim = layer.num_v_heads * layer.head_v_dim
    return qkvz[:, qkvz.shape[1] - value_dim :].unflatten(1, (layer.num_v_heads, layer.head_v_dim))


def no_tokens(layer: Any, mixed_qkv: Tensor) -> Tensor:
    return mixed_qkv.new_empty((1, 0, layer.num_v_heads, layer.head_v_dim))


def warm_up(conv_pool: Tensor, ssm_pool: Tensor, dtype: torch.dtype) -> None:
    """Loads what a layer runs, so that the first request does not: a prefill that keeps a snapshot, then decode steps
    of a whole layer and of one that SGLang splits and normalises.

    Zeros, in slot 0, which SGLang reserves for padding.

    Args:
        conv_pool, ssm_pool, dtype: as in ``describe_service``.
    """
    tokens, device = 2 * ops.CHUNK_SIZE, ssm_pool.device
    heads = _heads_of(conv_pool, ssm_pool)

    def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    layer: dict[str, Any] = {
        **heads,
        "conv_weight": zeros(conv_pool.shape[1], conv_pool.shape[2] + 1),
        "A_log": zeros(heads["num_v_heads"], dtype=torch.float32),
        "dt_bias": zeros(heads["num_v_heads"], dtype=torch.float32),
        "conv_pool": conv_pool,
        "ssm_pool": ssm_pool,
        "cache_indices": zeros(1, dtype=torch.int32),
    }
    mixed_qkv, a = zeros(tokens, conv_pool.shape[1]), zeros(tokens, heads["num_v_heads"])
    row = zeros(1, dtype=torch.int64)
    tracked = (row == 0).nonzero(as_tuple=True)[0]  # as SGLang plans them, which loads a kernel of torch
    snapshots = Snapshots.of(row + ops.CHUNK_SIZE, rows=tracked, slots=row)
    tracking = snapshots.tracking(ssm_pool)
    ends = torch.tensor([0, tokens], dtype=torch.int32, device=device)
    ops.gdn_prefill(mixed_qkv, a, a, **layer, query_start_loc=ends, has_initial_state=row > 0, **tracking)
    snapshots.store(tracking["track_state"], ssm_pool)
    value_dim = ssm_pool.shape[1] * ssm_pool.shape[2]
    norm = SimpleNamespace(weight=zeros(ssm_pool.shape[2]), eps=1e-6, activation="silu")
    whole = Projections(zeros(1, conv_pool.shape[1] + value_dim), zeros(1, 2 * a.shape[1]), "contiguous", norm)
    ops.gdn_decode(**whole.inputs(), **layer)
    ops.gdn_decode(mixed_qkv[:1], a[:1], a[:1], **layer)


def describe_service(conv_pool: Tensor, ssm_pool: Tensor, dtype: torch.dtype) -> str:
    """One line: the kernel of each phase, the dtypes and slot pitches of the pools.

    Args:
        conv_pool: ``[slots, D, W-1]`` of one layer.
        ssm_pool: ``[slots, HV, V, K]`` of one layer.
        dtype: of the activations.

    Raises:
        GdnServingError: prefill or decode has no kernel; the message lists the kernels and why each does not serve.
    """
    served = []
    for phase in PHASES:
        answer = explain_phase(phase, **_specialization(conv_pool, ssm_pool, dtype))
        if not answer.kernels and phase != "verify":
            raise GdnServingError(f"gdn_tile has no kernel for {phase}:\n{answer.reason}")
        served.append(f"{phase} {' + '.join(answer.kernels) or 'none'}")
    heads = _heads_of(conv_pool, ssm_pool)
    return (
        f"{', '.join(served)}; {heads['num_k_heads']}/{heads['num_v_heads']} heads of "
        f"{heads['head_k_dim']}/{heads['head_v_dim']}, "
        f"activations {_dtype_name(dtype)}, conv state {_dtype_name(conv_pool.dtype)} pitch {conv_pool.stride(0)}, "
        f"ssm state {_dtype_name(ssm_pool.dtype)} pitch {ssm_pool.stride(0)} elements"
    )


def _heads_of(conv_pool: Tensor, ssm_pool: Tensor) -> dict[str, int]:
    _, num_v_heads, head_v_dim, head_k_dim = ssm_pool.shape
    return {
        "num_k_heads": (conv_pool.shape[1] - num_v_heads * head_v_dim) // (2 * head_k_dim),
        "num_v_heads": num_v_heads,
        "head_k_dim": head_k_dim,
        "head_v_dim": head_v_dim,
    }


def _specialization(conv_pool: Tensor, ssm_pool: Tensor, dtype: torch.dtype) -> dict[str, Any]:
    heads = _heads_of(conv_pool, ssm_pool)
    return {
        "device": ssm_pool.device.type,
        "act": _dtype_name(dtype),
        "state": _dtype_name(ssm_pool.dtype),
        "conv": _dtype_name(conv_pool.dtype),
        "head_k_dim": heads["head_k_dim"],
        "head_v_dim": heads["head_v_dim"],
        "ratio": heads["num_v_heads"] // heads["num_k_heads"],
        "conv_width": conv_pool.shape[2] + 1,
    }


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
