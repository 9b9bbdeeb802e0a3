// Generated from python/gdn_aot/kernels/ascend/chunk_h.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/chunk_h.hpp"

namespace gdn::ascend {
namespace {

const Variant<ChunkHArguments> kVariants[] = {
    {"gdn_ascend_chunk_h_act_bf16", {DType::bf16}, {DType::bf16, DType::bf16, DType::f32, DType::bf16, DType::bf16, DType::f32, DType::i32, DType::i32, DType::boolean, DType::bf16, DType::bf16, DType::bf16, DType::f32, DType::bf16}},
    {"gdn_ascend_chunk_h_act_f16", {DType::f16}, {DType::f16, DType::f16, DType::f32, DType::f16, DType::f16, DType::f32, DType::i32, DType::i32, DType::boolean, DType::f16, DType::f16, DType::f16, DType::f32, DType::f16}},
};

}  // namespace

const Variant<ChunkHArguments>* find_chunk_h(DType act) {
  return find_variant(kVariants, {act});
}

void launch(const Variant<ChunkHArguments>& variant, const ChunkHArguments& arguments, void* stream) {
  expect_dtype(variant.name, "k", arguments.k, variant.tensors[0]);
  expect_dtype(variant.name, "v", arguments.v, variant.tensors[1]);
  expect_dtype(variant.name, "head_gates", arguments.head_gates, variant.tensors[2]);
  expect_dtype(variant.name, "write", arguments.write, variant.tensors[3]);
  expect_dtype(variant.name, "w", arguments.w, variant.tensors[4]);
  expect_dtype(variant.name, "ssm_pool", arguments.ssm_pool, variant.tensors[5]);
  expect_dtype(variant.name, "query_start_loc", arguments.query_start_loc, variant.tensors[6]);
  expect_dtype(variant.name, "cache_indices", arguments.cache_indices, variant.tensors[7]);
  expect_dtype(variant.name, "has_initial_state", arguments.has_initial_state, variant.tensors[8]);
  expect_dtype(variant.name, "h", arguments.h, variant.tensors[9]);
  expect_dtype(variant.name, "v_new", arguments.v_new, variant.tensors[10]);
  expect_dtype(variant.name, "diagonal_space", arguments.diagonal_space, variant.tensors[11]);
  expect_dtype(variant.name, "state_space", arguments.state_space, variant.tensors[12]);
  expect_dtype(variant.name, "identity_space", arguments.identity_space, variant.tensors[13]);
  launch_function<ChunkHArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
