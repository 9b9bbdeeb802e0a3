#pragma once

#include "core/operators.hpp"

namespace gdn::ascend {

void causal_conv1d(const CausalConv1dArgs& args, Stream stream);

}  // namespace gdn::ascend
