// Generated from python/gdn_aot/kernels/ascend/wy_fast.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct WyFastArguments {
  static constexpr int32_t kChunk = 64;
  static constexpr int32_t kHeadDim = 128;
  TensorArgument k;  // in, [T, H, 128], any pitch of T and H
  TensorArgument erase;  // in, [NT, HV, 2, 64, 64] contiguous
  TensorArgument query_start_loc;  // in, [N+1], start_pitch words an offset
  TensorArgument w;  // out, [NT, HV, 64, 128] contiguous
  int32_t blocks;
  int32_t rows;
  int32_t start_pitch;
  int32_t k_head_pitch;
  int32_t ratio;
  int64_t tokens;
  int64_t k_pitch;
  int64_t chunks;
  int64_t heads;
  int64_t starts;
};

// Null if no such variant is built.
const Variant<WyFastArguments>* find_wy_fast(DType act);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<WyFastArguments>& variant, const WyFastArguments& arguments, void* stream);

}  // namespace gdn::ascend
