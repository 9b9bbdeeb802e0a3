"""``GdnTileBackend`` on a GPU: no wait for the device, CUDA graphs with padded rows, the same bits in any company.

Needs an installed SGLang.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from compare import assert_close
from serving.rig import TREES, Rig, grid_of_64, links_of, rows_of, whole_layer  # noqa: F401
from tolerances import LIMITS, SPLIT, draft_output_limit, fused_state_limit

pytestmark = [pytest.mark.usefixtures("sglang_installed", "grid_of_64"), pytest.mark.filterwarnings("ignore")]

HEADS = [(16, 32, 128), (2, 8, 128)]
STATES = [torch.float32, torch.bfloat16]


@pytest.fixture
def sglang_installed() -> None:
    pytest.importorskip("sglang")


@pytest.fixture(params=[(heads, state) for heads in HEADS for state in STATES], ids=str)
def make_rig(request: pytest.FixtureRequest) -> Callable[..., Rig]:
    heads, state = request.param

    def make(**options: Any) -> Rig:
        return Rig(device="cuda", heads=heads, act=torch.bfloat16, state=state, **options)

    return make


def pools(rig: Rig) -> tuple[Tensor, Tensor]:
    return rig.ssm_pool.clone(), rig.conv_pool.clone()


def restore(rig: Rig, saved: tuple[Tensor, Tensor]) -> None:
    rig.ssm_pool.copy_(saved[0])
    rig.conv_pool.copy_(saved[1])


def capture(rig: Rig, run: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    saved = pools(rig)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    restore(rig, saved)
    return graph, out


def test_nothing_waits_for_the_device(
    make_rig: Callable[..., Rig], no_wait_for_the_device: Callable[[], AbstractContextManager[None]]
) -> None:
    rig = make_rig()
    tree = tuple(torch.tensor([links], device="cuda") for links in links_of(TREES[2]))
    tracks = {0: (7, 128), 2: (8, 64)}
    batches = [
        (330, lambda: rig.plan_prefill([200, 65, 64, 1], [1, 2, 3, 4], [0, 64, 0, 7], tracks)),
        (4, lambda: rig.plan_decode([1, 2, -1, 3])),
        (8, lambda: rig.plan_verify([1, 2], 4)),
        (6, lambda: rig.plan_verify([1], 6, tree)),
        (8, lambda: rig.plan_verify([1, 2], 4, record=True)),
        (6, lambda: rig.plan_verify([1], 6, tree, record=True)),
    ]
    for tokens, plan in batches:
        inputs, batch = rig.tokens(tokens), plan()
        batch.run(inputs)
        with no_wait_for_the_device():
            batch.run(inputs)
        if rig.backend._record is not None:
            commit = rig.plan_commit([1, -1][: tokens // 4], [7, 8][: tokens // 4], [0, -1][: tokens // 4])
            with no_wait_for_the_device():
                commit()
    projections, _, _ = rig.raw_projections(4)
    batch = rig.plan_decode([1, 2, -1, 3])
    with no_wait_for_the_device():
        batch.run((projections, projections[1], projections[1]))


def test_decode_of_the_raw_projections(make_rig: Callable[..., Rig]) -> None:
    split, raw = make_rig(), make_rig()
    projections, inputs, gate = split.raw_projections(5)
    expected = split.decode(inputs, [4, -1, 9, 1, 2])
    out, z = raw.decode((projections, projections[1], projections[1]), [4, -1, 9, 1, 2])
    assert torch.equal(out, expected) and torch.equal(z, gate)
    assert all(torch.equal(*pair) for pair in zip(pools(raw), pools(split), strict=True))


def whole_layer_of(rig: Rig, count: int, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    from sglang.kernels.ops.attention.fla import layernorm_gated

    monkeypatch.setattr(layernorm_gated, "check_cuda_graph_backend", lambda *_: False)
    norm = layernorm_gated.RMSNorm(rig.V, eps=1e-6, device="cuda", dtype=rig.act)
    norm.requires_grad_(False).weight.copy_(1 + rig.normal(rig.V) / 4)
    return whole_layer(rig, rig.raw_projections(count)[0], norm, monkeypatch)


def mode(**answers: bool) -> SimpleNamespace:
    asked = {"is_decode": False, "is_target_verify": False, "is_extend_without_speculative": False, **answers}
    return SimpleNamespace(**{name: lambda answer=answer: answer for name, answer in asked.items()})


def whole_and_stock(layer: Any, hidden_states: Tensor, batch: SimpleNamespace) -> tuple[Callable[[], Tensor], ...]:
    """The layer as the hook computes it, and as SGLang's own code does on our backend."""
    from sglang.srt.models.qwen3_5 import Qwen3_5GatedDeltaNet

    from sglang_gdn.serving import compat
    from sglang_gdn.serving.layers import WholeLayer

    def stock(*_: Any) -> Tensor:
        return inspect.unwrap(Qwen3_5GatedDeltaNet.forward)(layer, hidden_states, batch)

    def refuse(*_: Any) -> Tensor:
        raise AssertionError("left to SGLang")

    hook = WholeLayer(compat.select()[0], "contiguous")
    return lambda: hook(refuse, layer, hidden_states, batch), stock


def test_whole_layers_decode(make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replayed with padded rows: as eager; and as split, decoded and normalised in turn, which rounds twice."""
    rig = make_rig()
    layer = whole_layer_of(rig, 4, monkeypatch)
    batch = rig.plan_decode([-1] * 4)
    rig.backend.forward_metadata = batch._metadata
    indices = batch._metadata.mamba_cache_indices
    whole, stock = whole_and_stock(
        layer, rig.normal(4, 8), SimpleNamespace(extends=False, forward_mode=mode(is_decode=True))
    )
    graph, replayed = capture(rig, whole)
    before = pools(rig)
    for slots in ([1, 2, 3, 4], [9, 3, -1, -1]):
        indices.copy_(rig.integers(slots))
        restore(rig, before)
        expected = stock() if version("sglang") == "0.5.17" else None
        states = pools(rig)
        restore(rig, before)
        eager = whole()
        assert expected is None or all(torch.equal(*pair) for pair in zip(pools(rig), states, strict=True))
        restore(rig, before)
        graph.replay()
        assert torch.equal(replayed, eager)
        if expected is not None:
            assert_close(eager, expected, 2 * LIMITS["cuda"]["decode_o"][rig.act])


@pytest.mark.skipif("version('sglang') != '0.5.17'", reason="later lines read the projections in place themselves")
@pytest.mark.parametrize("padding", [None, 0, 7], ids=["eager", "graph", "padded graph"])
def test_whole_layers_prefill(
    padding: int | None,
    make_rig: Callable[..., Rig],
    monkeypatch: pytest.MonkeyPatch,
    no_wait_for_the_device: Callable[[], AbstractContextManager[None]],
) -> None:
    rig = make_rig()
    lengths = [130, 1, 64]
    layer = whole_layer_of(rig, sum(lengths) + (padding or 0), monkeypatch)
    planned = rig.plan_prefill(lengths, [1, 2, 3], [0, 64, 0], {0: (7, 128)})
    batch = planned._forward_batch
    batch.forward_mode = mode(is_extend_without_speculative=True)
    batch.num_token_non_padded_cpu = sum(lengths)
    whole, stock = whole_and_stock(layer, rig.normal(sum(lengths) + (padding or 0), 8), batch)
    before = pools(rig)
    graphs = "sglang.srt.model_executor.runner_backend_utils"
    if padding is not None:
        context = SimpleNamespace(forward_batch=batch)
        monkeypatch.setattr(f"{graphs}.tc_piecewise_cuda_graph.get_tc_piecewise_forward_context", lambda: context)
        monkeypatch.setattr(f"{graphs}.breakable_cuda_graph.is_in_breakable_cuda_graph", lambda: True)
    whole()
    restore(rig, before)
    with no_wait_for_the_device():
        out = whole()
    states = pools(rig)
    restore(rig, before)
    real = sum(lengths)
    qkvz, ba = layer._forward_input_proj(None)
    layer._forward_input_proj = lambda _: (qkvz[:real], ba[:real])
    expected = stock()
    assert all(torch.equal(*pair) for pair in zip(pools(rig), states, strict=True))
    assert_close(out[:real], expected, SPLIT[rig.act])


def test_replayed_decode_with_padded_rows(make_rig: Callable[..., Rig]) -> None:
    """Captured with no live row, as SGLang does; replayed with other slots, the last rows padded."""
    rig = make_rig()
    rows = 8
    inputs = rig.tokens(rows)
    indices = rig.integers([-1] * rows)
    batch = rig.plan_decode([-1] * rows)
    batch._metadata.mamba_cache_indices = indices
    graph, replayed = capture(rig, lambda: batch.run(inputs))
    before = pools(rig)
    for slots in ([1, 2, 3, 4, 5, 6, 7, 8], [9, 3, 1, -1, -1, -1, -1, -1], [-1] * rows):
        live = [slot for slot in slots if slot >= 0]
        restore(rig, before)
        eager = rig.decode(inputs, slots)
        expected = pools(rig)
        restore(rig, before)
        indices.copy_(rig.integers(slots))
        graph.replay()
        assert torch.equal(replayed, eager)
        assert all(torch.equal(*pair) for pair in zip(pools(rig), expected, strict=True))
        assert (replayed[0, len(live) :] == 0).all()
        idle = [slot for slot in range(rig.ssm_pool.shape[0]) if slot not in live]
        assert torch.equal(rig.ssm_pool[idle], before[0][idle])


@pytest.mark.parametrize("parents", TREES)
def test_replayed_tree_verify(make_rig: Callable[..., Rig], parents: list[int]) -> None:
    """Each replay reads the links of its own tree."""
    rig = make_rig()
    inputs = rig.tokens(len(parents))
    links = [torch.zeros((1, len(parents)), dtype=torch.int32, device="cuda") for _ in range(2)]
    batch = rig.plan_verify([4], len(parents), (links[0], links[1]))
    graph, replayed = capture(rig, lambda: batch.run(inputs))
    before = pools(rig)
    for static, now in zip(links, links_of(parents), strict=True):
        static.copy_(rig.integers([now]))
    graph.replay()
    assert all(torch.equal(*pair) for pair in zip(pools(rig), before, strict=True))
    out = replayed.clone()
    for token in range(len(parents)):
        path = [token]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        restore(rig, before)
        for step in path:
            stepped = rig.decode(rows_of(inputs, step, step + 1), [4])
        assert_close(out[0, token], stepped[0, 0], 2 * draft_output_limit("cuda", rig.act, rig.ssm_pool.dtype))


@pytest.mark.parametrize("parents", [None, TREES[2]], ids=["chain", "tree"])
def test_replayed_drafts_are_committed_from_their_record(
    make_rig: Callable[..., Rig], parents: list[int] | None
) -> None:
    """Captured with no live row; replayed with other slots, and committed outside of the graph, as SGLang does."""
    rig = make_rig()
    drafts = 4 if parents is None else len(parents)
    rows = 3
    tree = None
    if parents is not None:
        tree = tuple(torch.tensor([links] * rows, device="cuda") for links in links_of(parents))
    inputs = rig.tokens(rows * drafts)
    batch = rig.plan_verify([-1] * rows, drafts, tree, record=True)
    indices = batch._metadata.mamba_cache_indices
    graph, replayed = capture(rig, lambda: batch.run(inputs))
    before = pools(rig)
    for slots, last in (([1, 2, 3], [3, 0, -1]), ([9, 4, -1], [1, 2, -1])):
        restore(rig, before)
        eager = rig.plan_verify(slots, drafts, tree, record=True).run(inputs)
        rig.commit(last, [7, 8, -1], [0, -1, -1])
        expected = pools(rig)
        restore(rig, before)
        indices.copy_(rig.integers(slots))
        graph.replay()
        assert all(torch.equal(*pair) for pair in zip(pools(rig), before, strict=True))
        rig.backend.forward_metadata = batch._metadata
        rig.commit(last, [7, 8, -1], [0, -1, -1])
        assert torch.equal(replayed, eager)
        assert all(torch.equal(*pair) for pair in zip(pools(rig), expected, strict=True))
        if rig.ssm_pool.dtype == torch.float32:
            restore(rig, before)
            for row, (slot, step) in enumerate(zip(slots, last, strict=True)):
                path = [] if step < 0 else [step]
                while path and path[0] > 0:
                    path.insert(0, path[0] - 1 if parents is None else parents[path[0]])
                for token in path:
                    rig.decode(rows_of(inputs, row * drafts + token, row * drafts + token + 1), [slot])
            bound = fused_state_limit("cuda", "decode_state", torch.float32, rig.act)
            live = [slot for slot in slots if slot >= 0]
            assert_close(expected[0][live], rig.ssm_pool[live], 2 * bound)
            assert torch.equal(expected[1][live], rig.conv_pool[live])


@pytest.mark.parametrize("tail", [1, 63, 64, 65])
def test_continuing_from_a_snapshot_gives_the_same_bits(make_rig: Callable[..., Rig], tail: int) -> None:
    """Between the layers of a float32 state; a bfloat16 slot rounds what the whole prefill keeps in float32."""
    rig = make_rig()
    length = 128 + tail
    inputs = rig.tokens(length + 30)
    cold = rig.prefill(inputs, [length, 30], [1, 2], [0, 0], {0: (7, 128)})
    after = rig.ssm_pool[1].clone(), rig.conv_pool[1].clone()
    rig.ssm_pool[8], rig.conv_pool[8] = rig.ssm_pool[7], rig.conv_pool[7]
    hit = rig.prefill(rows_of(inputs, 128, length), [tail], [8], [128])
    assert torch.equal(rig.conv_pool[8], after[1])
    if rig.ssm_pool.dtype == torch.float32:
        assert torch.equal(hit[0], cold[0, 128:length])
        assert torch.equal(rig.ssm_pool[8], after[0])
    else:
        assert_close(hit[0], cold[0, 128:length], SPLIT[torch.bfloat16])


def test_snapshot_at_the_end_of_a_row(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.prefill(rig.tokens(192), [128, 64], [1, 2], [0, 0], {0: (7, 128)})
    assert torch.equal(rig.ssm_pool[7], rig.ssm_pool[1])
    assert torch.equal(rig.conv_pool[7], rig.conv_pool[1])


def test_bits_do_not_depend_on_the_batch(make_rig: Callable[..., Rig]) -> None:
    """What --enable-deterministic-inference asks of a GDN layer."""
    count = 64
    rig = make_rig(slots=count + 1)
    before = pools(rig)
    inputs = rig.tokens(count)
    slots = list(range(1, count + 1))
    together = rig.decode(inputs, slots)
    states = rig.ssm_pool.clone()
    for row in (0, 17, count - 1):
        restore(rig, before)
        assert torch.equal(rig.decode(rows_of(inputs, row, row + 1), [slots[row]])[0, 0], together[0, row])
        assert torch.equal(rig.ssm_pool[slots[row]], states[slots[row]])
    restore(rig, before)
    lengths = [300, 1, 64, 129, 65]
    inputs = rig.tokens(sum(lengths))
    plan = rig.plan_prefill(lengths, slots[: len(lengths)], [0, 64, 0, 5, 64])
    together = plan.run(inputs)
    states = rig.ssm_pool.clone()
    for row, prefix in ((0, 0), (3, 5), (4, 64)):
        restore(rig, before)
        start = sum(lengths[:row])
        alone = rig.prefill(rows_of(inputs, start, start + lengths[row]), [lengths[row]], [slots[row]], [prefix])
        assert torch.equal(alone[0], together[0, start : start + lengths[row]])
        assert torch.equal(rig.ssm_pool[slots[row]], states[slots[row]])


def test_repeated_runs_give_the_same_bits(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    before = pools(rig)
    inputs = rig.tokens(700)
    batch = rig.plan_prefill([500, 200], [1, 2], [0, 64], {0: (7, 448), 1: (8, 128)})
    runs = []
    for _ in range(5):
        restore(rig, before)
        runs.append([batch.run(inputs), *pools(rig)])
    for run in runs[1:]:
        assert all(torch.equal(*pair) for pair in zip(run, runs[0], strict=True))
