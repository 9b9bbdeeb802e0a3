// Generated from python/gdn_aot/kernels/ascend/gdn_gating.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/gdn_gating.hpp"

namespace gdn::ascend {
namespace {

const Variant<GdnGatingArguments> kVariants[] = {
    {"gdn_ascend_gdn_gating_act_bf16_dt_bias_f32", {DType::bf16, DType::f32}, {DType::f32, DType::bf16, DType::bf16, DType::f32, DType::f32, DType::f32}},
    {"gdn_ascend_gdn_gating_act_bf16_dt_bias_bf16", {DType::bf16, DType::bf16}, {DType::f32, DType::bf16, DType::bf16, DType::bf16, DType::f32, DType::f32}},
    {"gdn_ascend_gdn_gating_act_f16_dt_bias_f32", {DType::f16, DType::f32}, {DType::f32, DType::f16, DType::f16, DType::f32, DType::f32, DType::f32}},
    {"gdn_ascend_gdn_gating_act_f16_dt_bias_f16", {DType::f16, DType::f16}, {DType::f32, DType::f16, DType::f16, DType::f16, DType::f32, DType::f32}},
};

}  // namespace

const Variant<GdnGatingArguments>* find_gdn_gating(DType act, DType dt_bias) {
  return find_variant(kVariants, {act, dt_bias});
}

void launch(const Variant<GdnGatingArguments>& variant, const GdnGatingArguments& arguments, void* stream) {
  expect_dtype(variant.name, "A_log", arguments.A_log, variant.tensors[0]);
  expect_dtype(variant.name, "a", arguments.a, variant.tensors[1]);
  expect_dtype(variant.name, "b", arguments.b, variant.tensors[2]);
  expect_dtype(variant.name, "dt_bias_weight", arguments.dt_bias_weight, variant.tensors[3]);
  expect_dtype(variant.name, "g", arguments.g, variant.tensors[4]);
  expect_dtype(variant.name, "beta", arguments.beta, variant.tensors[5]);
  launch_function<GdnGatingArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
