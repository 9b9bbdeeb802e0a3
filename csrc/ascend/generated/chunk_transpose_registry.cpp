// Generated from python/gdn_aot/kernels/ascend/chunk_transpose.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/chunk_transpose.hpp"

namespace gdn::ascend {
namespace {

const Variant<ChunkTransposeArguments> kVariants[] = {
    {"gdn_ascend_chunk_transpose_gates_f32", {DType::f32}, {DType::f32, DType::f32, DType::i32, DType::f32, DType::f32}},
};

}  // namespace

const Variant<ChunkTransposeArguments>* find_chunk_transpose(DType gates) {
  return find_variant(kVariants, {gates});
}

void launch(const Variant<ChunkTransposeArguments>& variant, const ChunkTransposeArguments& arguments, void* stream) {
  expect_dtype(variant.name, "gates", arguments.gates, variant.tensors[0]);
  expect_dtype(variant.name, "beta", arguments.beta, variant.tensors[1]);
  expect_dtype(variant.name, "query_start_loc", arguments.query_start_loc, variant.tensors[2]);
  expect_dtype(variant.name, "head_gates", arguments.head_gates, variant.tensors[3]);
  expect_dtype(variant.name, "head_beta", arguments.head_beta, variant.tensors[4]);
  launch_function<ChunkTransposeArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
