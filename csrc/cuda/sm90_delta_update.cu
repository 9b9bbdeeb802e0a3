#include "cuda/sm90_delta_update.cuh"
#include "cuda/sm90_delta_update.hpp"
#include "cuda/sm90_launch.hpp"

namespace gdn::sm90 {
namespace {

constexpr int kRows = kUpdateRows / kUpdateWarps;

UpdateParams params_of(const FusedSigmoidGatingDeltaRuleUpdateArgs& args) {
  UpdateParams p;
  p.q = float_ptr(args.q);
  p.k = float_ptr(args.k);
  p.v = float_ptr(args.v);
  p.a = float_ptr(args.a);
  p.b = float_ptr(args.b);
  p.A_log = float_ptr(args.A_log);
  p.dt_bias = float_ptr(args.dt_bias);
  p.out = float_ptr(args.out);
  p.ssm_pool = args.ssm_pool.data;
  p.intermediate = args.intermediate_ssm.present ? args.intermediate_ssm.data : nullptr;
  p.cache_indices = slot_ptr(args.cache_indices, args.ssm_pool);
  p.intermediate_indices = slot_ptr(args.intermediate_state_indices, args.intermediate_ssm);
  p.parents = index_ptr(args.parent_tokens);
  p.q_row = args.q.stride[0], p.q_token = args.q.stride[1], p.q_head = args.q.stride[2];
  p.k_row = args.k.stride[0], p.k_token = args.k.stride[1], p.k_head = args.k.stride[2];
  p.v_row = args.v.stride[0], p.v_token = args.v.stride[1], p.v_head = args.v.stride[2];
  p.a_row = args.a.stride[0], p.a_token = args.a.stride[1];
  p.b_row = args.b.stride[0], p.b_token = args.b.stride[1];
  p.ssm_pitch = args.ssm_pool.stride[0];
  p.intermediate_row = args.intermediate_ssm.stride[0];
  p.intermediate_token = args.intermediate_ssm.stride[1];
  p.rows = static_cast<int32_t>(args.q.shape[0]);
  p.drafts = static_cast<int32_t>(args.q.shape[1]);
  p.value_heads = static_cast<int32_t>(args.v.shape[2]);
  p.ratio = static_cast<int32_t>(args.v.shape[2] / args.q.shape[2]);
  p.k_dim = static_cast<int32_t>(args.q.shape[3]);
  p.v_dim = static_cast<int32_t>(args.v.shape[3]);
  p.scale = args.scale;
  p.l2norm = args.qk_l2norm;
  p.commit = !args.disable_state_update;
  const int64_t qk_bytes = 4 * size_of(args.q.dtype), state_bytes = 4 * size_of(args.ssm_pool.dtype);
  p.aligned_qk = is_aligned(args.q, qk_bytes, 0, 1, 2) && is_aligned(args.k, qk_bytes, 0, 1, 2);
  p.aligned_pool = is_aligned(args.ssm_pool, state_bytes, 0);
  p.aligned_intermediate = p.intermediate && is_aligned(args.intermediate_ssm, state_bytes, 0, 1);
  return p;
}

}  // namespace

void fused_sigmoid_gating_delta_rule_update(const FusedSigmoidGatingDeltaRuleUpdateArgs& args, Stream stream) {
  const UpdateParams p = params_of(args);
  LaunchShape shape;
  shape.grid = grid_of_rows(p.value_heads * ((p.v_dim + kUpdateRows - 1) / kUpdateRows), p.rows);
  shape.block = kUpdateWarps * kWarp;
  shape.shared_bytes = p.drafts * (sizeof(UpdateToken) + kUpdateRows * sizeof(float));
  const auto launch_for = [&](auto state) {
    launch(args.kOp, sm90_delta_update<decltype(state), kRows>, shape, p, args.q.device_index, stream);
  };
  switch (args.ssm_pool.dtype) {
    case DType::bf16:
      return launch_for(bf16{});
    case DType::f16:
      return launch_for(f16{});
    default:
      return launch_for(0.0f);
  }
}

}  // namespace gdn::sm90
