// Generated from python/gdn_aot/kernels/ascend/causal_conv1d_update.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct CausalConv1dUpdateArguments {
  static constexpr int32_t kChannels = 512;
  TensorArgument x;  // in, [N, T_d, D], any pitch of N and T_d
  TensorArgument weight;  // in, [D, W] contiguous
  TensorArgument bias;  // in, [D]; not read if has_bias is 0
  TensorArgument conv_pool;  // inout, [slots, W-1, D], any pitch of slots
  TensorArgument cache_indices;  // in, [N], index_pitch words an index
  TensorArgument windows;  // out, [spec_slots, T_d, W-1, D], any pitch of the first two
  TensorArgument window_indices;  // in, [N]; neither is used if store_windows is 0
  TensorArgument out;  // out, [N, T_d, D] contiguous
  int32_t blocks;
  int32_t channel_lanes;
  int32_t row_lanes;
  int32_t tokens;
  int32_t width;
  int32_t x_token_pitch;
  int32_t window_token_pitch;
  int32_t index_pitch;
  int32_t has_bias;
  int32_t silu;
  int32_t update_state;
  int32_t store_windows;
  int64_t rows;
  int64_t x_pitch;
  int64_t taps_size;
  int64_t channels;
  int64_t slots;
  int64_t pool_pitch;
  int64_t indices;
  int64_t spec_slots;
  int64_t windows_pitch;
  int64_t out_pitch;
};

// Null if no such variant is built.
const Variant<CausalConv1dUpdateArguments>* find_causal_conv1d_update(DType act, DType window);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<CausalConv1dUpdateArguments>& variant, const CausalConv1dUpdateArguments& arguments, void* stream);

}  // namespace gdn::ascend
