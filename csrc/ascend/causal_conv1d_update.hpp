#pragma once

#include "core/operators.hpp"

namespace gdn::ascend {

void causal_conv1d_update(const CausalConv1dUpdateArgs& args, Stream stream);

}  // namespace gdn::ascend
