"""Faults for the CPU kernels: one changed snippet each, and the contract tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str  # below csrc/cpu
    snippet: str  # occurs exactly once
    replacement: str
    tests: tuple[str, ...]  # below tests/contract

    def __str__(self) -> str:
        return self.name


CHUNK = "chunk_gated_delta_rule.cpp"
UPDATE = "fused_sigmoid_gating_delta_rule_update.cpp"
CONV = "causal_conv1d.cpp"

MUTATIONS = [
    Mutation(
        "prefill-reads-key-head-h-modulo-H", CHUNK,
        "load_keys(args, shape, first_token, first_head / (shape.HV / shape.H), scratch);",
        "load_keys(args, shape, first_token, first_head % shape.H, scratch);",
        ("test_prefill.py::test_value_head_reads_key_head_of_its_group",),
    ),
    Mutation(
        "has-initial-state-ignored", CHUNK,
        "from_slot(flag_at(args.has_initial_state, row, true))",
        "from_slot(true)",
        ("test_slots.py::test_stale_slots_do_not_leak",),
    ),
    Mutation(
        "empty-row-zeroes-its-slot", CHUNK,
        "from_slot(flag_at(args.has_initial_state, row, true))",
        "from_slot(length > 0 && flag_at(args.has_initial_state, row, true))",
        ("test_slots.py::test_empty_row_keeps_its_state_and_separates_nothing",),
    ),
    Mutation(
        "padding-row-leaves-its-output-alone", CHUNK,
        "if (row.slot < 0) {\n    store_zeros(args, shape, row, first_chunk, first_head, heads);\n    return;",
        "if (row.slot < 0) {\n    return;",
        ("test_slots.py::test_patterns",),
    ),
    Mutation(
        "output-past-the-last-row-left-alone", CHUNK,
        "const int64_t zero_tasks = (tokens - end + kZeroRows - 1) / kZeroRows;",
        "const int64_t zero_tasks = (tokens - end + kZeroRows - 1) / kZeroRows * 0;",
        ("test_slots.py::test_output_rows_past_the_last_row_are_zero",),
    ),
    Mutation(
        "scale-ignored", CHUNK,
        "is_key ? 1.0f : args.scale",
        "is_key ? 1.0f : 1.0f",
        ("test_prefill.py::test_scale",),
    ),
    Mutation(
        "slot-pitch-ignored", CHUNK,
        "row.slot * args.ssm_pool.stride[0]",
        "row.slot * shape.HV * shape.state_elements()",
        ("test_layouts.py::test_slot_pitch",),
    ),
    Mutation(
        "slot-offset-in-32-bits", CHUNK,
        "row.slot * args.ssm_pool.stride[0]",
        "static_cast<int32_t>(row.slot * args.ssm_pool.stride[0])",
        ("test_slots.py::test_slots_past_32_bit_offsets",),
    ),
    Mutation(
        "snapshot-one-chunk-late", CHUNK,
        "if (row.track_chunk == chunk)",
        "if (row.track_chunk + 1 == chunk)",
        ("test_slots.py::test_snapshot_before_a_chunk",),
    ),
    Mutation(
        "decode-reads-another-key-head", UPDATE,
        "load_head_row(args.k, token_offset(args.k, row, t, key_head),",
        "load_head_row(args.k, token_offset(args.k, row, t, heads.H - 1 - key_head),",
        ("test_decode.py::test_update_ratios_head_sizes_and_state_dtypes",),
    ),
    Mutation(
        "beta-rounded-to-bfloat16-in-decode", UPDATE,
        "tokens[t].beta = sigmoid<kLanes>(splat(float_at(args.b, token_offset(args.b, n, t, head))))[0];",
        "const F beta = sigmoid<kLanes>(splat(float_at(args.b, token_offset(args.b, n, t, head))));\n"
        "    tokens[t].beta = F(VecU<kLanes>(beta) & 0xFFFF0000u)[0];",
        ("test_decode.py::test_beta_is_not_rounded_to_the_dtype_of_b",),
    ),
    Mutation(
        "tree-treated-as-a-chain", UPDATE,
        "if (!args_.parent_tokens) return token - 1;",
        "if (token >= 0) return token - 1;",
        ("test_verify.py::test_trees",),
    ),
    Mutation(
        "recorded-states-rounded-between-tokens", UPDATE,
        "dtype_(rounded ? args.ssm_pool.dtype : DType::f32)",
        "dtype_(args.ssm_pool.dtype)",
        ("test_fold.py::test_dtypes",),
    ),
    Mutation(
        "intermediate-states-in-the-row-of-the-batch", UPDATE,
        "return element_at(stored, stored_row_ * stored.stride[0] +",
        "return element_at(stored, n_ * stored.stride[0] +",
        ("test_verify.py::test_draft_counts",),
    ),
    Mutation(
        "l2norm-without-epsilon", "rows.cpp",
        "dot(dst, dst, padded) + kL2NormEps",
        "dot(dst, dst, padded)",
        ("test_prefill.py::test_epsilon_of_the_l2norm_is_inside_the_root",),
    ),
    Mutation(
        "l2norm-epsilon-outside-the-root", "rows.cpp",
        "1.0f / __builtin_sqrtf(dot(dst, dst, padded) + kL2NormEps)",
        "1.0f / (__builtin_sqrtf(dot(dst, dst, padded)) + kL2NormEps)",
        ("test_decode.py::test_epsilon_of_the_l2norm_is_inside_the_root",),
    ),
    Mutation(
        "beta-rounded-to-bfloat16-in-gating", "gdn_gating.cpp",
        "store(second + h, sigmoid<kLanes>(load(second + h)));",
        "store(second + h, F(VecU<kLanes>(sigmoid<kLanes>(load(second + h))) & 0xFFFF0000u));",
        ("test_gating.py::test_beta_over_the_bfloat16_grid_is_not_rounded",),
    ),
    Mutation(
        "keys-left-unnormalised-by-the-frontend", "gdn_frontend.cpp",
        "head < 2 * args.heads.num_k_heads;",
        "head < args.heads.num_k_heads;",
        ("test_frontend.py::test_l2norm_and_activation",),
    ),
    Mutation(
        "gates-as-a-quotient-that-overflows", "chunk_products.cpp",
        "const F decay = exp<kLanes>(token >= static_cast<int32_t>(j) ? difference : F{});",
        "const F kept = exp<kLanes>(load(gates.G_high + i)) * exp<kLanes>(splat(-gates.G_high[j]));\n"
        "      const F decay = token >= static_cast<int32_t>(j) ? kept + 0.0f * difference : F{};",
        ("test_prefill.py::test_gates_that_forget_everything_do_not_overflow",),
    ),
    Mutation(
        "row-pitch-of-the-input-ignored", CONV,
        "row * args.x.stride[0] + channel",
        "row * args.x.shape[1] + channel",
        ("test_layouts.py::test_views_of_the_fused_projections",),
    ),
    Mutation(
        "prefill-window-off-by-one", CONV,
        "window[j] = rows + (tokens + j) * padded;",
        "window[j] = rows + (tokens + j - (tokens > 0)) * padded;",
        ("test_conv1d.py::test_short_prompt_then_single_tokens",),
    ),
    Mutation(
        "update-window-off-by-one", CONV,
        "window[j] = rows[j + 1];",
        "window[j] = rows[j];",
        ("test_conv1d.py::test_update_dtypes_and_widths",),
    ),
    Mutation(
        "verify-commits-the-window", CONV,
        "if (t == tokens - 1 && !args.disable_state_update)",
        "if (t == tokens - 1)",
        ("test_verify.py::test_draft_counts",),
    ),
    Mutation(
        "norm-epsilon-outside-the-root", "gdn_decode.cpp",
        "1.0f / __builtin_sqrtf(dot(o, o, padded) / static_cast<float>(V) + args.norm_eps)",
        "1.0f / (__builtin_sqrtf(dot(o, o, padded) / static_cast<float>(V)) + args.norm_eps)",
        ("test_decode_extras.py::test_epsilon_of_the_norm_is_inside_the_root",),
    ),
    Mutation(
        "norm-gated-by-sigmoid-only", "gdn_decode.cpp",
        "args.norm_silu ? z_lanes * act : act",
        "act",
        ("test_decode_extras.py::test_norm_of_raw_projections", "test_decode_extras.py::test_norm"),
    ),
    Mutation(
        "norm-of-padding-from-its-gate", "gdn_decode.cpp",
        "if (slot_at(args.cache_indices, row, args.ssm_pool.shape[0]) < 0)",
        "if (false)",
        ("test_decode_extras.py::test_norm",),
    ),
    Mutation(
        "tracked-slots-ignored", "gdn_decode.cpp",
        "if (args.track_slots) gdn_commit(tracking_of(args));",
        "",
        ("test_decode_extras.py::test_tracked_rows_store_their_state_twice",),
    ),
    Mutation(
        "commit-takes-the-step-before", "gdn_commit.cpp",
        "slot_at(args.last_steps, n, draft_tokens);",
        "slot_at(args.last_steps, n, draft_tokens) - 1;",
        ("test_verify.py::test_commit_equals_feeding_the_accepted_tokens_one_by_one",),
    ),
    Mutation(
        "commit-does-not-bound-its-step", "gdn_commit.cpp",
        "slot_at(args.last_steps, n, draft_tokens);",
        "min(index_at(args.last_steps, n), draft_tokens - 1);",
        ("test_verify.py::test_commit_bounds_every_step",),
    ),
    Mutation(
        "fold-of-a-tree-takes-a-chain", "gdn_fold.cpp",
        "args.parent_tokens ? index_at(args.parent_tokens, n, token) : token - 1",
        "token - 1",
        ("test_fold.py::test_every_node_of_a_tree",),
    ),
    Mutation(
        "fold-decays-the-last-token", "gdn_fold.cpp",
        "    weight[i] = exp<kLanes>(splat(G))[0];\n    G += at(record.g)[head];",
        "    G += at(record.g)[head];\n    weight[i] = exp<kLanes>(splat(G))[0];",
        ("test_fold.py::test_draft_counts",),
    ),
    Mutation(
        "fold-reads-another-key-head", "gdn_fold.cpp",
        "head / (args.ssm_pool.shape[2] / record.k.shape[3])",
        "head % record.k.shape[3]",
        ("test_fold.py::test_heads",),
    ),
    Mutation(
        "tracked-states-made-from-the-committed-ones", "gdn_fold.cpp",
        "    if (args.track_slots) fold(slot_at(args.track_slots, n, slots), args.track_steps);\n"
        "    fold(slot, args.last_steps);",
        "    fold(slot, args.last_steps);\n"
        "    if (args.track_slots) fold(slot_at(args.track_slots, n, slots), args.track_steps);",
        ("test_fold.py::test_state_after_another_token_is_stored_to_a_track_slot",),
    ),
    Mutation(
        "minus-one-means-slot-0", "rows.hpp",
        "return slot >= 0 && slot < slots ? slot : -1;",
        "return slot >= 0 && slot < slots ? slot : 0;",
        ("test_slots.py::test_patterns", "test_slots.py::test_padding_rows_do_not_change_a_live_row"),
    ),
    Mutation(
        "int64-ids-read-as-int32", "rows.hpp",
        "const int64_t offset = i * t.stride[0];\n  return t.dtype == DType::i64 ? t.as<const int64_t>()",
        "const int64_t offset = i * t.stride[0];\n  return t.dtype == DType::i64 ? t.as<const int32_t>()",
        ("test_layouts.py::test_index_dtype",),
    ),
    Mutation(
        "softplus-linear-above-2", "simd.hpp",
        "return x > 20.0f ? x :",
        "return x > 2.0f ? x :",
        ("test_gating.py::test_against_the_oracle",),
    ),
]  # fmt: skip
