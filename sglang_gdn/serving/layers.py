"""GDN layers whose work around the backend is ours as well.

Between its projections, a layer of SGLang's models splits what they return into new tensors, calls the backend, and
normalises and gates the result. While decoding, ``gdn_decode`` does all of it in one launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from sglang_gdn.serving.seams import Seam

if TYPE_CHECKING:
    from sglang_gdn.serving.compat.line import Line

# Class -> order of the columns of its projections.
LAYOUTS = {
    "sglang.srt.models.qwen3_5:Qwen3_5GatedDeltaNet": "contiguous",
    "sglang.srt.models.qwen3_next:Qwen3GatedDeltaNet": "interleaved",
}
CONTEXT = "sglang.srt.model_executor.forward_context"
SEAMS = (
    Seam(f"{CONTEXT}:get_attn_backend", (), "which backend runs"),
    Seam(
        "sglang.srt.layers.radix_linear_attention:RadixLinearAttention.forward",
        ("self", "forward_batch", "mixed_qkv", "a", "b"),
        "call of the backend",
    ),
    *(
        seam
        for layer in LAYOUTS
        for seam in (
            Seam(f"{layer}.forward", ("self", "hidden_states", "forward_batch"), "whole layers"),
            Seam(f"{layer}._forward_input_proj", ("self", "hidden_states"), "whole layers"),
        )
    ),
)


class WholeLayer:
    """AROUND hook of the ``forward`` of a layer class."""

    def __init__(self, line: Line, layout: str) -> None:
        self._line, self._layout = line, layout

    def __call__(self, original: Callable[..., Any], layer: Any, hidden_states: Any, forward_batch: Any) -> Any:
        gated = self._gated_output(layer, hidden_states, forward_batch)
        return original(layer, hidden_states, forward_batch) if gated is None else layer.out_proj(gated)[0]

    def _gated_output(self, layer: Any, hidden_states: Any, forward_batch: Any) -> torch.Tensor | None:
        """``[T, HV*V]``, or None before anything was launched: SGLang's code must run."""
        if torch.compiler.is_compiling() or not isinstance(hidden_states, torch.Tensor) or len(hidden_states) == 0:
            return None
        backend = _tile_backend()
        if backend is None:
            return None
        if forward_batch.forward_mode.is_decode() and backend.decodes_whole_layers:
            from sglang_gdn.serving.backend import Projections

            qkvz, ba = layer._forward_input_proj(hidden_states)
            projections = Projections(qkvz, ba, self._layout, layer.norm)
            return layer.attn(forward_batch, mixed_qkv=projections, a=ba, b=ba).squeeze(0).flatten(1)
        if self._layout == "contiguous":
            return self._line.prefill_layer(layer, hidden_states, forward_batch)
        return None


def _tile_backend() -> Any:
    """The backend of the running model's GDN layers if it is ours, else None."""
    from sglang.srt.model_executor.forward_context import get_attn_backend

    from sglang_gdn.serving.backend import GdnTileBackend

    backend = getattr(get_attn_backend(), "linear_attn_backend", None)
    return backend if isinstance(backend, GdnTileBackend) else None
