#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

void fused_sigmoid_gating_delta_rule_update(const FusedSigmoidGatingDeltaRuleUpdateArgs& args, Stream stream);

}  // namespace gdn::sm90
