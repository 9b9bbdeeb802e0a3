// Generated from python/gdn_aot/kernels/ascend/fused_sigmoid_gating_delta_rule_update.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct FusedSigmoidGatingDeltaRuleUpdateArguments {
  static constexpr int32_t kHeadDim = 128;
  static constexpr int32_t kMaxHeads = 64;
  TensorArgument q;  // in, [N, T_d, H, 128], any pitch of all but the last
  TensorArgument k;  // in, [N, T_d, H, 128], any pitch of all but the last
  TensorArgument v;  // in, [N, T_d, HV, 128], any pitch of all but the last
  TensorArgument a;  // in, [N, T_d, HV], any pitch of all but the last
  TensorArgument b;  // in, [N, T_d, HV], any pitch of all but the last
  TensorArgument A_log;  // in, [HV]
  TensorArgument dt_bias_weight;  // in, [HV]
  TensorArgument ssm_pool;  // inout, [slots, HV, 128, 128], any pitch of slots
  TensorArgument cache_indices;  // in, [N], index_pitch words an index
  TensorArgument states;  // out, [spec_slots, T_d, HV, 128, 128], any pitch of the first two
  TensorArgument state_indices;  // in, [N]; neither is used if store_states is 0
  TensorArgument out;  // out, [N, T_d, HV, 128] contiguous
  int32_t blocks;
  int32_t tokens;
  int32_t ratio;
  int32_t q_token_pitch;
  int32_t q_head_pitch;
  int32_t k_token_pitch;
  int32_t k_head_pitch;
  int32_t v_token_pitch;
  int32_t v_head_pitch;
  int32_t a_token_pitch;
  int32_t b_token_pitch;
  int32_t index_pitch;
  int32_t l2norm;
  int32_t update_state;
  int32_t store_states;
  float scale;
  int64_t rows;
  int64_t q_pitch;
  int64_t k_pitch;
  int64_t v_pitch;
  int64_t a_pitch;
  int64_t b_pitch;
  int64_t heads;
  int64_t slots;
  int64_t pool_pitch;
  int64_t indices;
  int64_t spec_slots;
  int64_t states_pitch;
  int64_t state_token_pitch;
  int64_t out_pitch;
};

// Null if no such variant is built.
const Variant<FusedSigmoidGatingDeltaRuleUpdateArguments>* find_fused_sigmoid_gating_delta_rule_update(DType act, DType dt_bias);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<FusedSigmoidGatingDeltaRuleUpdateArguments>& variant, const FusedSigmoidGatingDeltaRuleUpdateArguments& arguments, void* stream);

}  // namespace gdn::ascend
