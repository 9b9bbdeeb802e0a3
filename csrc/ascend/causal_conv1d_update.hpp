#pragma once

#include "ascend/generated/causal_conv1d_update.hpp"
#include "ascend/prepared.hpp"
#include "core/operators.hpp"

namespace gdn::ascend {

Prepared<CausalConv1dUpdateArguments> prepare(const CausalConv1dUpdateArgs& args);

}  // namespace gdn::ascend
