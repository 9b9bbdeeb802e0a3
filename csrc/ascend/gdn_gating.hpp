#pragma once

#include "core/operators.hpp"

namespace gdn::ascend {

void gdn_gating(const GdnGatingArgs& args, Stream stream);

}  // namespace gdn::ascend
