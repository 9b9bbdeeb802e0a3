// Generated from python/gdn_aot/kernels/ascend/chunk_o.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/chunk_o.hpp"

namespace gdn::ascend {
namespace {

const Variant<ChunkOArguments> kVariants[] = {
    {"gdn_ascend_chunk_o_act_bf16", {DType::bf16}, {DType::bf16, DType::bf16, DType::f32, DType::bf16, DType::bf16, DType::i32, DType::i32, DType::bf16, DType::f32, DType::bf16, DType::bf16}},
    {"gdn_ascend_chunk_o_act_f16", {DType::f16}, {DType::f16, DType::f16, DType::f32, DType::f16, DType::f16, DType::i32, DType::i32, DType::f16, DType::f32, DType::f16, DType::f16}},
};

}  // namespace

const Variant<ChunkOArguments>* find_chunk_o(DType act) {
  return find_variant(kVariants, {act});
}

void launch(const Variant<ChunkOArguments>& variant, const ChunkOArguments& arguments, void* stream) {
  expect_dtype(variant.name, "q", arguments.q, variant.tensors[0]);
  expect_dtype(variant.name, "k", arguments.k, variant.tensors[1]);
  expect_dtype(variant.name, "head_gates", arguments.head_gates, variant.tensors[2]);
  expect_dtype(variant.name, "h", arguments.h, variant.tensors[3]);
  expect_dtype(variant.name, "v_new", arguments.v_new, variant.tensors[4]);
  expect_dtype(variant.name, "query_start_loc", arguments.query_start_loc, variant.tensors[5]);
  expect_dtype(variant.name, "cache_indices", arguments.cache_indices, variant.tensors[6]);
  expect_dtype(variant.name, "out", arguments.out, variant.tensors[7]);
  expect_dtype(variant.name, "score_space", arguments.score_space, variant.tensors[8]);
  expect_dtype(variant.name, "diagonal_space", arguments.diagonal_space, variant.tensors[9]);
  expect_dtype(variant.name, "weight_space", arguments.weight_space, variant.tensors[10]);
  launch_function<ChunkOArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
