// Generated from python/gdn_aot/kernels/ascend/chunk_o.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct ChunkOArguments {
  static constexpr int32_t kChunk = 64;
  static constexpr int32_t kHeadDim = 128;
  static constexpr int32_t kMaxHeads = 64;
  TensorArgument q;  // in, [T, H, 128], any pitch of T and H
  TensorArgument k;  // in, [T, H, 128], any pitch of T and H
  TensorArgument head_gates;  // in, [NT, HV, 64] contiguous
  TensorArgument h;  // in, [NT, HV, 128, 128] contiguous
  TensorArgument v_new;  // in, [NT, HV, 2, 64, 128] contiguous
  TensorArgument query_start_loc;  // in, [N+1], start_pitch words an offset
  TensorArgument cache_indices;  // in, [N], index_pitch words an index
  TensorArgument out;  // out, [T, HV, 128] contiguous
  TensorArgument score_space;  // inout, [blocks, 2, 64, 64]
  TensorArgument diagonal_space;  // inout, [blocks, 2, 2, 4, 16, 16]
  TensorArgument weight_space;  // inout, [blocks, 2, 2, 64, 64]
  int32_t blocks;
  int32_t rows;
  int32_t start_pitch;
  int32_t index_pitch;
  int32_t q_head_pitch;
  int32_t k_head_pitch;
  int32_t ratio;
  int32_t slots;
  float scale;
  int64_t tokens;
  int64_t q_pitch;
  int64_t k_pitch;
  int64_t chunks;
  int64_t heads;
  int64_t starts;
  int64_t indices;
  int64_t buffers;
};

// Null if no such variant is built.
const Variant<ChunkOArguments>* find_chunk_o(DType act);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<ChunkOArguments>& variant, const ChunkOArguments& arguments, void* stream);

}  // namespace gdn::ascend
