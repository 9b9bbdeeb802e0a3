#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

// The front-end into qkv_scratch, then the chunk rule: two launches, four where rows are cut into segments.
void gdn_prefill(const GdnPrefillArgs& args, Stream stream);

}  // namespace gdn::sm90
