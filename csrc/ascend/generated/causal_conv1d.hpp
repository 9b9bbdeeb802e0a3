// Generated from python/gdn_aot/kernels/ascend/causal_conv1d.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct CausalConv1dArguments {
  static constexpr int32_t kChannels = 256;
  TensorArgument x;  // in, [T, D], any pitch of T
  TensorArgument weight;  // in, [D, W] contiguous
  TensorArgument bias;  // in, [D]; not read if has_bias is 0
  TensorArgument conv_pool;  // inout, [slots, W-1, D], any pitch of slots
  TensorArgument query_start_loc;  // in, [N+1], start_pitch words an offset
  TensorArgument cache_indices;  // in, [N], index_pitch words an index
  TensorArgument has_initial_state;  // in, [N]; no effect if all_initial is 1
  TensorArgument track_slots;  // in, [N], track_pitch words an index; no effect if tracks is 0
  TensorArgument track_lens;  // in, [N], track_len_pitch words a count; no effect if tracks is 0
  TensorArgument out;  // out, [T, D] contiguous
  int32_t blocks;
  int32_t channel_lanes;
  int32_t row_lanes;
  int32_t rows;
  int32_t width;
  int32_t start_pitch;
  int32_t index_pitch;
  int32_t track_pitch;
  int32_t track_len_pitch;
  int32_t tracks;
  int32_t has_bias;
  int32_t has_pool;
  int32_t all_initial;
  int32_t silu;
  int64_t tokens;
  int64_t x_pitch;
  int64_t taps_size;
  int64_t channels;
  int64_t slots;
  int64_t pool_pitch;
  int64_t starts;
  int64_t indices;
  int64_t flags;
};

// Null if no such variant is built.
const Variant<CausalConv1dArguments>* find_causal_conv1d(DType act, DType window);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<CausalConv1dArguments>& variant, const CausalConv1dArguments& arguments, void* stream);

}  // namespace gdn::ascend
