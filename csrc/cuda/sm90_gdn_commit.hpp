#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

void gdn_commit(const GdnCommitArgs& args, Stream stream);

}  // namespace gdn::sm90
