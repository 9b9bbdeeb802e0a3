// A whole GDN layer between its projections for one token a row (gdn_decode) or T_d draft tokens a row (gdn_verify):
// convolution with SiLU, l2norm, gates and delta rule.
//
// Tiles: one task takes one row and key head: it convolves the channels of that head's q, k and v into the scratch
// tensor, rounded to the activation dtype as the stand-alone operator does, then updates the states of its value heads.
// Memory: as the two stand-alone operators; the scratch rows are still in L1 when the delta rule reads them.
// Accuracy: both halves are the functions that the stand-alone operators run, so the results are bit-equal to theirs.
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

}  // namespace

void gdn_decode(const GdnDecodeArgs& args) {
  convolve_and_update(convolution_of(args), delta_rule_of(args), args.heads);
}

void gdn_verify(const GdnVerifyArgs& args) {
  if (args.record) record_inputs(args);
  convolve_and_update(convolution_of(args), delta_rule_of(args), args.heads, args.record ? &args.record : nullptr);
}

}  // namespace gdn::cpu::GDN_CPU_ISA
