"""``GdnTileBackend`` in this process, on hand-made batches: routing, snapshots, drafts, padding, fallbacks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from serving.rig import LAYER, SLOTS, TREES, Rig, links_of, rows_of
from sglang_gdn.errors import GdnFallbackError
from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.stats import reset, stats

pytestmark = [
    pytest.mark.serving,
    pytest.mark.usefixtures("sglang_on_cpu", "grid_of_64"),
    pytest.mark.filterwarnings("ignore"),
]


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


def test_slots_of_all_layers_side_by_side() -> None:
    """SGLang's page-major layout: a slot holds the states of every layer, so that the slot pitch is wide."""
    dense, wide = Rig(), Rig()
    wide.pools.conv[0] = torch.zeros(SLOTS, 3, *wide.conv_pool.shape[1:])[:, 1].copy_(wide.conv_pool)
    wide.pools.temporal = torch.zeros(SLOTS, 3, *wide.ssm_pool.shape[1:])[:, 1].copy_(wide.ssm_pool)
    results = []
    for rig in (dense, wide):
        inputs = rig.tokens(140)
        prefilled = rig.prefill(inputs, [100, 40], [1, 2], [0, 64], {0: (7, 64)})
        results.append(
            [prefilled, rig.decode(rows_of(inputs, 0, 3), [1, -1, 7]), rig.pools.conv[0], rig.pools.temporal]
        )
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_prefill_writes_into_the_given_output() -> None:
    rig = Rig()
    padded = torch.full((1, 16, rig.HV, rig.V), 7.0)
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
    assert rig.decode(rig.tokens(0), []).shape == (1, 0, rig.HV, rig.V)
    assert rig.prefill(rig.tokens(0), [0], [1], [0]).shape == (1, 0, rig.HV, rig.V)


def test_verify_commits_nothing_and_keeps_every_step() -> None:
    """Three drafts of two rows: outputs and states equal three decode steps; the pools stay as they were."""
    rig = Rig()
    drafts, slots = 3, [4, 9]
    inputs = rig.tokens(len(slots) * drafts)
    before = rig.ssm_pool.clone(), rig.conv_pool.clone()
    out = rig.verify(inputs, slots, drafts)
    assert out.shape == (1, len(slots) * drafts, rig.HV, rig.V)
    assert torch.equal(rig.ssm_pool, before[0]) and torch.equal(rig.conv_pool, before[1])
    for step in range(drafts):
        stepped = rig.decode(tuple(x[step::drafts] for x in inputs), slots)
        torch.testing.assert_close(out[0, step::drafts], stepped[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(rig.pools.intermediate_ssm[:2, step], rig.ssm_pool[slots], rtol=1e-6, atol=1e-6)
        assert torch.equal(rig.pools.intermediate_conv_window[0][:2, step], rig.conv_pool[slots])


def test_commit_of_a_record_equals_decoding() -> None:
    """Two rows accept different numbers of drafts, one of them leaves a snapshot on the way, a third accepts none."""
    rig = Rig()
    drafts, slots, accepted = 4, [4, 9, 6], [3, 1, 0]
    inputs = rig.tokens(len(slots) * drafts)
    before = rig.ssm_pool.clone(), rig.conv_pool.clone()
    out = rig.plan_verify(slots, drafts, record=True).run(inputs)
    assert torch.equal(rig.ssm_pool, before[0]) and torch.equal(rig.conv_pool, before[1])
    rig.commit([count - 1 for count in accepted], [7, 8, 5], [1, -1, -1])
    committed = rig.ssm_pool.clone(), rig.conv_pool.clone()
    rig.ssm_pool.copy_(before[0]), rig.conv_pool.copy_(before[1])
    snapshot = None
    for step in range(drafts):
        live = [slot if count > step else -1 for slot, count in zip(slots, accepted, strict=True)]
        stepped = rig.decode(tuple(x[step::drafts] for x in inputs), live)
        for row in (row for row, slot in enumerate(live) if slot >= 0):
            torch.testing.assert_close(out[0, row * drafts + step], stepped[0, row], rtol=1e-5, atol=1e-5)
        if step == 1:
            snapshot = rig.ssm_pool[slots[0]].clone(), rig.conv_pool[slots[0]].clone()
    assert snapshot is not None
    rig.ssm_pool[7], rig.conv_pool[7] = snapshot
    torch.testing.assert_close(committed[0], rig.ssm_pool, rtol=1e-5, atol=1e-5)
    assert torch.equal(committed[1], rig.conv_pool)


@pytest.mark.parametrize("parents", TREES)
def test_commit_of_a_path_of_a_draft_tree(parents: list[int]) -> None:
    first, siblings = (torch.tensor([links]) for links in links_of(parents))
    for token in range(len(parents)):
        rig = Rig()
        inputs = rig.tokens(len(parents))
        before = rig.ssm_pool.clone(), rig.conv_pool.clone()
        rig.plan_verify([4], len(parents), (first, siblings), record=True).run(inputs)
        rig.commit([token])
        committed = rig.ssm_pool[4].clone(), rig.conv_pool[4].clone()
        rig.ssm_pool.copy_(before[0]), rig.conv_pool.copy_(before[1])
        path = [token]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        for step in path:
            rig.decode(rows_of(inputs, step, step + 1), [4])
        torch.testing.assert_close(committed[0], rig.ssm_pool[4], rtol=1e-5, atol=1e-5)
        assert torch.equal(committed[1], rig.conv_pool[4])


@pytest.mark.parametrize(
    "spec",
    [
        {"draft_token_num": 17},
        {"draft_token_num": 3, "ragged_verify_layout": object()},
        {"draft_token_num": 3, "rows": 9},
    ],
)
def test_what_is_not_recorded_is_committed_by_sglang(spec: dict[str, Any]) -> None:
    rig = Rig()
    planned = rig.plan_verify([1, 2], 3, record=True)
    assert rig.backend.forward_metadata.draft_record is not None
    planned._forward_batch.batch_size = spec.pop("rows", 2)
    vars(planned._forward_batch.spec_info).update(spec)
    rig.backend._plan_drafts(planned._forward_batch)
    calls: list[Any] = []
    rig.backend.commit_drafts(lambda *given: calls.append(given), *"abcde")
    assert calls == [tuple("abcde")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_record_lies_in_the_states_it_replaces(dtype: torch.dtype) -> None:
    from sglang_gdn.serving.drafts import record_in

    heads = {"num_k_heads": 1, "num_v_heads": 2, "head_k_dim": 32, "head_v_dim": 32}
    states = torch.zeros(2, 3, 4, 2, 32, 32, dtype=dtype)
    record = record_in(states, **heads, conv_dtype=torch.bfloat16)
    assert record is not None
    assert [list(part.shape) for part in record] == [[2, 3, 4, 128], [2, 3, 4, 1, 32], [2, 3, 4, 2, 32], [2, 3, 4, 2]]
    first = states.untyped_storage().data_ptr()
    written = sum(part.numel() for part in record)
    for number, part in enumerate(record, 1):
        assert part.untyped_storage().data_ptr() == first
        part.fill_(number)
    assert [sorted(set(part.flatten().tolist())) for part in record] == [[1], [2], [3], [4]]
    assert written < states.numel()
    assert record_in(states[..., :8, :8].contiguous(), **heads, conv_dtype=torch.bfloat16) is None


def test_decode_of_the_raw_projections() -> None:
    """SGLang 0.5.23 hands over both projections of a Qwen3.5 layer and takes back the gate of its norm."""
    split, raw = Rig(), Rig()
    projections, inputs, gate = split.raw_projections(3)
    expected = split.decode(inputs, [4, -1, 9])
    out, z = raw.decode((projections, projections[1], projections[1]), [4, -1, 9])
    assert torch.equal(out, expected) and torch.equal(z, gate)
    assert torch.equal(raw.ssm_pool, split.ssm_pool) and torch.equal(raw.conv_pool, split.conv_pool)
    assert raw.tracked_decodes == [LAYER]


def test_parents_of_draft_trees() -> None:
    from sglang_gdn.serving.drafts import parents_of

    first, siblings = zip(*map(links_of, TREES), strict=True)
    for dtype in (torch.int32, torch.int64):
        found = parents_of(torch.tensor(first, dtype=dtype), torch.tensor(siblings, dtype=dtype))
        assert found.tolist() == TREES
    lonely = torch.tensor([[-1]])
    assert parents_of(lonely, lonely).tolist() == [[-1]]


@pytest.mark.parametrize("parents", TREES)
def test_every_path_of_a_draft_tree_is_a_decode(parents: list[int]) -> None:
    """Each token of a tree gives what decoding its ancestors and then itself gives."""
    rig = Rig()
    first, siblings = (torch.tensor([links]) for links in links_of(parents))
    inputs = rig.tokens(len(parents))
    before = rig.ssm_pool.clone(), rig.conv_pool.clone()
    out = rig.verify(inputs, [4], len(parents), (first, siblings))
    states = rig.pools.intermediate_ssm[0].clone()
    for token in range(len(parents)):
        path = [token]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        rig.ssm_pool.copy_(before[0]), rig.conv_pool.copy_(before[1])
        for step in path:
            stepped = rig.decode(rows_of(inputs, step, step + 1), [4])
        torch.testing.assert_close(out[0, token], stepped[0, 0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(states[token], rig.ssm_pool[4], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda rig: (setattr(rig.pools, "replayssm_d", 1), rig.decode(rig.tokens(1), [1]))[1], "ReplaySSM"),
        (lambda rig: (setattr(rig.pools, "replayssm_rawv", 1), rig.verify(rig.tokens(2), [1], 2))[1], "ReplaySSM"),
        (lambda rig: rig.verify(rig.tokens(17), [1], 17), "more than 16 draft tokens"),
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


@pytest.mark.parametrize("state", [torch.float32, torch.bfloat16])
def test_warm_up_leaves_every_slot_but_the_reserved_one(state: torch.dtype) -> None:
    from sglang_gdn.serving.backend import warm_up

    rig = Rig(state=state)
    before = rig.ssm_pool.clone(), rig.conv_pool.clone()
    reset()
    warm_up(rig.conv_pool, rig.ssm_pool, rig.act)
    assert torch.equal(rig.ssm_pool[1:], before[0][1:]) and torch.equal(rig.conv_pool[1:], before[1][1:])
    assert stats()["calls"] == {"gdn_prefill/cpu": 1, "gdn_decode/cpu": 2}
    assert (rig.ssm_pool[0] == 0).all() and (rig.conv_pool[0] == 0).all()
    reset()


def test_start_line_names_kernels_and_states() -> None:
    from sglang_gdn.serving.backend import describe_service

    rig = Rig()
    line = describe_service(rig.conv_pool, rig.ssm_pool, torch.float32)
    for phase in ("prefill", "decode", "verify"):
        assert f"{phase} cpu_gdn_{phase}" in line
    assert "2/4 heads of 32/32" in line
    assert f"ssm state float32 pitch {4 * 32 * 32} elements" in line


def test_start_line_refuses_what_no_kernel_serves() -> None:
    from sglang_gdn.serving.backend import describe_service

    conv_pool, ssm_pool = torch.zeros(2, 3 * 1000, 3), torch.zeros(2, 1, 1000, 1000)
    with pytest.raises(GdnServingError, match="no kernel for prefill"):
        describe_service(conv_pool, ssm_pool, torch.float32)
