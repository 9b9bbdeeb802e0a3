#pragma once

#include "core/operators.hpp"

// Every kernel source is compiled once per instruction set, in the namespace GDN_CPU_ISA (set by CMake).
#ifndef GDN_CPU_ISA
#define GDN_CPU_ISA baseline
#endif

namespace gdn::cpu {

// The kernels of one instruction-set build.
struct IsaKernels {
  const char* name;
  void (*causal_conv1d)(const CausalConv1dArgs&);
  void (*causal_conv1d_update)(const CausalConv1dUpdateArgs&);
  void (*gdn_gating)(const GdnGatingArgs&);
  void (*chunk_gated_delta_rule)(const ChunkGatedDeltaRuleArgs&);
  void (*fused_sigmoid_gating_delta_rule_update)(const FusedSigmoidGatingDeltaRuleUpdateArgs&);
  void (*gdn_frontend)(const GdnFrontendArgs&);
  void (*gdn_prefill)(const GdnPrefillArgs&);
  void (*gdn_decode)(const GdnDecodeArgs&);
  void (*gdn_verify)(const GdnVerifyArgs&);
  void (*gdn_commit)(const GdnCommitArgs&);
  void (*gdn_fold)(const GdnFoldArgs&);
};

namespace GDN_CPU_ISA {

extern const IsaKernels kernels;

void causal_conv1d(const CausalConv1dArgs& args);
void causal_conv1d_update(const CausalConv1dUpdateArgs& args);
void gdn_gating(const GdnGatingArgs& args);
void chunk_gated_delta_rule(const ChunkGatedDeltaRuleArgs& args);
void fused_sigmoid_gating_delta_rule_update(const FusedSigmoidGatingDeltaRuleUpdateArgs& args);
void gdn_frontend(const GdnFrontendArgs& args);
void gdn_prefill(const GdnPrefillArgs& args);
void gdn_decode(const GdnDecodeArgs& args);
void gdn_verify(const GdnVerifyArgs& args);
void gdn_commit(const GdnCommitArgs& args);
void gdn_fold(const GdnFoldArgs& args);

}  // namespace GDN_CPU_ISA
}  // namespace gdn::cpu
