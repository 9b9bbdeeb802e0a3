#pragma once

#include "ascend/generated/fused_sigmoid_gating_delta_rule_update.hpp"
#include "ascend/prepared.hpp"
#include "core/operators.hpp"

namespace gdn::ascend {

Prepared<FusedSigmoidGatingDeltaRuleUpdateArguments> prepare(const FusedSigmoidGatingDeltaRuleUpdateArgs& args);

}  // namespace gdn::ascend
