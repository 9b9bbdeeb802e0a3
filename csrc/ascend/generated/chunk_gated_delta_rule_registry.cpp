// Generated from python/gdn_aot/kernels/ascend/chunk_gated_delta_rule.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/chunk_gated_delta_rule.hpp"

namespace gdn::ascend {
namespace {

const Variant<ChunkGatedDeltaRuleArguments> kVariants[] = {
    {"gdn_ascend_chunk_gated_delta_rule_act_bf16", {DType::bf16}, {DType::bf16, DType::bf16, DType::bf16, DType::f32, DType::f32, DType::f32, DType::i32, DType::i32, DType::boolean, DType::f32, DType::i32, DType::f32, DType::bf16, DType::f32, DType::f32, DType::f32, DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::f32, DType::f32, DType::bf16, DType::bf16, DType::f32, DType::bf16}},
    {"gdn_ascend_chunk_gated_delta_rule_act_f16", {DType::f16}, {DType::f16, DType::f16, DType::f16, DType::f32, DType::f32, DType::f32, DType::i32, DType::i32, DType::boolean, DType::f32, DType::i32, DType::f32, DType::f16, DType::f32, DType::f32, DType::f32, DType::f16, DType::f16, DType::f16, DType::f16, DType::f16, DType::f32, DType::f32, DType::f16, DType::f16, DType::f32, DType::f16}},
};

}  // namespace

const Variant<ChunkGatedDeltaRuleArguments>* find_chunk_gated_delta_rule(DType act) {
  return find_variant(kVariants, {act});
}

void launch(const Variant<ChunkGatedDeltaRuleArguments>& variant, const ChunkGatedDeltaRuleArguments& arguments, void* stream) {
  expect_dtype(variant.name, "q", arguments.q, variant.tensors[0]);
  expect_dtype(variant.name, "k", arguments.k, variant.tensors[1]);
  expect_dtype(variant.name, "v", arguments.v, variant.tensors[2]);
  expect_dtype(variant.name, "g", arguments.g, variant.tensors[3]);
  expect_dtype(variant.name, "beta", arguments.beta, variant.tensors[4]);
  expect_dtype(variant.name, "ssm_pool", arguments.ssm_pool, variant.tensors[5]);
  expect_dtype(variant.name, "query_start_loc", arguments.query_start_loc, variant.tensors[6]);
  expect_dtype(variant.name, "cache_indices", arguments.cache_indices, variant.tensors[7]);
  expect_dtype(variant.name, "has_initial_state", arguments.has_initial_state, variant.tensors[8]);
  expect_dtype(variant.name, "track_state", arguments.track_state, variant.tensors[9]);
  expect_dtype(variant.name, "track_chunk_idx", arguments.track_chunk_idx, variant.tensors[10]);
  expect_dtype(variant.name, "chunk_states", arguments.chunk_states, variant.tensors[11]);
  expect_dtype(variant.name, "out", arguments.out, variant.tensors[12]);
  expect_dtype(variant.name, "head_gates", arguments.head_gates, variant.tensors[13]);
  expect_dtype(variant.name, "head_beta", arguments.head_beta, variant.tensors[14]);
  expect_dtype(variant.name, "lower_", arguments.lower_, variant.tensors[15]);
  expect_dtype(variant.name, "write", arguments.write, variant.tensors[16]);
  expect_dtype(variant.name, "erase", arguments.erase, variant.tensors[17]);
  expect_dtype(variant.name, "w", arguments.w, variant.tensors[18]);
  expect_dtype(variant.name, "h", arguments.h, variant.tensors[19]);
  expect_dtype(variant.name, "v_new", arguments.v_new, variant.tensors[20]);
  expect_dtype(variant.name, "product_space", arguments.product_space, variant.tensors[21]);
  expect_dtype(variant.name, "norm_space", arguments.norm_space, variant.tensors[22]);
  expect_dtype(variant.name, "diagonal_space", arguments.diagonal_space, variant.tensors[23]);
  expect_dtype(variant.name, "weight_space", arguments.weight_space, variant.tensors[24]);
  expect_dtype(variant.name, "state_space", arguments.state_space, variant.tensors[25]);
  expect_dtype(variant.name, "identity_space", arguments.identity_space, variant.tensors[26]);
  launch_function<ChunkGatedDeltaRuleArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
