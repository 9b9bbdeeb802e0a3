// Generated from python/gdn_aot/kernels/ascend/chunk_cumsum.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct ChunkCumsumArguments {
  static constexpr int32_t kChunk = 64;
  static constexpr int32_t kMaxHeads = 64;
  TensorArgument g;  // in, [T, HV], any pitch of T
  TensorArgument query_start_loc;  // in, [N+1], start_pitch words an offset
  TensorArgument gates;  // out, [NT, 64, HV] contiguous
  int32_t blocks;
  int32_t rows;
  int32_t start_pitch;
  int64_t tokens;
  int64_t g_pitch;
  int64_t starts;
  int64_t chunks;
  int64_t heads;
};

// Null if no such variant is built.
const Variant<ChunkCumsumArguments>* find_chunk_cumsum(DType gates);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<ChunkCumsumArguments>& variant, const ChunkCumsumArguments& arguments, void* stream);

}  // namespace gdn::ascend
