"""Counters, metrics and checks of states, on hand-made batches."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from serving.rig import LAYER, Rig
from serving.server import Service
from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.stats import count_batch, count_call, reset, stats

pytestmark = [pytest.mark.serving, pytest.mark.usefixtures("sglang_on_cpu"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    reset()


def batch(phase: str, rows: int, **fields: Any) -> SimpleNamespace:
    mode = SimpleNamespace(is_target_verify=lambda: phase == "verify", is_decode_or_idle=lambda: phase == "decode")
    return SimpleNamespace(forward_mode=mode, batch_size=rows, **fields)


@pytest.mark.parametrize(
    ("phase", "fields", "counted"),
    [
        ("decode", {}, {"rows": 8, "tokens": 8, "padded_rows": 0}),
        ("decode", {"num_padding": 3}, {"rows": 5, "tokens": 5, "padded_rows": 3}),
        ("decode", {"_original_batch_size": 6}, {"rows": 6, "tokens": 6, "padded_rows": 2}),
        ("prefill", {"input_ids": torch.zeros(90)}, {"rows": 8, "tokens": 90, "padded_rows": 0}),
        (
            "verify",
            {"num_padding": 1, "spec_info": SimpleNamespace(draft_token_num=4)},
            {"rows": 7, "tokens": 28, "padded_rows": 1},
        ),
    ],
)
def test_batches_are_counted(phase: str, fields: dict[str, Any], counted: dict[str, int]) -> None:
    from sglang_gdn.serving import observe

    given = batch(phase, 8, **fields)
    assert observe.phase_of(given) == phase
    assert observe.count(given, phase) == counted["rows"]
    assert stats()["phases"] == {phase: {"batches": 1, **counted}}


def make_checks(rig: Rig, monkeypatch: pytest.MonkeyPatch, **variables: str) -> Any:
    from sglang_gdn.serving import observe

    for name, value in {"SGLANG_GDN_DEBUG_STEPS": "1", **variables}.items():
        monkeypatch.setenv(name, value)
    return observe.StateChecks(rig.backend._layer_states)


def test_a_shared_slot_is_reported_with_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = make_checks(Rig(), monkeypatch)
    checks.check(torch.tensor([3, 4, -1, -1]), 4, ["a", "b"], None)
    with pytest.raises(GdnServingError, match="slot 4 belongs to two rows of a batch, 0 and 2; request b"):
        checks.check(torch.tensor([4, 3, 4]), 3, None, None)
    checks.check(torch.tensor([4, 3, 4]), 2, None, None)


@pytest.mark.parametrize("pool", ["conv_pool", "ssm_pool"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -2e4])
def test_a_bad_state_is_reported_with_its_request(pool: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    checks = make_checks(rig, monkeypatch)
    checks.check(torch.tensor([3, 4]), 2, ["a", "b"], None)
    getattr(rig, pool)[4].view(-1)[7] = value
    with pytest.raises(GdnServingError, match=f"state of layer {LAYER} in slot 4 must be finite .*; request b"):
        checks.check(torch.tensor([3, 4]), 2, None, None)
    # A row that starts from nothing does not read what its slot holds.
    checks.check(torch.tensor([3, 4]), 2, ["a", "c"], torch.tensor([True, False]))


def test_states_are_checked_every_so_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    checks = make_checks(rig, monkeypatch, SGLANG_GDN_DEBUG_STEPS="3", SGLANG_GDN_DEBUG_MAX_STATE="0.5")
    for _ in range(2):
        checks.check(torch.tensor([3]), 1, ["a"], None)
    with pytest.raises(GdnServingError, match=r"at most 0\.5"):
        checks.check(torch.tensor([3]), 1, ["a"], None)


def test_metrics_follow_the_counters() -> None:
    prometheus = pytest.importorskip("prometheus_client")
    from sglang_gdn.serving import observe

    metrics = observe.Metrics()

    def value(name: str, **labels: str) -> float | None:
        return prometheus.REGISTRY.get_sample_value(f"sglang_gdn_{name}_total", labels)

    count_call("gdn_decode", "cpu")
    count_batch("decode", 5, 5, 3)
    metrics.renew()
    count_batch("decode", 2, 2, 0)
    metrics.renew()
    metrics.renew()
    assert value("calls", operator="gdn_decode/cpu") == 1
    assert (value("rows", phase="decode"), value("padded_rows", phase="decode")) == (7, 3)
    assert value("batches", phase="decode") == 2


def published_tokens(service: Service) -> dict[str, float]:
    """Once two renewals, a second apart, have brought nothing new: earlier requests are published late, too."""
    tokens, since = service.server.metrics("sglang_gdn_tokens_total"), time.monotonic()
    while time.monotonic() < since + 2.5:
        time.sleep(0.2)
        latest = service.server.metrics("sglang_gdn_tokens_total")
        if latest != tokens:
            tokens, since = latest, time.monotonic()
    return tokens


@pytest.mark.parametrize("service", ["qwen3_5-extra_buffer"], indirect=True)
def test_a_server_publishes_metrics(service: Service) -> None:
    """A prompt of 70 tokens, prefilled once and decoded five times after its first token."""
    service.server.flush()
    before = published_tokens(service)
    service.server.generate(service.checkpoint.sample(70, seed=40).prompt, 6)
    after = published_tokens(service)
    gained = {phase: after[phase] - before.get(phase, 0) for phase in ("prefill", "decode")}
    assert gained["prefill"] == 70
    # Overlap scheduling may decode once more than it returns.
    assert gained["decode"] in (5, 6)


def test_ranges_only_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_gdn.serving import observe

    def method(self: Any, layer: Any) -> str:
        return "result"

    assert observe.nvtx_range(method) is method
    monkeypatch.setenv("SGLANG_GDN_NVTX", "1")
    names: list[str] = []

    class Range:
        def __init__(self, name: str) -> None:
            names.append(name)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(torch.cuda.nvtx, "range", Range)
    assert observe.nvtx_range(method)(None, SimpleNamespace(layer_id=7)) == "result"
    assert names == ["gdn_tile.method layer 7"]
