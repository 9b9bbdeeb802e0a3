// A whole GDN layer between its projections for one token a row (gdn_decode) or T_d draft tokens a row (gdn_verify):
// convolution with SiLU, l2norm, gates, delta rule and, for gdn_decode on request, gated RMSNorm of the output.
//
// Tiles: one task takes one row and key head: it convolves the channels of that head's q, k and v into the scratch
// tensor, rounded to the activation dtype as the stand-alone operator does, then updates the states of its value heads.
// Memory: as the two stand-alone operators; the scratch rows are still in L1 when the delta rule reads them. Tracked
// states and windows are copied in a pass of their own.
// Accuracy: both halves are the functions that the stand-alone operators run, so the results are bit-equal to theirs;
// the norm takes the output before it is rounded.
// Synchronisation: none; every task owns its channels, states and output columns, so one parallel region is enough.
#include "core/composition.hpp"
#include "cpu/causal_conv1d.hpp"
#include "cpu/fused_sigmoid_gating_delta_rule_update.hpp"
#include "cpu/isa_kernels.hpp"

namespace gdn::cpu::GDN_CPU_ISA {
namespace {

void convolve_and_update(const CausalConv1dUpdateArgs& conv, const FusedSigmoidGatingDeltaRuleUpdateArgs& delta,
                         const GdnHeads& heads, const DraftRecord* record = nullptr) {
  const int64_t K = heads.head_k_dim, v_channels = heads.ratio() * heads.head_v_dim;
  const int64_t first_k = heads.num_k_heads * K, first_v = 2 * first_k;
  parallel_for(conv.x.shape[0] * heads.num_k_heads, [&](int64_t task) {
    const int64_t row = task / heads.num_k_heads, head = task % heads.num_k_heads;
    causal_conv1d_update_channels(conv, row, head * K, K);
    causal_conv1d_update_channels(conv, row, first_k + head * K, K);
    causal_conv1d_update_channels(conv, row, first_v + head * v_channels, v_channels);
    delta_rule_update_heads(delta, row, head, record);
  });
}

// The inputs of the convolution, as its window would store them.
void record_inputs(const GdnVerifyArgs& args) {
  const int64_t slots = min(args.conv_pool.shape[0], args.ssm_pool.shape[0]);
  const int64_t drafts = args.mixed_qkv.shape[1], channels = args.mixed_qkv.shape[2];
  const int64_t padded = round_up(channels, kLanes);
  const TensorRef &x = args.mixed_qkv, &kept = args.record.x;
  parallel_for(x.shape[0] * drafts, [&](int64_t task) {
    const int64_t n = task / drafts, t = task % drafts;
    if (slot_at(args.cache_indices, n, slots) < 0) return;
    float* const values = static_cast<float*>(thread_scratch(static_cast<size_t>(padded) * 4));
    load_floats(x.dtype, element_at(x, n * x.stride[0] + t * x.stride[1]), channels, values, padded);
    store_floats(kept.dtype, element_at(kept, n * kept.stride[0] + t * kept.stride[1]), values, channels);
  });
}

// out = o * rsqrt(mean(o^2) + eps) * weight * act(z) for one value head of one row; zeros where the row has no slot.
void store_normalised(const GdnDecodeArgs& args, const TensorRef& o_tensor, const TensorRef& z, int64_t row,
                      int64_t key_head, int64_t head) {
  const int64_t V = args.heads.head_v_dim, padded = round_up(V, kLanes);
  const int64_t value_head = key_head * args.heads.ratio() + head;
  const auto at = [&](const TensorRef& t) { return element_at(t, row * t.stride[0] + value_head * t.stride[1]); };
  if (slot_at(args.cache_indices, row, args.ssm_pool.shape[0]) < 0)
    return fill_zero(at(args.out), V * element_size(args.out.dtype));
  ScratchCutter cut(thread_scratch(static_cast<size_t>(padded) * 3 * 4 + 3 * 64));
  float* const o = cut.floats(padded);
  float* const weight = cut.floats(padded);
  float* const gate = cut.floats(padded);
  load_floats(DType::f32, at(o_tensor), V, o, padded);
  load_floats(args.norm_weight.dtype, args.norm_weight.data, V, weight, padded);
  load_floats(z.dtype, element_at(z, row * z.stride[0] + key_head * z.stride[1] + head * z.stride[2]), V, gate, padded);
  const float factor = 1.0f / __builtin_sqrtf(dot(o, o, padded) / static_cast<float>(V) + args.norm_eps);
  for (int64_t i = 0; i < padded; i += kLanes) {
    const F z_lanes = load(gate + i), act = sigmoid<kLanes>(z_lanes);
    store(o + i, load(o + i) * factor * load(weight + i) * (args.norm_silu ? z_lanes * act : act));
  }
  store_floats(args.out.dtype, at(args.out), o, V);
}

}  // namespace

void gdn_decode(const GdnDecodeArgs& args) {
  const GdnDecodeInputs inputs = inputs_of(args);
  const int64_t rows = args.out.shape[0], key_heads = args.heads.num_k_heads;
  const int64_t channels = args.heads.conv_dim(), outputs = args.heads.num_v_heads * args.heads.head_v_dim;
  ScratchCutter cut(caller_scratch(static_cast<size_t>(rows * (channels + outputs) * 4 + 2 * 64)));
  TensorRef qkv = args.projection(), o = args.out;
  qkv.data = cut.bytes(rows * channels * element_size(qkv.dtype));
  qkv.shape[1] = qkv.stride[0] = channels;
  if (args.norm_weight) {
    o.data = cut.floats(rows * outputs);
    o.dtype = DType::f32;
    o.stride[0] = outputs;
    o.stride[1] = args.heads.head_v_dim;
  }
  parallel_for(rows * key_heads, [&](int64_t task) {
    const int64_t row = task / key_heads, key_head = task % key_heads;
    const GdnDecodeHead head = head_of(args, inputs, qkv, o, key_head);
    for (const CausalConv1dUpdateArgs& conv : head.convolutions)
      causal_conv1d_update_channels(conv, row, 0, conv.x.shape[2]);
    delta_rule_update_heads(head.delta_rule, row, 0);
    for (int64_t i = 0; args.norm_weight && i < args.heads.ratio(); ++i)
      store_normalised(args, o, inputs.z, row, key_head, i);
  });
  if (args.track_slots) gdn_commit(tracking_of(args));
}

void gdn_verify(const GdnVerifyArgs& args) {
  if (args.record) record_inputs(args);
  convolve_and_update(convolution_of(args), delta_rule_of(args), args.heads, args.record ? &args.record : nullptr);
}

}  // namespace gdn::cpu::GDN_CPU_ISA
