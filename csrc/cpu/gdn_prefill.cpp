// A whole GDN layer between its projections for packed rows of any length: convolution with SiLU, gates, chunk rule.
//
// Tiles and accuracy: those of causal_conv1d, gdn_gating and chunk_gated_delta_rule, which run one after the other on
// the scratch tensors; the results are bit-equal to calling them.
// Memory: the convolved q, k, v and the gates make one round trip through the scratch tensors, 2 x T x D activations,
// a few percent of the time of the chunk rule.
// Synchronisation: each of the three steps ends before the next one starts.
#include "core/composition.hpp"
#include "cpu/isa_kernels.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

void gdn_prefill(const GdnPrefillArgs& args) {
  gdn_frontend(frontend_of(args));
  chunk_gated_delta_rule(chunk_rule_of(args));
}

}  // namespace gdn::cpu::GDN_CPU_ISA
