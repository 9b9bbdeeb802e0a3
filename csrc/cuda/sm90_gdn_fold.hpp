#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

void gdn_fold(const GdnFoldArgs& args, Stream stream);

}  // namespace gdn::sm90
