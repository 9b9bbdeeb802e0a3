// A whole GDN layer between its projections for packed rows of any length: convolution with SiLU, gates, chunk rule.
//
// Tiles and accuracy: those of causal_conv1d, gdn_gating and chunk_gated_delta_rule, which run one after the other on
// the scratch tensors; the results are bit-equal to calling them.
// Memory: the convolved q, k, v and the gates make one round trip through the scratch tensors, 2 x T x D activations,
// a few percent of the time of the chunk rule.
// Synchronisation: each of the three steps ends before the next one starts.
#include "cpu/heads.hpp"
#include "cpu/isa_kernels.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

void gdn_prefill(const GdnPrefillArgs& args) {
  CausalConv1dArgs conv;
  conv.x = args.mixed_qkv;
  conv.weight = args.weights.conv_weight;
  conv.bias = args.weights.conv_bias;
  conv.conv_pool = args.conv_pool;
  conv.query_start_loc = args.query_start_loc;
  conv.cache_indices = args.cache_indices;
  conv.has_initial_state = args.has_initial_state;
  conv.track_slots = args.track_slots;
  conv.track_lens = args.track_lens;
  conv.out = args.qkv_scratch;
  conv.silu = args.silu;
  causal_conv1d(conv);

  GdnGatingArgs gating;
  gating.A_log = args.weights.A_log;
  gating.a = args.a;
  gating.b = args.b;
  gating.dt_bias = args.weights.dt_bias;
  gating.g = args.g_scratch;
  gating.beta = args.beta_scratch;
  gdn_gating(gating);

  ChunkGatedDeltaRuleArgs chunk;
  chunk.q = query_heads(args.qkv_scratch, args.heads);
  chunk.k = key_heads(args.qkv_scratch, args.heads);
  chunk.v = value_heads(args.qkv_scratch, args.heads);
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
  chunk_gated_delta_rule(chunk);
}

}  // namespace gdn::cpu::GDN_CPU_ISA
