#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

// One launch that fills the record.
void gdn_verify(const GdnVerifyArgs& args, Stream stream);

// The state after each token stored: the convolution of all draft tokens into qkv_scratch, then one pass over each
// state.
void gdn_verify_stored(const GdnVerifyArgs& args, Stream stream);

}  // namespace gdn::sm90
