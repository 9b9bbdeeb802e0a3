#include "cuda/sm90_gdn_verify.hpp"

#include "cuda/sm90_causal_conv1d_update.hpp"
#include "cuda/sm90_delta_update.hpp"

namespace gdn::sm90 {
namespace {

// [N, T_d, D] -> [N, T_d, heads, size] from channel `first`.
TensorRef split_heads(const TensorRef& qkv, int64_t first, int64_t heads, int64_t size) {
  TensorRef part = qkv;
  part.data = qkv.as<char>() + first * size_of(qkv.dtype);
  part.ndim = 4;
  part.shape[2] = heads, part.shape[3] = size;
  part.stride[2] = size, part.stride[3] = 1;
  return part;
}

}  // namespace

void gdn_verify(const GdnVerifyArgs& args, Stream stream) {
  CausalConv1dUpdateArgs conv;
  conv.x = args.mixed_qkv;
  conv.weight = args.weights.conv_weight;
  conv.bias = args.weights.conv_bias;
  conv.conv_pool = args.conv_pool;
  conv.cache_indices = args.cache_indices;
  conv.parent_tokens = args.parent_tokens;
  conv.intermediate_conv_window = args.intermediate_conv_window;
  conv.intermediate_state_indices = args.intermediate_state_indices;
  conv.out = args.qkv_scratch;
  conv.silu = args.silu;
  conv.disable_state_update = true;
  causal_conv1d_update(conv, stream);

  const GdnHeads& heads = args.heads;
  const int64_t key_channels = heads.num_k_heads * heads.head_k_dim;
  FusedSigmoidGatingDeltaRuleUpdateArgs delta;
  delta.q = split_heads(args.qkv_scratch, 0, heads.num_k_heads, heads.head_k_dim);
  delta.k = split_heads(args.qkv_scratch, key_channels, heads.num_k_heads, heads.head_k_dim);
  delta.v = split_heads(args.qkv_scratch, 2 * key_channels, heads.num_v_heads, heads.head_v_dim);
  delta.a = args.a;
  delta.b = args.b;
  delta.A_log = args.weights.A_log;
  delta.dt_bias = args.weights.dt_bias;
  delta.ssm_pool = args.ssm_pool;
  delta.cache_indices = args.cache_indices;
  delta.parent_tokens = args.parent_tokens;
  delta.intermediate_ssm = args.intermediate_ssm;
  delta.intermediate_state_indices = args.intermediate_state_indices;
  delta.out = args.out;
  delta.scale = args.scale;
  delta.disable_state_update = true;
  fused_sigmoid_gating_delta_rule_update(delta, stream);
}

}  // namespace gdn::sm90
