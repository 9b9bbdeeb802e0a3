// Generated from python/gdn_aot/kernels/ascend/fused_sigmoid_gating_delta_rule_update.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/fused_sigmoid_gating_delta_rule_update.hpp"

namespace gdn::ascend {
namespace {

const Variant<FusedSigmoidGatingDeltaRuleUpdateArguments> kVariants[] = {
    {"gdn_ascend_fused_sigmoid_gating_delta_rule_update_act_bf16_dt_bias_f32", {DType::bf16, DType::f32}, {DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::f32, DType::f32, DType::f32, DType::i32, DType::f32, DType::i32, DType::bf16}},
    {"gdn_ascend_fused_sigmoid_gating_delta_rule_update_act_bf16_dt_bias_bf16", {DType::bf16, DType::bf16}, {DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::f32, DType::bf16, DType::f32, DType::i32, DType::f32, DType::i32, DType::bf16}},
    {"gdn_ascend_fused_sigmoid_gating_delta_rule_update_act_f16_dt_bias_f32", {DType::f16, DType::f32}, {DType::f16, DType::f16, DType::f16, DType::f16, DType::f16, DType::f32, DType::f32, DType::f32, DType::i32, DType::f32, DType::i32, DType::f16}},
    {"gdn_ascend_fused_sigmoid_gating_delta_rule_update_act_f16_dt_bias_f16", {DType::f16, DType::f16}, {DType::f16, DType::f16, DType::f16, DType::f16, DType::f16, DType::f32, DType::f16, DType::f32, DType::i32, DType::f32, DType::i32, DType::f16}},
};

}  // namespace

const Variant<FusedSigmoidGatingDeltaRuleUpdateArguments>* find_fused_sigmoid_gating_delta_rule_update(DType act, DType dt_bias) {
  return find_variant(kVariants, {act, dt_bias});
}

void launch(const Variant<FusedSigmoidGatingDeltaRuleUpdateArguments>& variant, const FusedSigmoidGatingDeltaRuleUpdateArguments& arguments, void* stream) {
  expect_dtype(variant.name, "q", arguments.q, variant.tensors[0]);
  expect_dtype(variant.name, "k", arguments.k, variant.tensors[1]);
  expect_dtype(variant.name, "v", arguments.v, variant.tensors[2]);
  expect_dtype(variant.name, "a", arguments.a, variant.tensors[3]);
  expect_dtype(variant.name, "b", arguments.b, variant.tensors[4]);
  expect_dtype(variant.name, "A_log", arguments.A_log, variant.tensors[5]);
  expect_dtype(variant.name, "dt_bias_weight", arguments.dt_bias_weight, variant.tensors[6]);
  expect_dtype(variant.name, "ssm_pool", arguments.ssm_pool, variant.tensors[7]);
  expect_dtype(variant.name, "cache_indices", arguments.cache_indices, variant.tensors[8]);
  expect_dtype(variant.name, "states", arguments.states, variant.tensors[9]);
  expect_dtype(variant.name, "state_indices", arguments.state_indices, variant.tensors[10]);
  expect_dtype(variant.name, "out", arguments.out, variant.tensors[11]);
  launch_function<FusedSigmoidGatingDeltaRuleUpdateArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
