// Generated from python/gdn_aot/kernels/ascend/chunk_gated_delta_rule.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct ChunkGatedDeltaRuleArguments {
  static constexpr int32_t kChunk = 64;
  static constexpr int32_t kHeadDim = 128;
  static constexpr int32_t kMaxHeads = 64;
  TensorArgument q;  // in, [T, H, 128], any pitch of T and H
  TensorArgument k;  // in, [T, H, 128], any pitch of T and H
  TensorArgument v;  // in, [T, HV, 128], any pitch of T and HV
  TensorArgument g;  // in, [T, HV], any pitch of T
  TensorArgument beta;  // in, [T, HV], any pitch of T
  TensorArgument ssm_pool;  // inout, [slots, HV, 128, 128], any pitch of slots
  TensorArgument query_start_loc;  // in, [N+1], start_pitch words an offset
  TensorArgument cache_indices;  // in, [N], index_pitch words an index
  TensorArgument has_initial_state;  // in, [N]; no effect if all_initial is 1
  TensorArgument track_state;  // out, [N, HV, 128, 128], only if tracks is 1
  TensorArgument track_chunk_idx;  // in, [N], track_pitch words an index; no effect if tracks is 0
  TensorArgument chunk_states;  // out, [chunks of all rows, HV, 128, 128], only if keeps is 1
  TensorArgument out;  // out, [T, HV, 128] contiguous
  TensorArgument head_gates;  // out, [NT, HV, 64], only if inspect
  TensorArgument head_beta;  // out, [NT, HV, 64], only if inspect
  TensorArgument lower_;  // out, [NT, HV, 64, 64], only if inspect
  TensorArgument write;  // out, [NT, HV, 2, 64, 64] if inspect, else [blocks, 2, 2, 64, 64]
  TensorArgument erase;  // out, [NT, HV, 2, 64, 64] if inspect, else [blocks, 2, 2, 64, 64]
  TensorArgument w;  // out, [NT, HV, 64, 128], only if inspect
  TensorArgument h;  // out, [NT, HV, 128, 128] if inspect, else [blocks, 2, 128, 128]
  TensorArgument v_new;  // out, [NT, HV, 2, 64, 128], only if inspect
  TensorArgument product_space;  // inout, [blocks, 2, 2, 64, 64]
  TensorArgument norm_space;  // inout, [blocks, 2, 4, 16, 16]
  TensorArgument diagonal_space;  // inout, [blocks, 2, 2, 2, 4, 16, 16]
  TensorArgument weight_space;  // inout, [blocks, 2, 2, 64, 64]
  TensorArgument state_space;  // inout, [blocks, 128, 128]
  TensorArgument identity_space;  // inout, [blocks, 64, 64]
  int32_t blocks;
  int32_t rows;
  int32_t start_pitch;
  int32_t index_pitch;
  int32_t track_pitch;
  int32_t q_head_pitch;
  int32_t k_head_pitch;
  int32_t v_head_pitch;
  int32_t ratio;
  int32_t all_initial;
  int32_t update_state;
  int32_t tracks;
  int32_t keeps;
  int32_t l2norm;
  int32_t stop_after;
  float scale;
  int64_t tokens;
  int64_t q_pitch;
  int64_t k_pitch;
  int64_t v_pitch;
  int64_t g_pitch;
  int64_t beta_pitch;
  int64_t slots;
  int64_t pool_pitch;
  int64_t starts;
  int64_t indices;
  int64_t flags;
  int64_t heads;
  int64_t places;
  int64_t buffers;
};

// Null if no such variant is built.
const Variant<ChunkGatedDeltaRuleArguments>* find_chunk_gated_delta_rule(DType act);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<ChunkGatedDeltaRuleArguments>& variant, const ChunkGatedDeltaRuleArguments& arguments, void* stream);

}  // namespace gdn::ascend
