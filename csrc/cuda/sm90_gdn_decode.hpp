#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

void gdn_decode(const GdnDecodeArgs& args, Stream stream);

}  // namespace gdn::sm90
