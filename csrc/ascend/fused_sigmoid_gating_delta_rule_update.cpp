#include "ascend/fused_sigmoid_gating_delta_rule_update.hpp"

#include "ascend/device.hpp"
#include "ascend/refuse.hpp"

namespace gdn::ascend {

Prepared<FusedSigmoidGatingDeltaRuleUpdateArguments> prepare(const FusedSigmoidGatingDeltaRuleUpdateArgs& args) {
  const char* op = args.kOp;
  refuse(op, "parent_tokens", args.parent_tokens, "draft trees are not built");
  const DType act = args.q.dtype;
  expect_dtype(op, "a", args.a, act);
  expect_dtype(op, "b", args.b, act);
  expect_dtype(op, "A_log", args.A_log, DType::f32);
  const auto* variant = find_fused_sigmoid_gating_delta_rule_update(act, args.dt_bias.dtype);
  if (!variant) expect_dtype(op, "dt_bias", args.dt_bias, act);

  using Kernel = FusedSigmoidGatingDeltaRuleUpdateArguments;
  const int64_t rows = args.v.shape[0], tokens = args.v.shape[1], heads = args.v.shape[2];
  expect_value_heads(op, "v", args.v, heads, Kernel::kMaxHeads);
  const TensorRef& states = args.intermediate_ssm;
  const TensorRef& state_indices = states ? args.intermediate_state_indices : args.cache_indices;
  expect_dtype(op, "intermediate_state_indices", state_indices, args.cache_indices.dtype);

  Kernel kernel;
  kernel.q = argument(args.q);
  kernel.k = argument(args.k);
  kernel.v = argument(args.v);
  kernel.a = argument(args.a);
  kernel.b = argument(args.b);
  kernel.A_log = argument(args.A_log);
  kernel.dt_bias_weight = argument(args.dt_bias);
  kernel.ssm_pool = argument(args.ssm_pool);
  kernel.cache_indices = index_argument(args.cache_indices);
  kernel.states = argument_or_none(states, DType::f32);
  kernel.state_indices = index_argument(state_indices);
  kernel.out = argument(args.out);
  kernel.blocks = vector_blocks(rows * heads, args.q.device_index);
  kernel.tokens = static_cast<int32_t>(tokens);
  kernel.ratio = static_cast<int32_t>(heads / args.q.shape[2]);
  kernel.q_token_pitch = int32_of(op, "q", args.q.stride[1]);
  kernel.q_head_pitch = int32_of(op, "q", args.q.stride[2]);
  kernel.k_token_pitch = int32_of(op, "k", args.k.stride[1]);
  kernel.k_head_pitch = int32_of(op, "k", args.k.stride[2]);
  kernel.v_token_pitch = int32_of(op, "v", args.v.stride[1]);
  kernel.v_head_pitch = int32_of(op, "v", args.v.stride[2]);
  kernel.a_token_pitch = int32_of(op, "a", args.a.stride[1]);
  kernel.b_token_pitch = int32_of(op, "b", args.b.stride[1]);
  kernel.index_pitch = index_pitch(args.cache_indices);
  kernel.l2norm = args.qk_l2norm;
  kernel.update_state = !args.disable_state_update;
  kernel.store_states = states.present;
  kernel.scale = args.scale;
  kernel.rows = rows;
  kernel.q_pitch = args.q.stride[0];
  kernel.k_pitch = args.k.stride[0];
  kernel.v_pitch = args.v.stride[0];
  kernel.a_pitch = args.a.stride[0];
  kernel.b_pitch = args.b.stride[0];
  kernel.heads = heads;
  kernel.slots = args.ssm_pool.shape[0];
  kernel.pool_pitch = args.ssm_pool.stride[0];
  kernel.indices = rows;
  kernel.spec_slots = states.shape[0];
  kernel.states_pitch = states.stride[0];
  kernel.state_token_pitch = states.stride[1];
  kernel.out_pitch = tokens * heads * Kernel::kHeadDim;
  return {variant, kernel};
}

}  // namespace gdn::ascend
