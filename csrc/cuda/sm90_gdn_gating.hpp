#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

void gdn_gating(const GdnGatingArgs& args, Stream stream);

}  // namespace gdn::sm90
