// Generated from python/gdn_aot/kernels/ascend/causal_conv1d_update.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/causal_conv1d_update.hpp"

namespace gdn::ascend {
namespace {

const Variant<CausalConv1dUpdateArguments> kVariants[] = {
    {"gdn_ascend_causal_conv1d_update_act_bf16_window_f32", {DType::bf16, DType::f32}, {DType::bf16, DType::bf16, DType::bf16, DType::f32, DType::i32, DType::f32, DType::i32, DType::bf16}},
    {"gdn_ascend_causal_conv1d_update_act_bf16_window_bf16", {DType::bf16, DType::bf16}, {DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::i32, DType::bf16, DType::i32, DType::bf16}},
    {"gdn_ascend_causal_conv1d_update_act_bf16_window_f16", {DType::bf16, DType::f16}, {DType::bf16, DType::bf16, DType::bf16, DType::f16, DType::i32, DType::f16, DType::i32, DType::bf16}},
    {"gdn_ascend_causal_conv1d_update_act_f16_window_f32", {DType::f16, DType::f32}, {DType::f16, DType::f16, DType::f16, DType::f32, DType::i32, DType::f32, DType::i32, DType::f16}},
    {"gdn_ascend_causal_conv1d_update_act_f16_window_bf16", {DType::f16, DType::bf16}, {DType::f16, DType::f16, DType::f16, DType::bf16, DType::i32, DType::bf16, DType::i32, DType::f16}},
    {"gdn_ascend_causal_conv1d_update_act_f16_window_f16", {DType::f16, DType::f16}, {DType::f16, DType::f16, DType::f16, DType::f16, DType::i32, DType::f16, DType::i32, DType::f16}},
};

}  // namespace

const Variant<CausalConv1dUpdateArguments>* find_causal_conv1d_update(DType act, DType window) {
  return find_variant(kVariants, {act, window});
}

void launch(const Variant<CausalConv1dUpdateArguments>& variant, const CausalConv1dUpdateArguments& arguments, void* stream) {
  expect_dtype(variant.name, "x", arguments.x, variant.tensors[0]);
  expect_dtype(variant.name, "weight", arguments.weight, variant.tensors[1]);
  expect_dtype(variant.name, "bias", arguments.bias, variant.tensors[2]);
  expect_dtype(variant.name, "conv_pool", arguments.conv_pool, variant.tensors[3]);
  expect_dtype(variant.name, "cache_indices", arguments.cache_indices, variant.tensors[4]);
  expect_dtype(variant.name, "windows", arguments.windows, variant.tensors[5]);
  expect_dtype(variant.name, "window_indices", arguments.window_indices, variant.tensors[6]);
  expect_dtype(variant.name, "out", arguments.out, variant.tensors[7]);
  launch_function<CausalConv1dUpdateArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
