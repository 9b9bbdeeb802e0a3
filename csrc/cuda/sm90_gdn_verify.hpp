#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

// The convolution of all draft tokens into qkv_scratch, then one pass over each state: two launches.
void gdn_verify(const GdnVerifyArgs& args, Stream stream);

}  // namespace gdn::sm90
