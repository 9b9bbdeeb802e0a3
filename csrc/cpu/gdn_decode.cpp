// A whole GDN layer between its projections for one token a row (gdn_decode) or T_d draft tokens a row (gdn_verify):
// convolution with SiLU, l2norm, gates and delta rule.
//
// Tiles: one task takes one row and key head: it convolves the channels of that head's q, k and v into the scratch
// tensor, rounded to the activation dtype as the stand-alone operator does, then updates the states of its value heads.
// Memory: as the two stand-alone operators; the scratch rows are still in L1 when the delta rule reads them.
// Accuracy: both halves are the functions that the stand-alone operators run, so the results are bit-equal to theirs.
// Synchronisation: none; every task owns its channels, states and output columns, so one parallel region is enough.
#include "cpu/causal_conv1d.hpp"
#include "cpu/fused_sigmoid_gating_delta_rule_update.hpp"
#include "cpu/heads.hpp"
#include "cpu/isa_kernels.hpp"

namespace gdn::cpu::GDN_CPU_ISA {
namespace {

// [N, ...] seen as [N, 1, ...].
TensorRef with_token_dim(const TensorRef& t) {
  TensorRef result = t;
  result.ndim = t.ndim + 1;
  for (int i = t.ndim; i > 1; --i) {
    result.shape[i] = t.shape[i - 1];
    result.stride[i] = t.stride[i - 1];
  }
  result.shape[1] = 1;
  result.stride[1] = 0;
  return result;
}

void convolve_and_update(const CausalConv1dUpdateArgs& conv, const FusedSigmoidGatingDeltaRuleUpdateArgs& delta,
                         const GdnHeads& heads) {
  const int64_t K = heads.head_k_dim, v_channels = heads.ratio() * heads.head_v_dim;
  const int64_t first_k = heads.num_k_heads * K, first_v = 2 * first_k;
  parallel_for(conv.x.shape[0] * heads.num_k_heads, [&](int64_t task) {
    const int64_t row = task / heads.num_k_heads, head = task % heads.num_k_heads;
    causal_conv1d_update_channels(conv, row, head * K, K);
    causal_conv1d_update_channels(conv, row, first_k + head * K, K);
    causal_conv1d_update_channels(conv, row, first_v + head * v_channels, v_channels);
    delta_rule_update_heads(delta, row, head);
  });
}

template <class Args>
CausalConv1dUpdateArgs conv_args(const Args& args) {
  CausalConv1dUpdateArgs conv;
  conv.weight = args.weights.conv_weight;
  conv.bias = args.weights.conv_bias;
  conv.conv_pool = args.conv_pool;
  conv.cache_indices = args.cache_indices;
  conv.silu = args.silu;
  return conv;
}

template <class Args>
FusedSigmoidGatingDeltaRuleUpdateArgs delta_args(const Args& args, const TensorRef& qkv) {
  FusedSigmoidGatingDeltaRuleUpdateArgs delta;
  delta.q = query_heads(qkv, args.heads);
  delta.k = key_heads(qkv, args.heads);
  delta.v = value_heads(qkv, args.heads);
  delta.A_log = args.weights.A_log;
  delta.dt_bias = args.weights.dt_bias;
  delta.ssm_pool = args.ssm_pool;
  delta.cache_indices = args.cache_indices;
  delta.scale = args.scale;
  delta.qk_l2norm = true;
  return delta;
}

}  // namespace

void gdn_decode(const GdnDecodeArgs& args) {
  const TensorRef scratch = with_token_dim(args.qkv_scratch);
  CausalConv1dUpdateArgs conv = conv_args(args);
  conv.x = with_token_dim(args.mixed_qkv);
  conv.out = scratch;
  FusedSigmoidGatingDeltaRuleUpdateArgs delta = delta_args(args, scratch);
  delta.a = with_token_dim(args.a);
  delta.b = with_token_dim(args.b);
  delta.out = with_token_dim(args.out);
  convolve_and_update(conv, delta, args.heads);
}

void gdn_verify(const GdnVerifyArgs& args) {
  CausalConv1dUpdateArgs conv = conv_args(args);
  conv.x = args.mixed_qkv;
  conv.parent_tokens = args.parent_tokens;
  conv.intermediate_conv_window = args.intermediate_conv_window;
  conv.intermediate_state_indices = args.intermediate_state_indices;
  conv.out = args.qkv_scratch;
  conv.disable_state_update = true;
  FusedSigmoidGatingDeltaRuleUpdateArgs delta = delta_args(args, args.qkv_scratch);
  delta.a = args.a;
  delta.b = args.b;
  delta.parent_tokens = args.parent_tokens;
  delta.intermediate_ssm = args.intermediate_ssm;
  delta.intermediate_state_indices = args.intermediate_state_indices;
  delta.out = args.out;
  delta.disable_state_update = true;
  convolve_and_update(conv, delta, args.heads);
}

}  // namespace gdn::cpu::GDN_CPU_ISA
