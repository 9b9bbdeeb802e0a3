"""Adapter to SGLang 0.5.17, which has no resolution hooks: the alias is replaced before ``ServerArgs`` resolves itself,
and a private attribute, which travels to the workers with the record, says that ``gdn_tile`` was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from sglang_gdn.serving.compat.line import ARGUMENTS, BATCH, GDN, HYBRID, START_SEAMS, WORKER_SEAMS, Line
from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.serving.seams import Seam

if TYPE_CHECKING:
    from torch import Tensor

_SCHEDULER = "sglang.srt.managers.scheduler"
_CONTEXT = "sglang.srt.runtime_context"
_GRAPHS = "sglang.srt.model_executor.runner_backend_utils"
_NORM = "sglang.kernels.ops.attention.fla.layernorm_gated"
_MARK = "_sglang_gdn_tile"


class Sglang0517(Line):
    version = "0.5.17"
    start_seams = (
        *START_SEAMS,
        Seam(f"{ARGUMENTS}:ATTENTION_BACKEND_CHOICES", None, "name of the backend"),
        Seam(f"{ARGUMENTS}:add_attention_backend_choices", ("choices",), "name of the backend"),
        Seam(f"{ARGUMENTS}:ServerArgs.__post_init__", ("self",), "alias"),
        Seam(f"{ARGUMENTS}:ServerArgs.use_ray", None, "refused: copies of the arguments lose the mark"),
        Seam(f"{ARGUMENTS}:ServerArgs.enable_mis", None, "refused: multi-item scoring"),
    )
    worker_seams = (
        *WORKER_SEAMS,
        Seam(
            f"{HYBRID}:MambaAttnBackendBase._init_track_conv_indices",
            ("self", "query_start_loc", "forward_batch"),
            "indices that are not needed",
        ),
        Seam(
            f"{HYBRID}:MambaAttnBackendBase.init_forward_metadata_out_graph",
            ("self", "forward_batch", "in_capture"),
            "row metadata",
        ),
        Seam(f"{GDN}:build_verify_intermediate_state_indices", None, "rows of the draft buffers"),
        Seam(f"{_CONTEXT}:get_server_args", (), "grid of snapshots"),
        Seam(f"{ARGUMENTS}:ServerArgs.mamba_cache_chunk_size", None, "grid of snapshots"),
        Seam(f"{BATCH}.mamba_track_mask", None, "row metadata"),
        Seam(f"{_GRAPHS}.tc_piecewise_cuda_graph:get_tc_piecewise_forward_context", (), "prefill graphs"),
        Seam(f"{_GRAPHS}.breakable_cuda_graph:is_in_breakable_cuda_graph", (), "prefill graphs"),
        Seam(f"{_GRAPHS}.breakable_cuda_graph:eager_on_graph", ("enable", "capture_stub"), "prefill graphs"),
        Seam(
            f"{_NORM}:rms_norm_gated",
            (
                "x",
                "weight",
                "bias",
                "z",
                "eps",
                "group_size",
                "norm_before_gate",
                "is_rms_norm",
                "activation",
            ),
            "norm of whole layers",
        ),
        Seam(f"{_SCHEDULER}:Scheduler.get_internal_state", ("self", "recv_req"), "counters in /server_info"),
    )
    choices = ARGUMENTS
    internal_state = f"{_SCHEDULER}.Scheduler.get_internal_state"
    track_index_tensors = 4

    def hook_resolution(self) -> None:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        HookRegistry.register(f"{ARGUMENTS}.ServerArgs.__post_init__", self._resolution_hook, HookType.AROUND)

    def _resolution_hook(self, original: Callable[[Any], None], server_args: Any) -> None:
        self.resolve_alias(server_args)
        original(server_args)

    def replace_alias(self, server_args: Any, flags: list[str]) -> None:
        for flag in ("use_ray", "enable_mis"):
            if getattr(server_args, flag):
                raise GdnServingError(f"gdn_tile does not serve with --{flag.replace('_', '-')} on SGLang 0.5.17")
        setattr(server_args, _MARK, True)
        for flag in flags:
            setattr(server_args, flag, None)

    def asks_for_tile(self, server_args: Any) -> bool:
        return getattr(server_args, _MARK, False)

    def prepare_runner(self, model_runner: Any) -> None:
        """This SGLang has no other prefill kernel of its own choice on the GPUs that ``gdn_tile`` serves."""

    def track_lens(self, forward_batch: Any) -> Tensor | None:
        from sglang.srt.runtime_context import get_server_args

        if forward_batch.mamba_track_seqlens is None:
            return None
        grid = get_server_args().mamba_cache_chunk_size
        lens = forward_batch.mamba_track_seqlens - forward_batch.extend_prefix_lens
        return lens // grid * grid

    def draft_rows(self, backend: Any, forward_batch: Any, cache_indices: Tensor) -> Tensor:
        return backend.verify_intermediate_state_indices

    def commits_at_once(self, req_to_token_pool: Any) -> bool:
        return True

    def prefill_layer(self, layer: Any, hidden_states: Tensor, forward_batch: Any) -> Tensor | None:
        """The kernels read the projections in place, the norm its gate, and both write where the next reads."""
        from sglang.kernels.ops.attention.fla.layernorm_gated import rms_norm_gated
        from sglang.srt.model_executor.forward_context import get_attn_backend
        from sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph import (
            eager_on_graph,
            is_in_breakable_cuda_graph,
        )
        from sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph import (
            get_tc_piecewise_forward_context,
        )

        in_graph = get_tc_piecewise_forward_context() is not None
        if not forward_batch.forward_mode.is_extend_without_speculative():
            return None
        if in_graph and not is_in_breakable_cuda_graph():
            return None
        qkvz, ba = layer._forward_input_proj(hidden_states)
        attn, norm = layer.attn, layer.norm
        gate_columns = attn.num_v_heads * attn.head_v_dim
        qkv, z = qkvz.split([qkvz.shape[1] - gate_columns, gate_columns], dim=1)
        b, a = ba.chunk(2, dim=1)
        if in_graph:
            out = qkvz.new_empty((1, len(qkvz), attn.num_v_heads, attn.head_v_dim))
            eager_on_graph(True)(_attend_into)(attn, qkv, a, b, out)
        else:
            out = get_attn_backend().forward(layer=attn, forward_batch=forward_batch, mixed_qkv=qkv, a=a, b=b)
        rows = out.reshape(-1, gate_columns)
        if len(rows) < len(z):
            rows = torch.cat([rows, rows.new_zeros((len(z) - len(rows), gate_columns))])
        return rms_norm_gated(
            x=rows,
            weight=norm.weight.repeat(attn.num_v_heads),
            bias=None,
            z=z,
            eps=norm.eps,
            group_size=attn.head_v_dim,
            is_rms_norm=True,
            activation=norm.activation,
        )


def _attend_into(attn: Any, qkv: Tensor, a: Tensor, b: Tensor, out: Tensor) -> None:
    """Of the tokens of the batch that a breakable graph is replayed for."""
    from sglang.srt.model_executor.forward_context import get_attn_backend
    from sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph import get_tc_piecewise_forward_context

    forward_batch = get_tc_piecewise_forward_context().forward_batch
    tokens = forward_batch.num_token_non_padded_cpu
    get_attn_backend().forward(
        layer=attn,
        forward_batch=forward_batch,
        mixed_qkv=qkv[:tokens],
        a=a[:tokens],
        b=b[:tokens],
        linear_attn_output=out[:, :tokens],
    )


LINE = Sglang0517()
