"""The phases of serving and the operators that each runs."""

from __future__ import annotations

# Phase -> the fused operator, and what it is composed of on a device that has no kernel for it.
PHASES = {
    "prefill": ("gdn_prefill", ("causal_conv1d", "gdn_gating", "chunk_gated_delta_rule")),
    "decode": ("gdn_decode", ("causal_conv1d_update", "fused_sigmoid_gating_delta_rule_update")),
    "verify": ("gdn_verify", ("causal_conv1d_update", "fused_sigmoid_gating_delta_rule_update")),
}
