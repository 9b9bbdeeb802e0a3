#pragma once

#include "core/operators.hpp"

namespace gdn::ascend {

void fused_sigmoid_gating_delta_rule_update(const FusedSigmoidGatingDeltaRuleUpdateArgs& args, Stream stream);

}  // namespace gdn::ascend
