// Generated from python/gdn_aot/kernels/ascend/scaled_dot_kkt.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/scaled_dot_kkt.hpp"

namespace gdn::ascend {
namespace {

const Variant<ScaledDotKktArguments> kVariants[] = {
    {"gdn_ascend_scaled_dot_kkt_act_bf16", {DType::bf16}, {DType::bf16, DType::f32, DType::f32, DType::i32, DType::f32, DType::f32}},
    {"gdn_ascend_scaled_dot_kkt_act_f16", {DType::f16}, {DType::f16, DType::f32, DType::f32, DType::i32, DType::f32, DType::f32}},
};

}  // namespace

const Variant<ScaledDotKktArguments>* find_scaled_dot_kkt(DType act) {
  return find_variant(kVariants, {act});
}

void launch(const Variant<ScaledDotKktArguments>& variant, const ScaledDotKktArguments& arguments, void* stream) {
  expect_dtype(variant.name, "k", arguments.k, variant.tensors[0]);
  expect_dtype(variant.name, "head_gates", arguments.head_gates, variant.tensors[1]);
  expect_dtype(variant.name, "head_beta", arguments.head_beta, variant.tensors[2]);
  expect_dtype(variant.name, "query_start_loc", arguments.query_start_loc, variant.tensors[3]);
  expect_dtype(variant.name, "lower_", arguments.lower_, variant.tensors[4]);
  expect_dtype(variant.name, "workspace", arguments.workspace, variant.tensors[5]);
  launch_function<ScaledDotKktArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
