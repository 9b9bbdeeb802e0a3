#include "core/composition.hpp"

namespace gdn {
namespace {

// [..., D] -> [..., heads, size] from channel `first`; unit stride on D.
TensorRef heads_from(const TensorRef& qkv, int64_t first, int64_t heads, int64_t size) {
  TensorRef view = qkv;
  view.data = qkv.as<char>() + first * size_of(qkv.dtype);
  view.ndim = qkv.ndim + 1;
  view.shape[qkv.ndim - 1] = heads;
  view.stride[qkv.ndim - 1] = size;
  view.shape[qkv.ndim] = size;
  view.stride[qkv.ndim] = 1;
  return view;
}

template <class Args>
void set_heads(Args& args, const TensorRef& qkv, const GdnHeads& heads) {
  const int64_t key_channels = heads.num_k_heads * heads.head_k_dim;
  args.q = heads_from(qkv, 0, heads.num_k_heads, heads.head_k_dim);
  args.k = heads_from(qkv, key_channels, heads.num_k_heads, heads.head_k_dim);
  args.v = heads_from(qkv, 2 * key_channels, heads.num_v_heads, heads.head_v_dim);
}

// [N, ...] -> [N, 1, ...].
TensorRef with_token_dim(const TensorRef& t) {
  TensorRef view = t;
  view.ndim = t.ndim + 1;
  for (int i = t.ndim; i > 1; --i) {
    view.shape[i] = t.shape[i - 1];
    view.stride[i] = t.stride[i - 1];
  }
  view.shape[1] = 1;
  view.stride[1] = 0;
  return view;
}

// What the convolutions of all fused operators have in common.
template <class Conv, class Args>
Conv convolution_on_scratch(const Args& args) {
  Conv conv;
  conv.x = args.mixed_qkv;
  conv.weight = args.weights.conv_weight;
  conv.bias = args.weights.conv_bias;
  conv.conv_pool = args.conv_pool;
  conv.cache_indices = args.cache_indices;
  conv.out = args.qkv_scratch;
  conv.silu = args.silu;
  return conv;
}

template <class Args>
FusedSigmoidGatingDeltaRuleUpdateArgs delta_rule_on(const TensorRef& qkv, const Args& args) {
  FusedSigmoidGatingDeltaRuleUpdateArgs delta;
  set_heads(delta, qkv, args.heads);
  delta.a = args.a;
  delta.b = args.b;
  delta.A_log = args.weights.A_log;
  delta.dt_bias = args.weights.dt_bias;
  delta.ssm_pool = args.ssm_pool;
  delta.cache_indices = args.cache_indices;
  delta.out = args.out;
  delta.scale = args.scale;
  delta.qk_l2norm = true;
  return delta;
}

}  // namespace

CausalConv1dArgs convolution_of(const GdnPrefillArgs& args) {
  auto conv = convolution_on_scratch<CausalConv1dArgs>(args);
  conv.query_start_loc = args.query_start_loc;
  conv.has_initial_state = args.has_initial_state;
  conv.track_slots = args.track_slots;
  conv.track_lens = args.track_lens;
  return conv;
}

GdnGatingArgs gates_of(const GdnPrefillArgs& args) {
  GdnGatingArgs gating;
  gating.A_log = args.weights.A_log;
  gating.a = args.a;
  gating.b = args.b;
  gating.dt_bias = args.weights.dt_bias;
  gating.g = args.g_scratch;
  gating.beta = args.beta_scratch;
  return gating;
}

ChunkGatedDeltaRuleArgs chunk_rule_of(const GdnPrefillArgs& args) {
  ChunkGatedDeltaRuleArgs chunk;
  set_heads(chunk, args.qkv_scratch, args.heads);
  chunk.g = args.g_scratch;
  chunk.beta = args.beta_scratch;
  chunk.ssm_pool = args.ssm_pool;
  chunk.query_start_loc = args.query_start_loc;
  chunk.cache_indices = args.cache_indices;
  chunk.has_initial_state = args.has_initial_state;
  chunk.track_state = args.track_state;
  chunk.track_chunk_idx = args.track_chunk_idx;
  chunk.h = args.h;
  chunk.out = args.out;
  chunk.scale = args.scale;
  chunk.qk_l2norm = true;
  return chunk;
}

CausalConv1dUpdateArgs convolution_of(const GdnDecodeArgs& args) {
  auto conv = convolution_on_scratch<CausalConv1dUpdateArgs>(args);
  conv.x = with_token_dim(conv.x);
  conv.out = with_token_dim(conv.out);
  return conv;
}

FusedSigmoidGatingDeltaRuleUpdateArgs delta_rule_of(const GdnDecodeArgs& args) {
  auto delta = delta_rule_on(with_token_dim(args.qkv_scratch), args);
  delta.a = with_token_dim(delta.a);
  delta.b = with_token_dim(delta.b);
  delta.out = with_token_dim(delta.out);
  return delta;
}

CausalConv1dUpdateArgs convolution_of(const GdnVerifyArgs& args) {
  auto conv = convolution_on_scratch<CausalConv1dUpdateArgs>(args);
  conv.parent_tokens = args.parent_tokens;
  conv.intermediate_conv_window = args.intermediate_conv_window;
  conv.intermediate_state_indices = args.intermediate_state_indices;
  conv.disable_state_update = true;
  return conv;
}

FusedSigmoidGatingDeltaRuleUpdateArgs delta_rule_of(const GdnVerifyArgs& args) {
  auto delta = delta_rule_on(args.qkv_scratch, args);
  delta.parent_tokens = args.parent_tokens;
  delta.intermediate_ssm = args.intermediate_ssm;
  delta.intermediate_state_indices = args.intermediate_state_indices;
  delta.disable_state_update = true;
  return delta;
}

}  // namespace gdn
