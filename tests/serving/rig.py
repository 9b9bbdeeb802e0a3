"""One layer of ``GdnTileBackend`` on any device, its pools, and hand-made batches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

SLOTS = 12
CHUNK = 64
LAYER = 5
W = 4

# Parent of each token, one row per shape of tree: a chain, a star, two levels, a comb.
TREES = [[-1, 0, 1, 2, 3, 4], [-1, 0, 0, 0, 0, 0], [-1, 0, 0, 1, 1, 2], [-1, 0, 0, 2, 2, 4]]


class Batch:
    """A batch that is planned: running it launches kernels and does nothing else."""

    def __init__(self, rig: Rig, metadata: SimpleNamespace, forward_batch: SimpleNamespace) -> None:
        self._rig, self._metadata, self._forward_batch = rig, metadata, forward_batch

    def run(self, inputs: Any, **keywords: Any) -> Any:
        backend = self._rig.backend
        backend.forward_metadata = self._metadata
        forward = backend.forward_extend if self._forward_batch.extends else backend.forward_decode
        return forward(self._rig.layer, self._forward_batch, *inputs, **keywords)


class Rig:
    """A backend with one layer, its pools, and seeded inputs.

    Args:
        heads: key heads, value heads, head size.
        act, state: dtypes of the activations, and of the SSM pool; the conv pool has that of the activations.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        device: str = "cpu",
        heads: tuple[int, int, int] = (2, 4, 32),
        act: torch.dtype = torch.float32,
        state: torch.dtype = torch.float32,
        slots: int = SLOTS,
    ) -> None:
        from sglang_gdn.serving.backend import GdnTileBackend

        H, HV, K = heads
        self.HV, self.V, self.D = HV, K, (2 * H + HV) * K
        self.device, self.act = device, act
        self.random = torch.Generator().manual_seed(seed)
        self.conv_pool = self.normal(slots, self.D, W - 1).to(act)
        self.ssm_pool = self.normal(slots, HV, K, K).to(state)
        self.pools = SimpleNamespace(
            conv=[self.conv_pool], temporal=self.ssm_pool, replayssm_d=None, replayssm_rawv=None
        )
        self.heads = {"num_k_heads": H, "num_v_heads": HV, "head_k_dim": K, "head_v_dim": K}
        self.layer = SimpleNamespace(
            layer_id=LAYER,
            conv_weights=self.normal(self.D, W).to(act),
            bias=None,
            activation="silu",
            A_log=self.normal(HV),
            dt_bias=self.normal(HV),
            **self.heads,
        )
        self.backend = GdnTileBackend.__new__(GdnTileBackend)
        all_layers = SimpleNamespace(conv=[self.conv_pool.unsqueeze(0)], temporal=self.ssm_pool.unsqueeze(0))
        self.backend.req_to_token_pool = SimpleNamespace(
            mamba2_layer_cache=self._layer_cache,
            get_speculative_mamba2_params_all_layers=lambda: all_layers,
            translate_mamba_indices=lambda indices: indices,
            size=8,
            mamba_map={LAYER: 0},
        )
        self.backend._record = None
        self.backend.decodes_whole_layers = True
        self.tracked_decodes: list[int] = []
        self.backend._track_mamba_state_decode = self._track_decode

    def _layer_cache(self, layer_id: int) -> SimpleNamespace:
        assert layer_id == LAYER
        return self.pools

    def _track_decode(self, batch: Any, conv: Tensor, ssm: Tensor, cache_indices: Tensor, layer_id: int) -> None:
        self.tracked_decodes.append(layer_id)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.random).to(self.device)

    def integers(self, values: Any, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def raw_projections(self, count: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor], Tensor]:
        """(qkvz, ba) of a Qwen3.5 layer; mixed_qkv, a, b; and the gate of its norm."""
        qkvz = self.normal(count, self.D + self.HV * self.V).to(self.act)
        ba = self.normal(count, 2 * self.HV).to(self.act)
        gate = qkvz[:, self.D :].unflatten(1, (self.HV, self.V))
        return (qkvz, ba), (qkvz[:, : self.D], ba[:, self.HV :], ba[:, : self.HV]), gate

    def tokens(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """mixed_qkv, a, b, each a view with a row pitch, as the projections hand them over."""
        wide = self.normal(count, self.D + 2 * self.HV).to(self.act)
        return wide[:, : self.D], wide[:, self.D : self.D + self.HV], wide[:, self.D + self.HV :]

    def plan_prefill(
        self,
        lengths: list[int],
        slots: list[int],
        prefixes: list[int],
        tracks: dict[int, tuple[int, int]] | None = None,
    ) -> Batch:
        """``tracks``: row -> (slot, tokens of the row), as SGLang's scheduler would ask for."""
        tracks = tracks or {}
        rows = sorted(tracks)
        ends = [tracks[row][1] if row in tracks else 0 for row in range(len(lengths))]
        metadata = SimpleNamespace(
            query_start_loc=self.integers([0, *lengths]).cumsum(0).to(torch.int32),
            mamba_cache_indices=self.integers(slots),
            has_mamba_track_mask=bool(rows),
            mamba_track_mask_indices=self.integers(rows, torch.int64),
            conv_states_mask_indices=self.integers([tracks[row][0] for row in rows], torch.int64),
        )
        batch = SimpleNamespace(
            extends=True,
            forward_mode=SimpleNamespace(is_target_verify=lambda: False),
            extend_prefix_lens=self.integers(prefixes, torch.int64),
            mamba_track_seqlens=self.integers([sum(pair) for pair in zip(prefixes, ends, strict=True)], torch.int64),
            mamba_track_aligned_lens=lambda: self.integers(ends, torch.int64),
        )
        self.backend.forward_metadata = metadata
        metadata.prefill_rows = self.backend._prefill_rows(batch)
        return Batch(self, metadata, batch)

    def plan_decode(self, slots: list[int]) -> Batch:
        metadata = SimpleNamespace(mamba_cache_indices=self.integers(slots))
        return Batch(self, metadata, SimpleNamespace(extends=False))

    def plan_verify(
        self, slots: list[int], draft_tokens: int, tree: tuple[Tensor, Tensor] | None = None, *, record: bool = False
    ) -> Batch:
        """``tree``: first child and next sibling of each token, ``[rows, draft_tokens]``."""
        from sglang_gdn.serving.drafts import record_in

        rows = len(slots)
        state, window = self.ssm_pool.shape[1:], self.conv_pool.shape[1:]
        states = self.ssm_pool.new_zeros(1, rows + 1, draft_tokens, *state)
        self.pools.intermediate_ssm = states[0]
        self.pools.intermediate_conv_window = [self.conv_pool.new_zeros(rows + 1, draft_tokens, *window)]
        self.backend._record = record_in(states, **self.heads, conv_dtype=self.conv_pool.dtype) if record else None
        self.backend.verify_intermediate_state_indices = self.integers(range(rows + 1))
        metadata = SimpleNamespace(
            mamba_cache_indices=self.integers(slots),
            retrieve_next_token=tree and tree[0],
            retrieve_next_sibling=tree and tree[1],
            retrieve_parent_token=tree and torch.full_like(tree[0], 99),
        )
        batch = SimpleNamespace(
            extends=True,
            forward_mode=SimpleNamespace(is_target_verify=lambda: True),
            spec_info=SimpleNamespace(draft_token_num=draft_tokens, ragged_verify_layout=None),
            req_pool_indices=self.integers(range(rows), torch.int64),
            batch_size=rows,
        )
        self.backend.forward_metadata = metadata
        self.backend._plan_drafts(batch)
        return Batch(self, metadata, batch)

    def prefill(self, inputs: Any, *plan: Any, **keywords: Any) -> Tensor:
        return self.plan_prefill(*plan).run(inputs, **keywords)

    def decode(self, inputs: Any, slots: list[int]) -> Any:
        return self.plan_decode(slots).run(inputs)

    def verify(self, inputs: Any, *plan: Any) -> Tensor:
        return self.plan_verify(*plan).run(inputs)

    def plan_commit(
        self, last_steps: list[int], track_slots: list[int] | None = None, track_steps: list[int] | None = None
    ) -> Callable[[], None]:
        """Of the batch that is planned, which keeps a record."""
        metadata = self.backend.forward_metadata

        def stock(*_: Any) -> None:
            raise AssertionError("SGLang's own commit knows no record")

        tracks = [None if track is None else self.integers(track, torch.int64) for track in (track_slots, track_steps)]
        last = self.integers(last_steps, torch.int64)

        def commit() -> None:
            self.backend.forward_metadata = metadata
            self.backend.commit_drafts(stock, last, *tracks, model=None)

        return commit

    def commit(self, *plan: Any) -> None:
        self.plan_commit(*plan)()


def whole_layer(
    rig: Rig, projections: tuple[Tensor, Tensor], norm: Any, monkeypatch: pytest.MonkeyPatch
) -> SimpleNamespace:
    """A layer of SGLang's models with the backend of ``rig``. Its input projections return ``projections``, its last
    projection what it is given."""

    class Attention(SimpleNamespace):
        def __call__(self, forward_batch: Any, mixed_qkv: Any, a: Tensor, b: Tensor) -> Any:
            return forward(self, forward_batch, mixed_qkv, a, b)

    def forward(layer: Any, forward_batch: Any, mixed_qkv: Any, a: Tensor, b: Tensor, **keywords: Any) -> Any:
        run = rig.backend.forward_extend if forward_batch.extends else rig.backend.forward_decode
        return run(layer, forward_batch, mixed_qkv, a, b, **keywords)

    running = SimpleNamespace(linear_attn_backend=rig.backend, forward=forward)
    monkeypatch.setattr("sglang.srt.model_executor.forward_context.get_attn_backend", lambda: running)
    return SimpleNamespace(
        **rig.heads,
        attn_tp_size=1,
        attn=Attention(**vars(rig.layer)),
        norm=norm,
        _forward_input_proj=lambda hidden_states: projections,
        out_proj=lambda x: (x, None),
    )


def rows_of(inputs: tuple[Tensor, ...], start: int, stop: int) -> tuple[Tensor, ...]:
    return tuple(x[start:stop] for x in inputs)


def links_of(parents: list[int]) -> tuple[list[int], list[int]]:
    """First child and next sibling of each token."""
    children = [[i for i, parent in enumerate(parents) if parent == token] for token in range(len(parents))]
    first = [family[0] if family else -1 for family in children]
    after = {older: younger for family in children for older, younger in pairwise(family)}
    return first, [after.get(token, -1) for token in range(len(parents))]


@pytest.fixture
def grid_of_64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grid of snapshots of a server; SGLang 0.5.17 reads it from the server's arguments."""
    arguments = SimpleNamespace(mamba_cache_chunk_size=64)
    monkeypatch.setattr("sglang.srt.runtime_context.get_server_args", lambda: arguments)
