"""What a serving worker lets its operator see: counters, Prometheus metrics, checks of the states, NVTX ranges."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.stats import count_batch, stats

METRICS_SECONDS = 1.0


def phase_of(forward_batch: Any) -> str:
    mode = forward_batch.forward_mode
    if mode.is_target_verify():
        return "verify"
    return "decode" if mode.is_decode_or_idle() else "prefill"


def count(forward_batch: Any, phase: str) -> int:
    """Counts a batch whose metadata is planned; returns its live rows. Reads nothing from the device."""
    rows = forward_batch.batch_size
    padded = getattr(forward_batch, "num_padding", None)
    if padded is None:
        real = getattr(forward_batch, "_original_batch_size", None)
        padded = 0 if real is None else max(rows - real, 0)
    live = rows - int(padded)
    tokens = live
    if phase == "prefill":
        tokens = forward_batch.input_ids.shape[0]
    elif phase == "verify":
        tokens = live * forward_batch.spec_info.draft_token_num
    count_batch(phase, live, tokens, rows - live)
    return live


class StateChecks:
    """``SGLANG_GDN_DEBUG=1``: waits for the device in every batch.

    Every batch: no slot twice. Every ``SGLANG_GDN_DEBUG_STEPS`` batches: the states that the batch continues are finite
    and no entry is larger than ``SGLANG_GDN_DEBUG_MAX_STATE``.
    """

    def __init__(self, layer_states: Callable[[], Iterator[tuple[int, Tensor, Tensor]]]) -> None:
        """
        Args:
            layer_states: yields (layer, conv pool ``[slots, D, W-1]``, SSM pool ``[slots, HV, V, K]``).
        """
        self._layer_states = layer_states
        self._every = int(os.environ.get("SGLANG_GDN_DEBUG_STEPS", "16"))
        self._largest = float(os.environ.get("SGLANG_GDN_DEBUG_MAX_STATE", "1e4"))
        self._batches = 0
        self._requests: dict[int, str] = {}

    @staticmethod
    def asked_for() -> bool:
        return os.environ.get("SGLANG_GDN_DEBUG", "0") == "1"

    def check(self, cache_indices: Tensor, live: int, rids: list[str] | None, continued: Tensor | None) -> None:
        """
        Args:
            cache_indices: ``[N]`` slot of each row.
            live: rows before the padded ones.
            rids: request of each live row where SGLang says so; graphs do not, their slots were seen in a prefill.
            continued: ``[N]`` bool, rows that start from their slot; None for all.

        Raises:
            GdnServingError: names the request.
        """
        slots = cache_indices[:live].tolist()
        for row, slot in enumerate(slots):
            if rids is not None and row < len(rids):
                self._requests[slot] = rids[row]
        for row, slot in enumerate(slots):
            if slot >= 0 and slot in slots[:row]:
                raise GdnServingError(
                    f"slot {slot} belongs to two rows of a batch, {slots.index(slot)} and {row}; "
                    f"request {self._requests.get(slot)}"
                )
        self._batches += 1
        if self._batches % self._every:
            return
        wanted = continued[:live].tolist() if continued is not None else [True] * live
        slots = [slot for slot, reads in zip(slots, wanted, strict=True) if reads and slot >= 0]
        if not slots:
            return
        for layer, conv, ssm in self._layer_states():
            for name, pool in (("conv", conv), ("ssm", ssm)):
                largest = pool[slots].float().abs().flatten(1).amax(1).tolist()
                for slot, value in zip(slots, largest, strict=True):
                    if not value <= self._largest:
                        raise GdnServingError(
                            f"the {name} state of layer {layer} in slot {slot} must be finite and at most "
                            f"{self._largest:g}; got {value}; request {self._requests.get(slot)}"
                        )


def nvtx_range(method: Callable[..., Any]) -> Callable[..., Any]:
    """Under ``SGLANG_GDN_NVTX=1``, when the module is imported: a range with the layer in NVIDIA's profilers."""
    if os.environ.get("SGLANG_GDN_NVTX", "0") != "1":
        return method

    @functools.wraps(method)
    def ranged(self: Any, layer: Any, *arguments: Any, **keywords: Any) -> Any:
        with torch.cuda.nvtx.range(f"gdn_tile.{method.__name__} layer {layer.layer_id}"):
            return method(self, layer, *arguments, **keywords)

    return ranged


class Metrics:
    """The counters as Prometheus metrics, beside SGLang's own in ``/metrics``; renewed every second by a thread."""

    def __init__(self) -> None:
        # SGLang sets PROMETHEUS_MULTIPROC_DIR, which this import reads.
        from prometheus_client import Counter

        def counter(name: str, text: str, *labels: str) -> Any:
            return Counter(f"sglang_gdn_{name}", text, labels)

        self._counters = {
            "calls": counter("calls", "Operator calls from Python; graph replays make none.", "operator"),
            "fallbacks": counter("fallbacks", "Calls that took a slower path.", "reason"),
            "batches": counter("batches", "Batches.", "phase"),
            "rows": counter("rows", "Rows of batches that belong to a request.", "phase"),
            "tokens": counter("tokens", "Tokens of those rows.", "phase"),
            "padded_rows": counter("padded_rows", "Rows of batches that belong to no request.", "phase"),
        }
        self._published: dict[tuple[str, str], int] = {}

    def start(self) -> None:
        threading.Thread(target=self._renew_forever, name="sglang-gdn-metrics", daemon=True).start()

    def renew(self) -> None:
        now = stats()
        values = {("calls", key): value for key, value in now["calls"].items()}
        values |= {("fallbacks", key): value for key, value in now["fallbacks"].items()}
        values |= {(name, phase): n for phase, counts in now["phases"].items() for name, n in counts.items()}
        for (name, label), value in values.items():
            self._counters[name].labels(label).inc(value - self._published.get((name, label), 0))
        self._published = values

    def _renew_forever(self) -> None:
        while True:
            time.sleep(METRICS_SECONDS)
            self.renew()
