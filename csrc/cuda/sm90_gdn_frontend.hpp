#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

// Two uses of one kernel; the convolution alone has no heads to normalise and no gates.
void gdn_frontend(const GdnFrontendArgs& args, Stream stream);
void causal_conv1d(const CausalConv1dArgs& args, Stream stream);

}  // namespace gdn::sm90
