#pragma once

#include "core/operators.hpp"

namespace gdn {

// The fused operators as calls of the stand-alone ones on the scratch tensors: for backends that run these one after
// the other, with equal bits.
CausalConv1dArgs convolution_of(const GdnPrefillArgs& args);
GdnGatingArgs gates_of(const GdnPrefillArgs& args);
ChunkGatedDeltaRuleArgs chunk_rule_of(const GdnPrefillArgs& args);

CausalConv1dUpdateArgs convolution_of(const GdnDecodeArgs& args);
FusedSigmoidGatingDeltaRuleUpdateArgs delta_rule_of(const GdnDecodeArgs& args);

CausalConv1dUpdateArgs convolution_of(const GdnVerifyArgs& args);
FusedSigmoidGatingDeltaRuleUpdateArgs delta_rule_of(const GdnVerifyArgs& args);

}  // namespace gdn
