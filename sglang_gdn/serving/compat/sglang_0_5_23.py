"""Adapter to SGLang 0.5.23.

``gdn_tile`` is an alias: while SGLang resolves its arguments, the name is replaced by "not set", so that SGLang picks
the softmax backend by its own rules; the raw flag still says ``gdn_tile`` in the worker. There, while SGLang builds the
attention backend of a runner, its GDN class is bound to ``GdnTileBackend``.

SGLang logs errors of plugins and carries on. Therefore the chain is verified at each link: in the main process when the
arguments are resolved, in the worker before the softmax backend is built, and on the backend that comes out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sglang_gdn import cpu_engine
from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.serving.seams import Seam, problems
from sglang_gdn.stats import stats

VERSIONS = ("0.5.23",)
NAME = "gdn_tile"
SELECTING_FLAGS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
LINEAR_FLAGS = (
    "linear_attn_backend",
    "linear_attn_prefill_backend",
    "linear_attn_decode_backend",
    "linear_attn_verify_backend",
)

_REGISTRY = "sglang.srt.layers.attention.attention_registry"
_SETUP = "sglang.srt.model_executor.model_runner_components.attention_backend_setup"
_GDN = "sglang.srt.layers.attention.linear.gdn_backend"
_HYBRID = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_LINEAR = "sglang.srt.layers.attention.linear.utils"
_METADATA = "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata"
_POOL = "sglang.srt.mem_cache.memory_pool"
_BATCH = "sglang.srt.model_executor.forward_batch_info:ForwardBatch"
_INTERNAL_STATE = "sglang.srt.managers.scheduler_components.internal_state"
_FIRST_RESOLUTION_STEP = "handle_deprecated_dp_attention"

# Used in every process.
START_SEAMS = (
    Seam("sglang.srt.arg_groups.choices:ATTENTION_BACKEND_CHOICES", None, "name of the backend"),
    Seam("sglang.srt.arg_groups.choices:add_attention_backend_choices", None, "name of the backend"),
    Seam("sglang.srt.arg_groups.resolution_hooks:register_resolution_hook", ("name",), "alias"),
    Seam("sglang.srt.arg_groups.overrides:declare_resolution", ("server_args", "source", "fields"), "alias"),
    Seam("sglang.srt.plugins.hook_registry:HookRegistry.register", ("target", "hook", "hook_type", "source"), "hooks"),
    Seam("sglang.srt.plugins.hook_registry:HookRegistry.apply_hooks", (), "hooks"),
    Seam("sglang.srt.plugins.hook_registry:HookType.AROUND", None, "hooks"),
    Seam("sglang.srt.plugins.hook_registry:HookType.AFTER", None, "hooks"),
    Seam(f"{_REGISTRY}:ATTENTION_BACKENDS", None, "verification before the softmax backend is built"),
    Seam(f"{_REGISTRY}:attn_backend_wrapper", ("runner", "full_attn_backend"), "place where the GDN class is bound"),
)

# Used in workers that serve gdn_tile.
WORKER_SEAMS = (
    Seam(f"{_SETUP}:attn_backend_wrapper", ("runner", "full_attn_backend"), "caller of the wrapper"),
    Seam(f"{_GDN}:GDNAttnBackend", ("model_runner",), "base class"),
    Seam(f"{_GDN}:GDNAttnBackend.init_forward_metadata", ("self", "forward_batch"), "row metadata"),
    Seam(
        f"{_GDN}:GDNAttnBackend.forward_extend",
        ("self", "layer", "forward_batch", "mixed_qkv", "a", "b", "kwargs"),
        "prefill and verify",
    ),
    Seam(
        f"{_GDN}:GDNAttnBackend.forward_decode",
        ("self", "layer", "forward_batch", "mixed_qkv", "a", "b", "kwargs"),
        "decode",
    ),
    Seam(
        f"{_GDN}:GDNAttnBackend._init_prefill_conv_block_table", ("self", "forward_batch"), "table that is not needed"
    ),
    Seam(f"{_GDN}:GDNAttnBackend.supports_mis", None, "multi-item scoring is refused"),
    Seam(f"{_GDN}:GDNAttnBackend.requires_contiguous_prefill_state", None, "pools with any slot pitch"),
    Seam(
        f"{_HYBRID}:HybridLinearAttnBackend", ("full_attn_backend", "linear_attn_backend", "full_attn_layers"), "result"
    ),
    Seam(
        f"{_HYBRID}:MambaAttnBackendBase._track_mamba_state_decode",
        ("self", "forward_batch", "conv_states", "ssm_states", "cache_indices", "layer_id"),
        "snapshots while decoding",
    ),
    Seam(
        f"{_HYBRID}:MambaAttnBackendBase._track_mamba_state_extend",
        ("self", "forward_batch", "h", "ssm_states", "forward_metadata", "track_states", "h_track_buf"),
        "snapshots while prefilling",
    ),
    Seam(f"{_LINEAR}:LinearAttnBackends", ("decode", "prefill", "verify"), "kernels of the base class"),
    Seam(f"{_LINEAR}:LinearAttnKernelBackend.TRITON", None, "kernels of the base class"),
    Seam(
        f"{_LINEAR}:select_verify_intermediate_state_indices",
        ("default_indices", "req_pool_indices", "valid", "pool_size"),
        "rows of the draft buffers",
    ),
    *(
        Seam(f"{_METADATA}.{field}", None, "row metadata")
        for field in (
            "query_start_loc",
            "mamba_cache_indices",
            "has_mamba_track_mask",
            "mamba_track_mask_indices",
            "conv_states_mask_indices",
            "conv_block_table",
            "track_ssm_h_src",
            "track_chunk_idx",
            "retrieve_parent_token",
        )
    ),
    *(
        Seam(f"{_BATCH}.{field}", None, "row metadata")
        for field in ("extend_prefix_lens", "forward_mode", "spec_info", "req_pool_indices")
    ),
    Seam(f"{_BATCH}.mamba_track_aligned_lens", ("self",), "end of the conv snapshot"),
    Seam(f"{_POOL}:HybridReqToTokenPool.mamba2_layer_cache", ("self", "layer_id"), "state pools"),
    *(
        Seam(f"{_POOL}:MambaPool.SpeculativeState.{field}", None, "state pools")
        for field in (
            "conv",
            "temporal",
            "replayssm_d",
            "replayssm_rawv",
            "intermediate_ssm",
            "intermediate_conv_window",
        )
    ),
    Seam(
        f"{_INTERNAL_STATE}:SchedulerInternalStateController.get_internal_state",
        ("self", "recv_req"),
        "counters in /server_info",
    ),
)

SEAMS = (*START_SEAMS, *WORKER_SEAMS)

_refusal: str | None = None


def install(refusal: str | None) -> None:
    """Registers the backend's name and the hooks.

    Args:
        refusal: why ``gdn_tile`` may not be selected with this SGLang; raised when it is.
    """
    global _refusal
    _refusal = refusal
    from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES, add_attention_backend_choices
    from sglang.srt.arg_groups.resolution_hooks import register_resolution_hook
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{_REGISTRY}.attn_backend_wrapper", build_with_tile_backend, HookType.AROUND)
    register_resolution_hook(_FIRST_RESOLUTION_STEP)(resolve_alias)
    for name, factory in list(ATTENTION_BACKENDS.items()):
        ATTENTION_BACKENDS[name] = _verified(factory)
    ATTENTION_BACKENDS[NAME] = _unresolved
    # Last, so that the name is accepted only where everything above is in place.
    if NAME not in ATTENTION_BACKEND_CHOICES:
        add_attention_backend_choices([NAME])


def resolve_alias(server_args: Any, previous: Callable[[Any], None]) -> None:
    """Resolution hook: ``gdn_tile`` leaves the choice of the softmax backend to SGLang."""
    aliased = [flag for flag in SELECTING_FLAGS if getattr(server_args, flag) == NAME]
    if aliased:
        from sglang.srt.arg_groups.overrides import declare_resolution

        _raise_if_refused()
        _raise_for_problems(problems(START_SEAMS))
        _raise_unless_bound()
        for flag in LINEAR_FLAGS:
            if getattr(server_args, flag) not in (None, "triton"):
                raise GdnServingError(
                    f"--{flag.replace('_', '-')} must be left alone with {NAME}; got {getattr(server_args, flag)!r}"
                )
        declare_resolution(server_args, "sglang-gdn", **dict.fromkeys(aliased))
    previous(server_args)


def selected(runner: Any) -> bool:
    """Whether the GDN layers of this runner are ours. Draft models keep SGLang's backends."""
    return not runner.is_draft_worker and any(getattr(runner.server_args, flag) == NAME for flag in SELECTING_FLAGS)


def build_with_tile_backend(original: Callable[..., Any], runner: Any, full_attn_backend: Any) -> Any:
    """AROUND hook of ``attn_backend_wrapper``, which looks up the GDN class when it runs."""
    if not selected(runner):
        return original(runner, full_attn_backend)
    from sglang.srt.layers.attention.linear import gdn_backend

    from sglang_gdn.serving.backend import GdnTileBackend

    stock = gdn_backend.GDNAttnBackend
    gdn_backend.GDNAttnBackend = GdnTileBackend
    try:
        built = original(runner, full_attn_backend)
    finally:
        gdn_backend.GDNAttnBackend = stock
    linear = getattr(built, "linear_attn_backend", None)
    if type(linear) is not GdnTileBackend:
        architectures = getattr(runner.model_config.hf_config, "architectures", None)
        raise GdnServingError(
            f"{NAME} serves models with Gated DeltaNet layers; SGLang built "
            f"{type(linear or built).__name__} for {architectures}. Choose another --attention-backend"
        )
    return built


def _verified(factory: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A softmax backend is built first in the worker; verify there that the GDN class will be bound."""

    @functools.wraps(factory)
    def build(runner: Any) -> Any:
        if selected(runner):
            verify_worker(runner)
        return factory(runner)

    return build


def _unresolved(runner: Any) -> Any:
    _raise_if_refused()
    raise GdnServingError(f"SGLang did not resolve the alias {NAME}: the step {_FIRST_RESOLUTION_STEP} did not run")


def verify_worker(runner: Any) -> None:
    """Raises GdnServingError unless this worker is able to serve ``gdn_tile``."""
    _raise_if_refused()
    _raise_unless_device_serves(runner.device)
    _raise_for_problems(problems(SEAMS))
    _raise_unless_bound()
    from sglang.srt.layers.attention import attention_registry
    from sglang.srt.model_executor.model_runner_components import attention_backend_setup

    if attention_backend_setup.attn_backend_wrapper is not attention_registry.attn_backend_wrapper:
        raise GdnServingError(f"{_SETUP} calls an attn_backend_wrapper without the hook of {NAME}")
    _publish_stats()


def _raise_unless_device_serves(device: str) -> None:
    import torch

    if device == "cpu":
        if not cpu_engine.requested():
            raise GdnServingError(
                f"{NAME} on a CPU needs the CPU engine: start with `python -m sglang_gdn serve --device cpu MODEL`"
            )
    elif device == "cuda" and torch.version.hip is None:
        capability = torch.cuda.get_device_capability()
        if capability != (9, 0):
            raise GdnServingError(f"{NAME} needs a GPU of compute capability 9.0; got {capability[0]}.{capability[1]}")
    else:
        kind = "rocm" if device == "cuda" else device
        raise GdnServingError(f"{NAME} serves the devices cpu and cuda with this SGLang; got {kind}")


def _raise_if_refused() -> None:
    if _refusal is not None:
        raise GdnServingError(_refusal)


def _raise_for_problems(found: list[str]) -> None:
    if found:
        raise GdnServingError("this SGLang is not the one gdn_tile was written for:\n  " + "\n  ".join(found))


def _raise_unless_bound() -> None:
    from sglang.srt.layers.attention import attention_registry

    if not _is_wrapped_by(attention_registry.attn_backend_wrapper, build_with_tile_backend):
        raise GdnServingError(
            f"the hook of {NAME} on {_REGISTRY}.attn_backend_wrapper is not applied; the log says why above"
        )


def _is_wrapped_by(function: Any, hook: Callable[..., Any]) -> bool:
    """Whether ``hook`` is in the chain of wrappers that SGLang's hook registry built."""
    while function is not None:
        if any(cell.cell_contents is hook for cell in getattr(function, "__closure__", None) or ()):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


@functools.cache
def _publish_stats() -> None:
    """Adds the counters of this worker to ``internal_states`` of SGLang's ``/server_info``."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    target = f"{_INTERNAL_STATE}.SchedulerInternalStateController.get_internal_state"
    HookRegistry.register(target, _add_stats, HookType.AFTER)
    HookRegistry.apply_hooks()


def _add_stats(result: Any, *_: Any) -> None:
    result.internal_state["sglang_gdn"] = stats()
