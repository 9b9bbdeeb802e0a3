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

TensorRef narrow(const TensorRef& t, int dim, int64_t first, int64_t count) {
  TensorRef view = t;
  if (!t) return view;
  view.data = t.as<char>() + first * t.stride[dim] * size_of(t.dtype);
  view.shape[dim] = count;
  return view;
}

// Splits dimension `dim` into [count, shape / count]; `pitch` elements lie between the parts.
TensorRef split(const TensorRef& t, int dim, int64_t count, int64_t pitch) {
  TensorRef view = t;
  view.ndim = t.ndim + 1;
  for (int i = t.ndim; i > dim; --i) {
    view.shape[i] = t.shape[i - 1];
    view.stride[i] = t.stride[i - 1];
  }
  view.shape[dim] = count;
  view.stride[dim] = pitch;
  view.shape[dim + 1] = t.shape[dim] / count;
  return view;
}

// Where one key head's share of an input starts in the row of the first key head, and how far heads lie apart.
struct Share {
  int64_t first, size, pitch;

  TensorRef of(const TensorRef& projection, int64_t key_heads) const {
    return split(narrow(projection, 1, first, key_heads * size), 1, key_heads, pitch);
  }
};

// What the convolutions of all fused operators have in common.
template <class Conv, class Args>
Conv convolution_into(const TensorRef& out, const Args& args) {
  Conv conv;
  conv.x = args.mixed_qkv;
  conv.weight = args.weights.conv_weight;
  conv.bias = args.weights.conv_bias;
  conv.conv_pool = args.conv_pool;
  conv.cache_indices = args.cache_indices;
  conv.out = out;
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

CausalConv1dArgs convolution_of(const GdnFrontendArgs& args) {
  auto conv = convolution_into<CausalConv1dArgs>(args.qkv, args);
  conv.query_start_loc = args.query_start_loc;
  conv.has_initial_state = args.has_initial_state;
  conv.track_slots = args.track_slots;
  conv.track_lens = args.track_lens;
  return conv;
}

GdnGatingArgs gates_of(const GdnFrontendArgs& args) {
  GdnGatingArgs gating;
  gating.A_log = args.weights.A_log;
  gating.a = args.a;
  gating.b = args.b;
  gating.dt_bias = args.weights.dt_bias;
  gating.g = args.g;
  gating.beta = args.beta;
  return gating;
}

GdnFrontendArgs frontend_of(const GdnPrefillArgs& args) {
  GdnFrontendArgs frontend;
  frontend.heads = args.heads;
  frontend.weights = args.weights;
  frontend.mixed_qkv = args.mixed_qkv;
  frontend.a = args.a;
  frontend.b = args.b;
  frontend.conv_pool = args.conv_pool;
  frontend.query_start_loc = args.query_start_loc;
  frontend.cache_indices = args.cache_indices;
  frontend.has_initial_state = args.has_initial_state;
  frontend.track_slots = args.track_slots;
  frontend.track_lens = args.track_lens;
  frontend.qkv = args.qkv_scratch;
  frontend.g = args.g_scratch;
  frontend.beta = args.beta_scratch;
  frontend.qk_l2norm = false;
  frontend.silu = args.silu;
  return frontend;
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
  chunk.segment_states = args.segment_states;
  chunk.segment_chunks = args.segment_chunks;
  chunk.out = args.out;
  chunk.scale = args.scale;
  chunk.qk_l2norm = true;
  return chunk;
}

GdnDecodeInputs inputs_of(const GdnDecodeArgs& args) {
  const int64_t H = args.heads.num_k_heads, HV = args.heads.num_v_heads, r = args.heads.ratio();
  const int64_t K = args.heads.head_k_dim, V = args.heads.head_v_dim;
  const TensorRef& x = args.projection();
  GdnDecodeInputs inputs;
  if (args.layout == ProjectionLayout::interleaved) {
    const int64_t pitch = 2 * K + 2 * r * V;
    inputs.q = Share{0, K, pitch}.of(x, H);
    inputs.k = Share{K, K, pitch}.of(x, H);
    inputs.v = Share{2 * K, r * V, pitch}.of(x, H);
    inputs.z = split(Share{2 * K + r * V, r * V, pitch}.of(x, H), 2, r, V);
    inputs.b = Share{0, r, 2 * r}.of(args.ba, H);
    inputs.a = Share{r, r, 2 * r}.of(args.ba, H);
  } else {
    inputs.q = Share{0, K, K}.of(x, H);
    inputs.k = Share{H * K, K, K}.of(x, H);
    inputs.v = Share{2 * H * K, r * V, r * V}.of(x, H);
    if (args.layout == ProjectionLayout::contiguous) {
      inputs.z = split(Share{2 * H * K + HV * V, r * V, r * V}.of(x, H), 2, r, V);
      inputs.b = Share{0, r, r}.of(args.ba, H);
      inputs.a = Share{HV, r, r}.of(args.ba, H);
    } else {
      inputs.a = Share{0, r, r}.of(args.a, H);
      inputs.b = Share{0, r, r}.of(args.b, H);
      if (args.z) inputs.z = split(args.z, 1, H, r * args.z.stride[1]);
    }
  }
  if (!args.norm_weight) inputs.z = {};
  return inputs;
}

GdnDecodeHead head_of(const GdnDecodeArgs& args, const GdnDecodeInputs& inputs, const TensorRef& qkv,
                      const TensorRef& o, int64_t key_head) {
  const GdnHeads& heads = args.heads;
  const int64_t r = heads.ratio(), first_value_head = key_head * r;
  const int64_t K = heads.head_k_dim, V = heads.head_v_dim, first_k = heads.num_k_heads * K;
  // [N, H, size] -> [N, 1, size] of the key head
  const auto share = [&](const TensorRef& input) { return narrow(input, 1, key_head, 1); };
  const auto convolution = [&](const TensorRef& input, int64_t channel) {
    const int64_t channels = input.shape[2];
    CausalConv1dUpdateArgs conv;
    conv.x = share(input);
    conv.weight = narrow(args.weights.conv_weight, 0, channel, channels);
    conv.bias = narrow(args.weights.conv_bias, 0, channel, channels);
    conv.conv_pool = narrow(args.conv_pool, 1, channel, channels);
    conv.cache_indices = args.cache_indices;
    conv.out = with_token_dim(narrow(qkv, 1, channel, channels));
    conv.silu = args.silu;
    return conv;
  };
  GdnDecodeHead head;
  head.convolutions[0] = convolution(inputs.q, key_head * K);
  head.convolutions[1] = convolution(inputs.k, first_k + key_head * K);
  head.convolutions[2] = convolution(inputs.v, 2 * first_k + first_value_head * V);

  FusedSigmoidGatingDeltaRuleUpdateArgs& delta = head.delta_rule;
  delta.q = heads_from(head.convolutions[0].out, 0, 1, K);
  delta.k = heads_from(head.convolutions[1].out, 0, 1, K);
  delta.v = heads_from(head.convolutions[2].out, 0, r, V);
  delta.a = share(inputs.a);
  delta.b = share(inputs.b);
  delta.A_log = narrow(args.weights.A_log, 0, first_value_head, r);
  delta.dt_bias = narrow(args.weights.dt_bias, 0, first_value_head, r);
  delta.ssm_pool = narrow(args.ssm_pool, 1, first_value_head, r);
  delta.cache_indices = args.cache_indices;
  delta.out = with_token_dim(narrow(o, 1, first_value_head, r));
  delta.scale = args.scale;
  delta.qk_l2norm = true;
  return head;
}

GdnCommitArgs tracking_of(const GdnDecodeArgs& args) {
  static constexpr int64_t kFirstStep = 0;
  GdnCommitArgs commit;
  commit.conv_pool = args.conv_pool;
  commit.ssm_pool = args.ssm_pool;
  commit.cache_indices = args.track_slots;
  commit.intermediate_ssm = with_token_dim(args.ssm_pool);
  commit.intermediate_conv_window = with_token_dim(args.conv_pool);
  commit.intermediate_state_indices = args.cache_indices;
  commit.last_steps = args.track_slots;
  commit.last_steps.dtype = DType::i64;
  commit.last_steps.data = const_cast<int64_t*>(&kFirstStep);
  commit.last_steps.stride[0] = 0;
  return commit;
}

CausalConv1dUpdateArgs convolution_of(const GdnVerifyArgs& args) {
  auto conv = convolution_into<CausalConv1dUpdateArgs>(args.qkv_scratch, args);
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
