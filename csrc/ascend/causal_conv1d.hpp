#pragma once

#include "ascend/generated/causal_conv1d.hpp"
#include "ascend/prepared.hpp"
#include "core/operators.hpp"

namespace gdn::ascend {

Prepared<CausalConv1dArguments> prepare(const CausalConv1dArgs& args);

}  // namespace gdn::ascend
