#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

void causal_conv1d_update(const CausalConv1dUpdateArgs& args, Stream stream);

}  // namespace gdn::sm90
