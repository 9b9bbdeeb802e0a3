#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

void causal_conv1d(const CausalConv1dArgs& args, Stream stream);

}  // namespace gdn::sm90
