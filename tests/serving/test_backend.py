"""``GdnTileBackend`` in this process, on hand-made batches: routing, snapshots, drafts, padding, fallbacks."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import sglang_gdn.serving
from sglang_gdn.errors import GdnFallbackError
from sglang_gdn.serving import compat
from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.stats import reset, stats

pytestmark = [pytest.mark.serving, pytest.mark.usefixtures("sglang_on_cpu"), pytest.mark.filterwarnings("ignore")]

H, HV, K, V, W = 2, 4, 32, 32, 4
D = 2 * H * K + HV * V
SLOTS = 12
CHUNK = 64
LAYER = 5


@pytest.fixture
def adapter(sglang_on_cpu: None) -> Any:
    return compat.select()[0]


class Rig:
    """A backend with one layer, its pools, and seeded inputs."""

    def __init__(self, seed: int = 0) -> None:
        from sglang_gdn.serving.backend import GdnTileBackend

        self.random = torch.Generator().manual_seed(seed)
        self.conv_pool = self.normal(SLOTS, D, W - 1)
        self.ssm_pool = self.normal(SLOTS, HV, V, K)
        self.pools = SimpleNamespace(
            conv=[self.conv_pool], temporal=self.ssm_pool, replayssm_d=None, replayssm_rawv=None
        )
        self.layer = SimpleNamespace(
            layer_id=LAYER,
            conv_weights=self.normal(D, W),
            bias=None,
            activation="silu",
            A_log=self.normal(HV),
            dt_bias=self.normal(HV),
            num_k_heads=H,
            num_v_heads=HV,
            head_k_dim=K,
            head_v_dim=V,
        )
        self.backend = GdnTileBackend.__new__(GdnTileBackend)
        self.backend.req_to_token_pool = SimpleNamespace(mamba2_layer_cache=self._layer_cache, size=8)
        self.tracked_decodes: list[int] = []
        self.backend._track_mamba_state_decode = self._track_decode

    def _layer_cache(self, layer_id: int) -> SimpleNamespace:
        assert layer_id == LAYER
        return self.pools

    def _track_decode(self, batch: Any, conv: Tensor, ssm: Tensor, cache_indices: Tensor, layer_id: int) -> None:
        self.tracked_decodes.append(layer_id)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.random)

    def tokens(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """mixed_qkv, a, b, each a view with a row pitch, as the projections hand them over."""
        wide = self.normal(count, D + 2 * HV)
        return wide[:, :D], wide[:, D : D + HV], wide[:, D + HV :]

    def prefill(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        lengths: list[int],
        slots: list[int],
        prefixes: list[int],
        tracks: dict[int, tuple[int, int]] | None = None,
        **keywords: Any,
    ) -> Tensor:
        """``tracks``: row -> (slot, tokens of the row), as SGLang's scheduler would ask for."""
        starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
        rows = sorted(tracks or {})
        destinations = torch.tensor([tracks[row][0] for row in rows] if tracks else [], dtype=torch.int64)
        ends = [tracks[row][1] if tracks and row in tracks else 0 for row in range(len(lengths))]
        inner = [i for i, row in enumerate(rows) if ends[row] != lengths[row]]
        final = [i for i, row in enumerate(rows) if ends[row] == lengths[row]]
        indices = torch.tensor(slots, dtype=torch.int32)
        chunk_indices = torch.full((len(lengths),), -1, dtype=torch.int32)
        for i in inner:
            chunk_indices[rows[i]] = ends[rows[i]] // CHUNK
        self.backend.forward_metadata = SimpleNamespace(
            query_start_loc=starts,
            mamba_cache_indices=indices,
            has_mamba_track_mask=bool(rows),
            mamba_track_mask_indices=torch.tensor(rows, dtype=torch.int64),
            conv_states_mask_indices=destinations,
            track_chunk_idx=chunk_indices,
            # SGLang's own snapshot code reads these.
            track_ssm_h_src=torch.zeros(len(inner)),
            track_ssm_h_dst=destinations[inner],
            track_ssm_h_batch_src=torch.tensor([rows[i] for i in inner], dtype=torch.int64),
            track_ssm_final_src=indices[[rows[i] for i in final]].long(),
            track_ssm_final_dst=destinations[final],
            track_ssm_recompute_dst=None,
        )
        batch = SimpleNamespace(
            forward_mode=SimpleNamespace(is_target_verify=lambda: False),
            extend_prefix_lens=torch.tensor(prefixes),
            mamba_track_aligned_lens=lambda: torch.tensor(ends),
        )
        self.backend.forward_metadata.prefill_rows = self.backend._prefill_rows(batch)
        return self.backend.forward_extend(self.layer, batch, *inputs, **keywords)

    def decode(self, inputs: Any, slots: list[int]) -> Any:
        self.backend.forward_metadata = SimpleNamespace(
            mamba_cache_indices=torch.tensor(slots, dtype=torch.int32), query_start_loc=torch.arange(len(slots) + 1)
        )
        return self.backend.forward_decode(self.layer, SimpleNamespace(), *inputs)

    def verify(self, inputs: Any, slots: list[int], draft_tokens: int, **metadata: Any) -> Tensor:
        rows = len(slots)
        self.pools.intermediate_ssm = torch.zeros(rows + 1, draft_tokens, HV, V, K)
        self.pools.intermediate_conv_window = [torch.zeros(rows + 1, draft_tokens, D, W - 1)]
        self.backend.verify_intermediate_state_indices = torch.arange(rows + 1, dtype=torch.int32)
        self.backend.forward_metadata = SimpleNamespace(
            **{"mamba_cache_indices": torch.tensor(slots, dtype=torch.int32), "retrieve_parent_token": None, **metadata}
        )
        batch = SimpleNamespace(
            forward_mode=SimpleNamespace(is_target_verify=lambda: True),
            spec_info=SimpleNamespace(draft_token_num=draft_tokens, ragged_verify_layout=None),
            req_pool_indices=torch.arange(rows),
        )
        return self.backend.forward_extend(self.layer, batch, *inputs)


def rows_of(inputs: tuple[Tensor, ...], start: int, stop: int) -> tuple[Tensor, ...]:
    return tuple(x[start:stop] for x in inputs)


@pytest.mark.parametrize("tail", [1, 2, 63, 64, 65])
def test_continuing_from_a_snapshot_gives_the_same_bits(tail: int) -> None:
    """Row 0 leaves a snapshot at 128 inside its prefill; starting there repeats the rest of row 0 bit for bit."""
    rig = Rig()
    length = 128 + tail
    inputs = rig.tokens(length + 30)
    tracked_slot, private_slot = 7, 8
    cold = rig.prefill(inputs, [length, 30], [1, 2], [0, 0], {0: (tracked_slot, 128)})
    state_after = rig.ssm_pool[1].clone(), rig.conv_pool[1].clone()
    rig.ssm_pool[private_slot], rig.conv_pool[private_slot] = rig.ssm_pool[tracked_slot], rig.conv_pool[tracked_slot]
    hit = rig.prefill(rows_of(inputs, 128, length), [tail], [private_slot], [128])
    assert torch.equal(hit[0], cold[0, 128:length])
    assert torch.equal(rig.ssm_pool[private_slot], state_after[0])
    assert torch.equal(rig.conv_pool[private_slot], state_after[1])


def test_snapshot_at_the_end_of_a_row() -> None:
    rig = Rig()
    rig.prefill(rig.tokens(192), [128, 64], [1, 2], [0, 0], {0: (7, 128)})
    assert torch.equal(rig.ssm_pool[7], rig.ssm_pool[1])
    assert torch.equal(rig.conv_pool[7], rig.conv_pool[1])


def test_rows_without_a_prefix_ignore_the_slot() -> None:
    """A fresh row reads neither state, a continued row reads both; other slots stay as they are."""
    rig = Rig()
    inputs = rig.tokens(20)
    before = rig.ssm_pool.clone()
    both = rig.prefill(inputs, [10, 10], [3, 4], [0, 64])
    rig.ssm_pool[3], rig.conv_pool[3] = float("nan"), float("nan")
    assert torch.equal(rig.prefill(rows_of(inputs, 0, 10), [10], [3], [0])[0], both[0, :10])
    untouched = [slot for slot in range(SLOTS) if slot not in (3, 4)]
    assert torch.equal(rig.ssm_pool[untouched], before[untouched])
    rig.ssm_pool[4] = 0
    assert not torch.equal(rig.prefill(rows_of(inputs, 10, 20), [10], [4], [64])[0], both[0, 10:])


def test_prefill_writes_into_the_given_output() -> None:
    rig = Rig()
    padded = torch.full((1, 16, HV, V), 7.0)
    given = padded[:, :10]
    returned = rig.prefill(rig.tokens(10), [10], [1], [0], linear_attn_output=given)
    assert returned.data_ptr() == given.data_ptr()
    assert (padded[:, 10:] == 7).all()


def test_decode_follows_prefill_and_tracks() -> None:
    rig = Rig()
    inputs = rig.tokens(66)
    whole = rig.prefill(inputs, [66], [1], [0])
    rig.prefill(rows_of(inputs, 0, 65), [65], [2], [0])
    last = rig.decode(rows_of(inputs, 65, 66), [2])
    torch.testing.assert_close(last[0, 0], whole[0, 65], rtol=1e-5, atol=1e-5)
    assert rig.tracked_decodes == [LAYER]


def test_padded_rows_of_a_replayed_graph() -> None:
    rig = Rig()
    before = rig.ssm_pool.clone(), rig.conv_pool.clone()
    out = rig.decode(rig.tokens(3), [6, -1, -1])
    assert (out[0, 1:] == 0).all() and (out[0, 0] != 0).any()
    others = [slot for slot in range(SLOTS) if slot != 6]
    assert torch.equal(rig.ssm_pool[others], before[0][others])
    assert torch.equal(rig.conv_pool[others], before[1][others])


def test_no_tokens() -> None:
    rig = Rig()
    assert rig.decode(rig.tokens(0), []).shape == (1, 0, HV, V)
    assert rig.prefill(rig.tokens(0), [0], [1], [0]).shape == (1, 0, HV, V)


def test_verify_commits_nothing_and_keeps_every_step() -> None:
    """Three drafts of two rows: outputs and states equal three decode steps; the pools stay as they were."""
    rig = Rig()
    drafts, slots = 3, [4, 9]
    inputs = rig.tokens(len(slots) * drafts)
    before = rig.ssm_pool.clone(), rig.conv_pool.clone()
    out = rig.verify(inputs, slots, drafts)
    assert out.shape == (1, len(slots) * drafts, HV, V)
    assert torch.equal(rig.ssm_pool, before[0]) and torch.equal(rig.conv_pool, before[1])
    for step in range(drafts):
        stepped = rig.decode(tuple(x[step::drafts] for x in inputs), slots)
        torch.testing.assert_close(out[0, step::drafts], stepped[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(rig.pools.intermediate_ssm[:2, step], rig.ssm_pool[slots], rtol=1e-6, atol=1e-6)
        assert torch.equal(rig.pools.intermediate_conv_window[0][:2, step], rig.conv_pool[slots])


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda rig: rig.decode(((torch.zeros(1), torch.zeros(1)), None, None), [1]), "fused the projection"),
        (lambda rig: (setattr(rig.pools, "replayssm_d", 1), rig.decode(rig.tokens(1), [1]))[1], "ReplaySSM"),
        (lambda rig: (setattr(rig.pools, "replayssm_rawv", 1), rig.verify(rig.tokens(2), [1], 2))[1], "ReplaySSM"),
        (lambda rig: rig.verify(rig.tokens(2), [1], 2, retrieve_parent_token=torch.zeros(1)), "draft trees"),
    ],
)
def test_fallbacks_are_counted_or_refused(call: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.layers.attention.linear.gdn_backend import GDNAttnBackend

    for method in ("forward_decode", "forward_extend"):
        monkeypatch.setattr(GDNAttnBackend, method, lambda *_, **__: "stock")
    reset()
    monkeypatch.setenv("SGLANG_GDN_STRICT", "0")
    assert call(Rig()) == "stock"
    assert [count for key, count in stats()["fallbacks"].items() if reason in key] == [1]
    monkeypatch.setenv("SGLANG_GDN_STRICT", "1")
    with pytest.raises(GdnFallbackError, match=reason):
        call(Rig())
    reset()


def test_seams_are_those_of_the_installed_sglang(adapter: Any) -> None:
    from sglang_gdn.serving.seams import problems

    assert version("sglang") in adapter.VERSIONS
    assert problems(adapter.SEAMS) == []


def test_a_missing_seam_is_named(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.layers.attention.linear import gdn_backend

    monkeypatch.delattr(gdn_backend.GDNAttnBackend, "_init_prefill_conv_block_table")
    monkeypatch.setattr(gdn_backend.GDNAttnBackend, "forward_decode", lambda self, layer, batch: None)
    with pytest.raises(GdnServingError) as refused:
        adapter._raise_for_problems(adapter.problems(adapter.SEAMS))
    lines = str(refused.value).splitlines()[1:]
    assert len(lines) == 2
    assert any("GDNAttnBackend._init_prefill_conv_block_table" in line and "is missing" in line for line in lines)
    assert any("GDNAttnBackend.forward_decode" in line and "got (self, layer, batch)" in line for line in lines)


def test_every_seam_would_be_named(adapter: Any) -> None:
    for seam in adapter.SEAMS:
        gone = dataclasses.replace(seam, path=f"{seam.path}_gone")
        assert f"{gone.path} (" in (gone.problem() or ""), seam.path


def test_every_import_from_sglang_is_a_seam(adapter: Any) -> None:
    known = {seam.path for seam in adapter.SEAMS}
    root = Path(inspect.getfile(sglang_gdn.serving)).parent
    for source in root.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang."):
                for name in node.names:
                    symbol, module = f"{node.module}:{name.name}", f"{node.module}.{name.name}:"
                    assert any(path.startswith((symbol, module)) for path in known), f"{source.name}: {symbol}"


@pytest.mark.parametrize(
    ("installed", "allow", "refused"),
    [("0.5.23", "0", False), ("0.5.22", "0", True), ("0.6.0", "0", True), ("0.6.0", "1", False)],
)
def test_versions(installed: str, allow: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "version", lambda _: installed)
    monkeypatch.setenv(compat.ALLOW_UNTESTED, allow)
    _, refusal = compat.select()
    assert (refusal is not None) == refused
    assert not refused or installed in str(refusal)


@pytest.mark.parametrize("device", ["npu", "xpu", "musa"])
def test_other_devices_are_refused(adapter: Any, device: str) -> None:
    with pytest.raises(GdnServingError, match=f"got {device}"):
        adapter._raise_unless_device_serves(device)


@pytest.mark.parametrize("capability", [(8, 0), (10, 0), (12, 0)])
def test_other_gpus_are_refused(adapter: Any, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    with pytest.raises(GdnServingError, match=f"got {capability[0]}.{capability[1]}"):
        adapter._raise_unless_device_serves("cuda")


def test_cpu_without_the_cpu_engine_is_refused(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_GDN_CPU_ENGINE", raising=False)
    with pytest.raises(GdnServingError, match="serve --device cpu"):
        adapter._raise_unless_device_serves("cpu")


def test_start_line_names_kernels_and_states() -> None:
    from sglang_gdn.serving.backend import describe_service

    rig = Rig()
    line = describe_service(rig.conv_pool, rig.ssm_pool, torch.float32)
    for phase in ("prefill", "decode", "verify"):
        assert f"{phase} cpu_gdn_{phase}" in line
    assert f"{H}/{HV} heads of {K}/{V}" in line
    assert f"ssm state float32 pitch {HV * V * K} elements" in line


def test_start_line_refuses_what_no_kernel_serves() -> None:
    from sglang_gdn.serving.backend import describe_service

    conv_pool, ssm_pool = torch.zeros(2, 3 * 1000, 3), torch.zeros(2, 1, 1000, 1000)
    with pytest.raises(GdnServingError, match="no kernel for prefill"):
        describe_service(conv_pool, ssm_pool, torch.float32)
