"""Adapter to SGLang 0.5.23: the alias is a resolution hook, and the raw flag still says ``gdn_tile`` in the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sglang_gdn.serving.compat.line import (
    BATCH,
    GDN,
    HYBRID,
    METADATA,
    NAME,
    NPU_SEAMS,
    SELECTING_FLAGS,
    START_SEAMS,
    WORKER_SEAMS,
    Line,
)
from sglang_gdn.serving.seams import Seam

if TYPE_CHECKING:
    from torch import Tensor

_CHOICES = "sglang.srt.arg_groups.choices"
_LINEAR = "sglang.srt.layers.attention.linear.utils"
_INTERNAL_STATE = "sglang.srt.managers.scheduler_components.internal_state"
_OTHER_STATES = "sglang.srt.mem_cache.ple_state_pool"
_FIRST_RESOLUTION_STEP = "handle_deprecated_dp_attention"


class Sglang0523(Line):
    version = "0.5.23"
    start_seams = (
        *START_SEAMS,
        Seam(f"{_CHOICES}:ATTENTION_BACKEND_CHOICES", None, "name of the backend"),
        Seam(f"{_CHOICES}:add_attention_backend_choices", ("iterable",), "name of the backend"),
        Seam("sglang.srt.arg_groups.resolution_hooks:register_resolution_hook", ("name",), "alias"),
        Seam("sglang.srt.arg_groups.overrides:declare_resolution", ("server_args", "source", "fields"), "alias"),
    )
    worker_seams = (
        *WORKER_SEAMS,
        Seam(
            f"{HYBRID}:MambaAttnBackendBase._init_track_conv_indices",
            ("self", "query_start_loc", "forward_batch", "track_mask_indices"),
            "indices that are not needed",
        ),
        Seam(
            f"{GDN}:GDNAttnBackend.init_forward_metadata_out_graph",
            ("self", "forward_batch", "in_capture"),
            "row metadata",
        ),
        Seam(
            f"{GDN}:GDNAttnBackend._init_prefill_conv_block_table",
            ("self", "forward_batch"),
            "table that is not needed",
        ),
        Seam(f"{GDN}:GDNAttnBackend.supports_mis", None, "multi-item scoring is refused"),
        Seam(f"{GDN}:GDNAttnBackend.requires_contiguous_prefill_state", None, "pools with any slot pitch"),
        Seam(f"{_LINEAR}:LinearAttnBackends", ("decode", "prefill", "verify"), "kernels of the base class"),
        Seam(f"{_LINEAR}:LinearAttnKernelBackend.TRITON", None, "kernels of the base class"),
        Seam(
            f"{_LINEAR}:select_verify_intermediate_state_indices",
            ("default_indices", "req_pool_indices", "valid", "pool_size"),
            "rows of the draft buffers",
        ),
        Seam(f"{_LINEAR}:pp_spec_stable_rows_enabled", (), "when drafts are committed"),
        *(
            Seam(f"{_OTHER_STATES}:{pool}.enabled", None, "states besides those of GDN layers")
            for pool in ("ShortConvPool", "NGramPool")
        ),
        Seam(f"{METADATA}.conv_block_table", None, "row metadata"),
        Seam(f"{BATCH}.req_pool_indices", None, "rows of the draft buffers"),
        Seam(f"{BATCH}.mamba_track_aligned_lens", ("self",), "depth of a snapshot"),
        Seam(
            f"{_INTERNAL_STATE}:SchedulerInternalStateController.get_internal_state",
            ("self", "recv_req"),
            "counters in /server_info",
        ),
    )
    npu_seams = NPU_SEAMS
    choices = _CHOICES
    internal_state = f"{_INTERNAL_STATE}.SchedulerInternalStateController.get_internal_state"
    track_index_tensors = 9

    def hook_resolution(self) -> None:
        from sglang.srt.arg_groups.resolution_hooks import register_resolution_hook

        register_resolution_hook(_FIRST_RESOLUTION_STEP)(self._resolution_hook)

    def _resolution_hook(self, server_args: Any, previous: Callable[[Any], None]) -> None:
        self.resolve_alias(server_args)
        previous(server_args)

    def replace_alias(self, server_args: Any, flags: list[str]) -> None:
        from sglang.srt.arg_groups.overrides import declare_resolution

        declare_resolution(server_args, "sglang-gdn", **dict.fromkeys(flags))

    def asks_for_tile(self, server_args: Any) -> bool:
        return any(getattr(server_args, flag) == NAME for flag in SELECTING_FLAGS)

    def prepare_runner(self, model_runner: Any) -> None:
        """Otherwise SGLang may plan the checkpoints of another prefill kernel."""
        from sglang.srt.layers.attention.linear.utils import LinearAttnBackends, LinearAttnKernelBackend

        triton = LinearAttnKernelBackend.TRITON
        model_runner.linear_attn_backends = LinearAttnBackends(decode=triton, prefill=triton, verify=triton)

    def track_lens(self, forward_batch: Any) -> Tensor | None:
        return forward_batch.mamba_track_aligned_lens()

    def draft_rows(self, backend: Any, forward_batch: Any, cache_indices: Tensor) -> Tensor:
        from sglang.srt.layers.attention.linear.utils import select_verify_intermediate_state_indices

        return select_verify_intermediate_state_indices(
            backend.verify_intermediate_state_indices,
            forward_batch.req_pool_indices,
            cache_indices >= 0,
            backend.req_to_token_pool.size,
        )

    def commits_at_once(self, req_to_token_pool: Any) -> bool:
        from sglang.srt.layers.attention.linear.utils import pp_spec_stable_rows_enabled

        pool = req_to_token_pool
        return not (pp_spec_stable_rows_enabled() or pool.short_conv_pool.enabled or pool.ngram_pool.enabled)


LINE = Sglang0523()
