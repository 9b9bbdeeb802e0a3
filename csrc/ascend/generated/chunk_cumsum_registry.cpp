// Generated from python/gdn_aot/kernels/ascend/chunk_cumsum.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/chunk_cumsum.hpp"

namespace gdn::ascend {
namespace {

const Variant<ChunkCumsumArguments> kVariants[] = {
    {"gdn_ascend_chunk_cumsum_gates_f32", {DType::f32}, {DType::f32, DType::i32, DType::f32}},
};

}  // namespace

const Variant<ChunkCumsumArguments>* find_chunk_cumsum(DType gates) {
  return find_variant(kVariants, {gates});
}

void launch(const Variant<ChunkCumsumArguments>& variant, const ChunkCumsumArguments& arguments, void* stream) {
  expect_dtype(variant.name, "g", arguments.g, variant.tensors[0]);
  expect_dtype(variant.name, "query_start_loc", arguments.query_start_loc, variant.tensors[1]);
  expect_dtype(variant.name, "gates", arguments.gates, variant.tensors[2]);
  launch_function<ChunkCumsumArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
