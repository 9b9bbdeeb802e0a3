#include <algorithm>

#include "core/composition.hpp"
#include "cuda/sm90_causal_conv1d_update.hpp"
#include "cuda/sm90_conv_layer.hpp"
#include "cuda/sm90_delta_update.hpp"
#include "cuda/sm90_gdn_verify.cuh"
#include "cuda/sm90_gdn_verify.hpp"
#include "cuda/sm90_launch.hpp"

namespace gdn::sm90 {
namespace {

constexpr int kResidentBlocks = 2;  // on a multiprocessor

// State a block takes: part of a head where the blocks of all heads leave multiprocessors idle, two heads of a key head
// where not all blocks would be resident at once.
void set_tile(const GdnVerifyArgs& args, int most_heads, VerifyParams& p) {
  const int64_t heads = args.mixed_qkv.shape[0] * args.heads.num_v_heads;
  const int64_t resident = kResidentBlocks * multiprocessors(args.kOp, args.mixed_qkv.device_index);
  p.block_rows = heads * 4 <= resident ? kHeadDim / 4 : heads * 2 <= resident ? kHeadDim / 2 : kHeadDim;
  p.block_heads = heads > resident && p.ratio % most_heads == 0 ? most_heads : 1;
}

DraftPitch pitch_of(const TensorRef& tensor) { return {tensor.stride[0], tensor.stride[1]}; }

VerifyParams params_of(const GdnVerifyArgs& args) {
  VerifyParams p;
  p.x = float_ptr(args.mixed_qkv);
  p.a = float_ptr(args.a);
  p.b = float_ptr(args.b);
  p.A_log = float_ptr(args.weights.A_log);
  p.dt_bias = float_ptr(args.weights.dt_bias);
  p.conv =
      conv_layer(args.weights.conv_weight, args.weights.conv_bias, args.conv_pool, args.mixed_qkv.dtype, args.silu);
  p.out = float_ptr(args.out);
  p.ssm_pool = args.ssm_pool.data;
  p.kept_x = float_ptr(args.record.x);
  p.kept_k = args.record.k.as<float>();
  p.kept_d = args.record.d.as<float>();
  p.kept_g = args.record.g.as<float>();
  p.cache_indices = slot_ptr(args.cache_indices, args.ssm_pool);
  p.cache_indices.slots = std::min(p.cache_indices.slots, args.conv_pool.shape[0]);
  p.parents = index_ptr(args.parent_tokens);
  p.x_pitch = pitch_of(args.mixed_qkv);
  p.a_pitch = pitch_of(args.a);
  p.b_pitch = pitch_of(args.b);
  p.kept_x_pitch = pitch_of(args.record.x);
  p.kept_k_pitch = pitch_of(args.record.k);
  p.kept_d_pitch = pitch_of(args.record.d);
  p.kept_g_pitch = pitch_of(args.record.g);
  p.ssm_pitch = args.ssm_pool.stride[0];
  p.rows = static_cast<int32_t>(args.mixed_qkv.shape[0]);
  p.drafts = static_cast<int32_t>(args.mixed_qkv.shape[1]);
  p.key_heads = static_cast<int32_t>(args.heads.num_k_heads);
  p.ratio = static_cast<int32_t>(args.heads.ratio());
  p.scale = args.scale;
  p.aligned_state = is_aligned(args.ssm_pool, 4 * size_of(args.ssm_pool.dtype), 0);
  return p;
}

template <class State, class T, int kDrafts>
void launch_verify(const GdnVerifyArgs& args, VerifyParams p, Stream stream) {
  set_tile(args, VerifyShared<kDrafts>::kHeads, p);
  LaunchShape shape;
  shape.grid = grid_of_rows(args.heads.num_v_heads / p.block_heads * (kHeadDim / p.block_rows), p.rows);
  shape.block = kVerifyThreads;
  launch(args.kOp, sm90_gdn_verify<State, T, kDrafts>, shape, p, args.mixed_qkv.device_index, stream);
}

template <class State>
void launch_verify(const GdnVerifyArgs& args, Stream stream) {
  const VerifyParams p = params_of(args);
  if (!is_all_bf16(args.mixed_qkv, args.weights.conv_weight, args.weights.conv_bias, args.conv_pool) ||
      !p.aligned_state)
    return launch_verify<State, AnyType, kMaxDrafts>(args, p, stream);
  if (p.drafts <= 4) return launch_verify<State, bf16, 4>(args, p, stream);
  if (p.drafts <= 8) return launch_verify<State, bf16, 8>(args, p, stream);
  launch_verify<State, bf16, kMaxDrafts>(args, p, stream);
}

}  // namespace

void gdn_verify(const GdnVerifyArgs& args, Stream stream) {
  switch (args.ssm_pool.dtype) {
    case DType::bf16:
      return launch_verify<bf16>(args, stream);
    case DType::f16:
      return launch_verify<f16>(args, stream);
    default:
      return launch_verify<float>(args, stream);
  }
}

void gdn_verify_stored(const GdnVerifyArgs& args, Stream stream) {
  causal_conv1d_update(convolution_of(args), stream);
  fused_sigmoid_gating_delta_rule_update(delta_rule_of(args), stream);
}

}  // namespace gdn::sm90
