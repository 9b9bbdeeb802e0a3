// Generated from python/gdn_aot/kernels/ascend/chunk_transpose.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct ChunkTransposeArguments {
  static constexpr int32_t kChunk = 64;
  static constexpr int32_t kMaxHeads = 64;
  TensorArgument gates;  // in, [NT, 64, HV] contiguous
  TensorArgument beta;  // in, [T, HV], any pitch of T
  TensorArgument query_start_loc;  // in, [N+1], start_pitch words an offset
  TensorArgument head_gates;  // out, [NT, HV, 64] contiguous
  TensorArgument head_beta;  // out, [NT, HV, 64] contiguous
  int32_t blocks;
  int32_t rows;
  int32_t start_pitch;
  int64_t chunks;
  int64_t heads;
  int64_t tokens;
  int64_t beta_pitch;
  int64_t starts;
};

// Null if no such variant is built.
const Variant<ChunkTransposeArguments>* find_chunk_transpose(DType gates);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<ChunkTransposeArguments>& variant, const ChunkTransposeArguments& arguments, void* stream);

}  // namespace gdn::ascend
