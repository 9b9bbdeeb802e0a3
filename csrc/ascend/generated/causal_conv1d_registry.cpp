// Generated from python/gdn_aot/kernels/ascend/causal_conv1d.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/causal_conv1d.hpp"

namespace gdn::ascend {
namespace {

const Variant<CausalConv1dArguments> kVariants[] = {
    {"gdn_ascend_causal_conv1d_act_bf16_window_f32", {DType::bf16, DType::f32}, {DType::bf16, DType::bf16, DType::bf16, DType::f32, DType::i32, DType::i32, DType::boolean, DType::i32, DType::i32, DType::bf16}},
    {"gdn_ascend_causal_conv1d_act_bf16_window_bf16", {DType::bf16, DType::bf16}, {DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::i32, DType::i32, DType::boolean, DType::i32, DType::i32, DType::bf16}},
    {"gdn_ascend_causal_conv1d_act_bf16_window_f16", {DType::bf16, DType::f16}, {DType::bf16, DType::bf16, DType::bf16, DType::f16, DType::i32, DType::i32, DType::boolean, DType::i32, DType::i32, DType::bf16}},
    {"gdn_ascend_causal_conv1d_act_f16_window_f32", {DType::f16, DType::f32}, {DType::f16, DType::f16, DType::f16, DType::f32, DType::i32, DType::i32, DType::boolean, DType::i32, DType::i32, DType::f16}},
    {"gdn_ascend_causal_conv1d_act_f16_window_bf16", {DType::f16, DType::bf16}, {DType::f16, DType::f16, DType::f16, DType::bf16, DType::i32, DType::i32, DType::boolean, DType::i32, DType::i32, DType::f16}},
    {"gdn_ascend_causal_conv1d_act_f16_window_f16", {DType::f16, DType::f16}, {DType::f16, DType::f16, DType::f16, DType::f16, DType::i32, DType::i32, DType::boolean, DType::i32, DType::i32, DType::f16}},
};

}  // namespace

const Variant<CausalConv1dArguments>* find_causal_conv1d(DType act, DType window) {
  return find_variant(kVariants, {act, window});
}

void launch(const Variant<CausalConv1dArguments>& variant, const CausalConv1dArguments& arguments, void* stream) {
  expect_dtype(variant.name, "x", arguments.x, variant.tensors[0]);
  expect_dtype(variant.name, "weight", arguments.weight, variant.tensors[1]);
  expect_dtype(variant.name, "bias", arguments.bias, variant.tensors[2]);
  expect_dtype(variant.name, "conv_pool", arguments.conv_pool, variant.tensors[3]);
  expect_dtype(variant.name, "query_start_loc", arguments.query_start_loc, variant.tensors[4]);
  expect_dtype(variant.name, "cache_indices", arguments.cache_indices, variant.tensors[5]);
  expect_dtype(variant.name, "has_initial_state", arguments.has_initial_state, variant.tensors[6]);
  expect_dtype(variant.name, "track_slots", arguments.track_slots, variant.tensors[7]);
  expect_dtype(variant.name, "track_lens", arguments.track_lens, variant.tensors[8]);
  expect_dtype(variant.name, "out", arguments.out, variant.tensors[9]);
  launch_function<CausalConv1dArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
