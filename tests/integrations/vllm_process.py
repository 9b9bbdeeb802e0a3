"""Greedy tokens of ``examples/model`` from vLLM on a CPU, with its own GDN kernels or with ours.

    python -P tests/integrations/vllm_process.py stock|ours OUTPUT

vLLM calls other functions on a CPU than those that the plugin replaces on a GPU. With ``ours``, its CPU operator hands
the scheduler's metadata, the state blocks and the projections to the method that the plugin installs. Several prompts
run together, in chunks; one of them comes twice, for the prefix cache. OUTPUT gets tokens, versions and our calls.
"""  # fmt: skip

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SSM_CONV_STATE_LAYOUT": "DS",
}
MODEL = Path(__file__).parents[2] / "examples/model"
LENGTHS = (5, 64, 300, 129, 500, 17)
NEW_TOKENS = 24


def route_to_ours() -> None:
    """Registers as on a GPU with the release whose interface was recorded, and lets the CPU operator call that."""
    from vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn import QwenGatedDeltaNetAttention
    from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadata

    from sglang_gdn.integrations import vllm as plugin

    if not hasattr(GDNAttentionMetadata, "flashinfer_checkpoint_plan"):  # new in 0.33.0
        GDNAttentionMetadata.flashinfer_checkpoint_plan = None
    with (
        mock.patch.dict(os.environ, {plugin.SWITCH: "1"}),
        mock.patch.object(plugin, "version", lambda name: plugin.INTERFACE_OF),
        mock.patch.object(type(current_platform), "is_cuda", lambda platform: True),
    ):
        plugin.register()

    class Plain:
        """A layer with the convolution's weights as they were loaded; vLLM packs them for its CPU kernel."""

        def __init__(self, layer: Any) -> None:
            self.layer = layer
            weight = getattr(layer.conv1d, "_cpu_unpacked_conv_weight", layer.conv1d.weight)
            self.conv1d = mock.Mock(weight=weight.reshape(len(weight), 1, -1), bias=layer.conv1d.bias)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.layer, name)

    def call(layer: Any, metadata: Any, *tensors: Any) -> None:
        QwenGatedDeltaNetAttention._forward_core(Plain(layer), *tensors)

    gdn_attention._cpu_gdn_attention_nonspec = call


def main(kernels: str, output: str) -> None:
    import vllm

    from sglang_gdn.stats import stats

    if kernels == "ours":
        route_to_ours()
    engine = vllm.LLM(
        str(MODEL), dtype="bfloat16", distributed_executor_backend="uni", enforce_eager=True, max_model_len=2048,
        max_num_batched_tokens=128, max_num_seqs=4, gpu_memory_utilization=0.2,
    )  # fmt: skip
    text = (MODEL / "held_out.txt").read_text()
    prompts = [text[1000 * i : 1000 * i + length] for i, length in enumerate(LENGTHS)]
    greedy = vllm.SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    answers = [*engine.generate(prompts, greedy), *engine.generate(prompts[-2:-1], greedy)]
    record = {
        "vllm": vllm.__version__,
        "cached": [answer.num_cached_tokens for answer in answers],
        "tokens": [list(answer.outputs[0].token_ids) for answer in answers],
        "calls": stats()["calls"],
        "fallbacks": stats()["fallbacks"],
    }
    Path(output).write_text(json.dumps(record))


if __name__ == "__main__":
    main(*sys.argv[1:])
