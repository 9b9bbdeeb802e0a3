// Generated from python/gdn_aot/kernels/ascend/gdn_gating.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct GdnGatingArguments {
  static constexpr int32_t kMaxHeads = 64;
  static constexpr int32_t kTokens = 16;
  TensorArgument A_log;  // in, [HV]
  TensorArgument a;  // in, [T, HV], any pitch of T
  TensorArgument b;  // in, [T, HV], any pitch of T
  TensorArgument dt_bias_weight;  // in, [HV]
  TensorArgument g;  // out, [T, HV] contiguous
  TensorArgument beta;  // out, [T, HV] contiguous
  int32_t blocks;
  int64_t heads;
  int64_t tokens;
  int64_t a_pitch;
  int64_t b_pitch;
};

// Null if no such variant is built.
const Variant<GdnGatingArguments>* find_gdn_gating(DType act, DType dt_bias);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<GdnGatingArguments>& variant, const GdnGatingArguments& arguments, void* stream);

}  // namespace gdn::ascend
