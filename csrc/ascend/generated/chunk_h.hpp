// Generated from python/gdn_aot/kernels/ascend/chunk_h.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct ChunkHArguments {
  static constexpr int32_t kChunk = 64;
  static constexpr int32_t kHeadDim = 128;
  TensorArgument k;  // in, [T, H, 128], any pitch of T and H
  TensorArgument v;  // in, [T, HV, 128], any pitch of T and HV
  TensorArgument head_gates;  // in, [NT, HV, 64] contiguous
  TensorArgument write;  // in, [NT, HV, 2, 64, 64] contiguous
  TensorArgument w;  // in, [NT, HV, 64, 128] contiguous
  TensorArgument ssm_pool;  // inout, [slots, HV, 128, 128], any pitch of slots
  TensorArgument query_start_loc;  // in, [N+1], start_pitch words an offset
  TensorArgument cache_indices;  // in, [N], index_pitch words an index
  TensorArgument has_initial_state;  // in, [N]; no effect if all_initial is 1
  TensorArgument h;  // out, [NT, HV, 128, 128] contiguous
  TensorArgument v_new;  // out, [NT, HV, 2, 64, 128] contiguous
  TensorArgument diagonal_space;  // inout, [blocks, 2, 2, 4, 16, 16]
  TensorArgument state_space;  // inout, [blocks, 128, 128]
  TensorArgument identity_space;  // inout, [blocks, 64, 64]
  int32_t blocks;
  int32_t rows;
  int32_t start_pitch;
  int32_t index_pitch;
  int32_t k_head_pitch;
  int32_t v_head_pitch;
  int32_t ratio;
  int32_t all_initial;
  int32_t update_state;
  int64_t tokens;
  int64_t k_pitch;
  int64_t v_pitch;
  int64_t chunks;
  int64_t heads;
  int64_t slots;
  int64_t pool_pitch;
  int64_t starts;
  int64_t indices;
  int64_t flags;
  int64_t buffers;
};

// Null if no such variant is built.
const Variant<ChunkHArguments>* find_chunk_h(DType act);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<ChunkHArguments>& variant, const ChunkHArguments& arguments, void* stream);

}  // namespace gdn::ascend
