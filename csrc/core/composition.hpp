#pragma once

#include "core/operators.hpp"

namespace gdn {

// The fused operators as calls of the stand-alone ones on the scratch tensors: for backends that run these one after
// the other, with equal bits.
CausalConv1dArgs convolution_of(const GdnFrontendArgs& args);
GdnGatingArgs gates_of(const GdnFrontendArgs& args);

// q and k are normalised in the chunk rule, which need not round them in between.
GdnFrontendArgs frontend_of(const GdnPrefillArgs& args);
ChunkGatedDeltaRuleArgs chunk_rule_of(const GdnPrefillArgs& args);

// The inputs of a decode step as views of one form, whatever the layout of the projections; unit stride on the last
// dimension.
struct GdnDecodeInputs {
  TensorRef q, k;  // [N, H, K]
  TensorRef v;     // [N, H, r*V]
  TensorRef z;     // [N, H, r, V], absent without a norm
  TensorRef a, b;  // [N, H, r]
};
GdnDecodeInputs inputs_of(const GdnDecodeArgs& args);

// One key head of a decode step with its value heads: the convolutions of its q, k and v into `qkv` [N, D], then its
// delta rule into `o` [N, HV, V]. Every tensor is cut down to what belongs to the head.
struct GdnDecodeHead {
  CausalConv1dUpdateArgs convolutions[3];
  FusedSigmoidGatingDeltaRuleUpdateArgs delta_rule;
};
GdnDecodeHead head_of(const GdnDecodeArgs& args, const GdnDecodeInputs& inputs, const TensorRef& qkv,
                      const TensorRef& o, int64_t key_head);

// The copy of states and windows from cache_indices to track_slots once they are final.
GdnCommitArgs tracking_of(const GdnDecodeArgs& args);

CausalConv1dUpdateArgs convolution_of(const GdnVerifyArgs& args);
FusedSigmoidGatingDeltaRuleUpdateArgs delta_rule_of(const GdnVerifyArgs& args);

}  // namespace gdn
