"""What every adapter to SGLang does: make ``gdn_tile`` selectable, bind the backend class, refuse what does not fit.

While SGLang resolves its arguments, the name ``gdn_tile`` is replaced by "not set", so that SGLang picks the softmax
backend by its own rules. In the worker, while SGLang builds the attention backend of a runner, its GDN class is bound
to ``GdnTileBackend``.

SGLang logs errors of plugins and carries on. Therefore the chain is verified at each link: in the main process when the
arguments are resolved, in the worker before the softmax backend is built, and on the backend that comes out.
"""

from __future__ import annotations

import functools
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from sglang_gdn import cpu_engine
from sglang_gdn.serving import layers
from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.serving.seams import Seam, problems
from sglang_gdn.stats import stats

if TYPE_CHECKING:
    from torch import Tensor

NAME = "gdn_tile"
SELECTING_FLAGS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
LINEAR_FLAGS = (
    "linear_attn_backend",
    "linear_attn_prefill_backend",
    "linear_attn_decode_backend",
    "linear_attn_verify_backend",
)

ARGUMENTS = "sglang.srt.server_args"
REGISTRY = "sglang.srt.layers.attention.attention_registry"
SETUP = "sglang.srt.model_executor.model_runner_components.attention_backend_setup"
GDN = "sglang.srt.layers.attention.linear.gdn_backend"
ASCEND = "sglang.srt.hardware_backend.npu.attention.ascend_gdn_backend"
HYBRID = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
METADATA = "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata"
POOL = "sglang.srt.mem_cache.memory_pool"
BATCH = "sglang.srt.model_executor.forward_batch_info:ForwardBatch"

# Used in every process.
START_SEAMS = (
    Seam("sglang.srt.plugins.hook_registry:HookRegistry.register", ("target", "hook", "hook_type", "source"), "hooks"),
    Seam("sglang.srt.plugins.hook_registry:HookRegistry.apply_hooks", (), "hooks"),
    Seam("sglang.srt.plugins.hook_registry:HookType.AROUND", None, "hooks"),
    Seam("sglang.srt.plugins.hook_registry:HookType.AFTER", None, "hooks"),
    Seam(f"{REGISTRY}:ATTENTION_BACKENDS", None, "verification before the softmax backend is built"),
    Seam(f"{REGISTRY}:attn_backend_wrapper", ("runner", "full_attn_backend"), "place where the GDN class is bound"),
)

# Used in workers that serve gdn_tile.
WORKER_SEAMS = (
    *layers.SEAMS,
    Seam(f"{SETUP}:attn_backend_wrapper", ("runner", "full_attn_backend"), "caller of the wrapper"),
    Seam(f"{GDN}:GDNAttnBackend", ("model_runner",), "base class"),
    Seam(f"{GDN}:GDNAttnBackend.init_forward_metadata", ("self", "forward_batch"), "row metadata"),
    Seam(
        f"{GDN}:GDNAttnBackend.forward_extend",
        ("self", "layer", "forward_batch", "mixed_qkv", "a", "b", "kwargs"),
        "prefill and verify",
    ),
    Seam(
        f"{GDN}:GDNAttnBackend.forward_decode",
        ("self", "layer", "forward_batch", "mixed_qkv", "a", "b", "kwargs"),
        "decode",
    ),
    Seam(
        f"{HYBRID}:HybridLinearAttnBackend", ("full_attn_backend", "linear_attn_backend", "full_attn_layers"), "result"
    ),
    Seam(
        f"{HYBRID}:HybridLinearAttnBackend.update_mamba_state_after_mtp_verify",
        (
            "self",
            "last_correct_step_indices",
            "mamba_track_indices",
            "mamba_steps_to_track",
            "model",
            "req_pool_indices",
        ),
        "accepted drafts",
    ),
    Seam(
        f"{HYBRID}:MambaAttnBackendBase._translate_mamba_indices", ("self", "mamba_indices"), "slots of accepted drafts"
    ),
    Seam(
        f"{HYBRID}:MambaAttnBackendBase._track_mamba_state_decode",
        ("self", "forward_batch", "conv_states", "ssm_states", "cache_indices", "layer_id"),
        "snapshots while decoding",
    ),
    Seam(
        f"{HYBRID}:MambaAttnBackendBase._init_track_ssm_indices",
        ("self", "mamba_cache_indices", "forward_batch"),
        "indices that are not needed",
    ),
    *(
        Seam(f"{METADATA}.{field}", None, "row metadata")
        for field in (
            "query_start_loc",
            "mamba_cache_indices",
            "has_mamba_track_mask",
            "mamba_track_mask_indices",
            "conv_states_mask_indices",
            "retrieve_next_token",
            "retrieve_next_sibling",
            "retrieve_parent_token",
        )
    ),
    *(
        Seam(f"{BATCH}.{field}", None, "row metadata")
        for field in (
            "extend_prefix_lens",
            "forward_mode",
            "spec_info",
            "mamba_track_seqlens",
            "batch_size",
            "input_ids",
            "rids",
            "_original_batch_size",
        )
    ),
    Seam(f"{ARGUMENTS}:ServerArgs.enable_metrics", None, "metrics"),
    Seam(f"{POOL}:HybridReqToTokenPool.mamba2_layer_cache", ("self", "layer_id"), "state pools"),
    Seam(f"{POOL}:HybridReqToTokenPool.get_speculative_mamba2_params_all_layers", ("self",), "state pools"),
    *(
        Seam(f"{POOL}:MambaPool.SpeculativeState.{field}", None, "state pools")
        for field in (
            "conv",
            "temporal",
            "replayssm_d",
            "replayssm_rawv",
            "intermediate_ssm",
            "intermediate_conv_window",
        )
    ),
)

# Used on an NPU besides those of every worker.
NPU_SEAMS = (
    Seam(f"{ASCEND}:AscendGDNAttnBackend", ("model_runner",), "base class on an NPU"),
    Seam(f"{ASCEND}:AscendGDNAttnBackend.init_forward_metadata", ("self", "forward_batch"), "row metadata"),
    Seam(
        f"{ASCEND}:AscendGDNAttnBackend.init_forward_metadata_out_graph",
        ("self", "forward_batch", "in_capture"),
        "row metadata",
    ),
    Seam(
        f"{ASCEND}:AscendGDNAttnBackend.forward_extend",
        ("self", "layer", "forward_batch", "mixed_qkv", "a", "b", "kwargs"),
        "prefill and verify",
    ),
    Seam(
        f"{ASCEND}:AscendGDNAttnBackend.forward_decode",
        ("self", "layer", "forward_batch", "mixed_qkv", "a", "b", "kwargs"),
        "decode",
    ),
    Seam(f"{BATCH}.mamba_track_mask", None, "rows that keep a snapshot"),
)


class Line(ABC):
    """One SGLang line.

    Attributes:
        version: the tested one.
        start_seams, worker_seams: every private symbol that is touched, in every process and in serving workers.
        npu_seams: besides those, on an NPU; none where this line does not serve NPUs.
        choices: module with ``ATTENTION_BACKEND_CHOICES`` and ``add_attention_backend_choices``.
        internal_state: method whose result is ``internal_states`` of ``/server_info``.
        track_index_tensors: length of what ``_init_track_ssm_indices`` returns.
    """

    version: ClassVar[str]
    start_seams: ClassVar[tuple[Seam, ...]]
    worker_seams: ClassVar[tuple[Seam, ...]]
    npu_seams: ClassVar[tuple[Seam, ...]] = ()
    choices: ClassVar[str]
    internal_state: ClassVar[str]
    track_index_tensors: ClassVar[int]

    def __init__(self) -> None:
        self._refusal: str | None = None
        self._hooks: dict[str, layers.WholeLayer] = {}

    @property
    def seams(self) -> tuple[Seam, ...]:
        return (*self.start_seams, *self.worker_seams)

    @abstractmethod
    def hook_resolution(self) -> None:
        """Arranges that ``replace_alias`` is called before SGLang resolves its arguments."""

    @abstractmethod
    def replace_alias(self, server_args: Any, flags: list[str]) -> None:
        """Makes the named flags "not set" for SGLang while ``asks_for_tile`` still knows."""

    @abstractmethod
    def asks_for_tile(self, server_args: Any) -> bool:
        """Whether ``gdn_tile`` was selected, asked in a worker."""

    @abstractmethod
    def prepare_runner(self, model_runner: Any) -> None:
        """Called before SGLang's own backend is initialised."""

    @abstractmethod
    def track_lens(self, forward_batch: Any) -> Tensor | None:
        """``[N]`` tokens of each row before the depth at which its states are kept; garbage for rows that keep none."""

    @abstractmethod
    def draft_rows(self, backend: Any, forward_batch: Any, cache_indices: Tensor) -> Tensor:
        """Row of the draft buffers of each row of the batch; at least as long as ``cache_indices``."""

    @abstractmethod
    def commits_at_once(self, req_to_token_pool: Any) -> bool:
        """Whether accepted drafts are committed before the next batch, and nothing but GDN states is kept of them."""

    def prefill_layer(self, layer: Any, hidden_states: Tensor, forward_batch: Any) -> Tensor | None:
        """A Qwen3.5 layer up to its last projection, where SGLang splits the projections of a prefill into new tensors.

        Returns:
            ``[T, HV*V]``, or None before anything was launched: SGLang's code must run.
        """
        return None

    def install(self, refusal: str | None) -> None:
        """Registers the backend's name and the hooks.

        Args:
            refusal: why ``gdn_tile`` may not be selected with this SGLang; raised when it is.
        """
        self._refusal = refusal
        from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        HookRegistry.register(f"{REGISTRY}.attn_backend_wrapper", self.build_with_tile_backend, HookType.AROUND)
        self.hook_resolution()
        for name, factory in list(ATTENTION_BACKENDS.items()):
            ATTENTION_BACKENDS[name] = self._verified(factory)
        ATTENTION_BACKENDS[NAME] = self._unresolved
        # Last, so that the name is accepted only where everything above is in place.
        choices = import_module(self.choices)
        if NAME not in choices.ATTENTION_BACKEND_CHOICES:
            choices.add_attention_backend_choices([NAME])

    def resolve_alias(self, server_args: Any) -> None:
        """``gdn_tile`` leaves the choice of the softmax backend to SGLang."""
        aliased = [flag for flag in SELECTING_FLAGS if getattr(server_args, flag) == NAME]
        if not aliased:
            return
        self._raise_if_refused()
        self.raise_for_problems(self.start_seams)
        self._raise_unless_bound()
        for flag in LINEAR_FLAGS:
            if getattr(server_args, flag) not in (None, "triton"):
                raise GdnServingError(
                    f"--{flag.replace('_', '-')} must be left alone with {NAME}; got {getattr(server_args, flag)!r}"
                )
        self.replace_alias(server_args, aliased)

    def selected(self, runner: Any) -> bool:
        """Whether the GDN layers of this runner are ours. Draft models keep SGLang's backends."""
        return not runner.is_draft_worker and self.asks_for_tile(runner.server_args)

    def build_with_tile_backend(self, original: Callable[..., Any], runner: Any, full_attn_backend: Any) -> Any:
        """AROUND hook of ``attn_backend_wrapper``, which looks up the GDN class when it runs."""
        if not self.selected(runner):
            return original(runner, full_attn_backend)
        module, name, tile_backend = _backend_classes(runner.device)
        stock = getattr(module, name)
        setattr(module, name, tile_backend)
        try:
            built = original(runner, full_attn_backend)
        finally:
            setattr(module, name, stock)
        linear: Any = getattr(built, "linear_attn_backend", None)
        if type(linear) is not tile_backend:
            architectures = getattr(runner.model_config.hf_config, "architectures", None)
            raise GdnServingError(
                f"{NAME} serves models with Gated DeltaNet layers; SGLang built "
                f"{type(linear or built).__name__} for {architectures}. Choose another --attention-backend"
            )
        if runner.device != "npu":
            built.update_mamba_state_after_mtp_verify = functools.partial(
                linear.commit_drafts, built.update_mamba_state_after_mtp_verify
            )
        return built

    def _verified(self, factory: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A softmax backend is built first in the worker; verify there that the GDN class will be bound."""

        @functools.wraps(factory)
        def build(runner: Any) -> Any:
            if self.selected(runner):
                self.verify_worker(runner)
            return factory(runner)

        return build

    def _unresolved(self, runner: Any) -> Any:
        self._raise_if_refused()
        raise GdnServingError(f"SGLang did not resolve the alias {NAME}: its hook did not run; the log says why above")

    def verify_worker(self, runner: Any) -> None:
        """Raises GdnServingError unless this worker is able to serve ``gdn_tile``."""
        self._raise_if_refused()
        raise_unless_device_serves(runner.device)
        if runner.device == "npu":
            if not self.npu_seams:
                raise GdnServingError(f"{NAME} does not serve NPUs with SGLang {self.version}")
            self.raise_for_problems(self.npu_seams)
        self.raise_for_problems(self.seams)
        self._raise_unless_bound()
        from sglang.srt.layers.attention import attention_registry
        from sglang.srt.model_executor.model_runner_components import attention_backend_setup

        if attention_backend_setup.attn_backend_wrapper is not attention_registry.attn_backend_wrapper:
            raise GdnServingError(f"{SETUP} calls an attn_backend_wrapper without the hook of {NAME}")
        self._hook_worker()

    def _raise_if_refused(self) -> None:
        if self._refusal is not None:
            raise GdnServingError(self._refusal)

    def raise_for_problems(self, seams: tuple[Seam, ...]) -> None:
        if found := problems(seams):
            raise GdnServingError("this SGLang is not the one gdn_tile was written for:\n  " + "\n  ".join(found))

    def _raise_unless_bound(self) -> None:
        from sglang.srt.layers.attention import attention_registry

        if not _is_wrapped_by(attention_registry.attn_backend_wrapper, self.build_with_tile_backend):
            raise GdnServingError(
                f"the hook of {NAME} on {REGISTRY}.attn_backend_wrapper is not applied; the log says why above"
            )

    def _hook_worker(self) -> None:
        """Adds the counters of this worker to ``internal_states`` of SGLang's ``/server_info``, and makes GDN layers
        whole."""
        if self._hooks:
            return
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        self._hooks = {
            f"{owner.replace(':', '.')}.forward": layers.WholeLayer(self, layout)
            for owner, layout in layers.LAYOUTS.items()
        }
        for target, hook in self._hooks.items():
            HookRegistry.register(target, hook, HookType.AROUND)
        HookRegistry.register(self.internal_state, _add_stats, HookType.AFTER)
        HookRegistry.apply_hooks()
        for target, hook in self._hooks.items():
            if not _is_wrapped_by(pkgutil.resolve_name(target), hook):
                raise GdnServingError(f"the hook of {NAME} on {target} is not applied; the log says why above")


def _backend_classes(device: str) -> tuple[Any, str, type[Any]]:
    """Module and name of SGLang's class for GDN layers, which the wrapper looks up when it runs, and ours."""
    if device == "npu":
        from sglang.srt.hardware_backend.npu.attention import ascend_gdn_backend

        from sglang_gdn.serving.ascend import GdnTileAscendBackend

        return ascend_gdn_backend, "AscendGDNAttnBackend", GdnTileAscendBackend
    from sglang.srt.layers.attention.linear import gdn_backend

    from sglang_gdn.serving.backend import GdnTileBackend

    return gdn_backend, "GDNAttnBackend", GdnTileBackend


def raise_unless_device_serves(device: str) -> None:
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
    elif device == "npu":
        from sglang_gdn import _C

        if not _C.build_info()["ascend"]:
            raise GdnServingError(
                f"{NAME} on an NPU needs a build with the Ascend kernels: `python -m sglang_gdn check`"
            )
    else:
        kind = "rocm" if device == "cuda" else device
        raise GdnServingError(f"{NAME} serves the devices cpu, cuda and npu with this SGLang; got {kind}")


def _is_wrapped_by(function: Any, hook: Callable[..., Any]) -> bool:
    """Whether ``hook`` is in the chain of wrappers that SGLang's hook registry built."""
    while function is not None:
        if any(cell.cell_contents == hook for cell in getattr(function, "__closure__", None) or ()):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def _add_stats(result: Any, *_: Any) -> None:
    result.internal_state["sglang_gdn"] = stats()
