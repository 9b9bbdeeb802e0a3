// Generated from python/gdn_aot/kernels/ascend/scaled_dot_kkt.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct ScaledDotKktArguments {
  static constexpr int32_t kChunk = 64;
  static constexpr int32_t kHeadDim = 128;
  TensorArgument k;  // in, [T, H, 128], any pitch of T and H
  TensorArgument head_gates;  // in, [NT, HV, 64] contiguous
  TensorArgument head_beta;  // in, [NT, HV, 64] contiguous
  TensorArgument query_start_loc;  // in, [N+1], start_pitch words an offset
  TensorArgument lower_;  // out, [NT, HV, 64, 64] contiguous
  TensorArgument workspace;  // inout, [blocks, 2, 64, 64]
  int32_t blocks;
  int32_t rows;
  int32_t start_pitch;
  int32_t k_head_pitch;
  int32_t key_heads;
  int32_t ratio;
  int64_t tokens;
  int64_t k_pitch;
  int64_t chunks;
  int64_t heads;
  int64_t starts;
  int64_t buffers;
};

// Null if no such variant is built.
const Variant<ScaledDotKktArguments>* find_scaled_dot_kkt(DType act);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<ScaledDotKktArguments>& variant, const ScaledDotKktArguments& arguments, void* stream);

}  // namespace gdn::ascend
