#pragma once

#include "ascend/generated/gdn_gating.hpp"
#include "ascend/prepared.hpp"
#include "core/operators.hpp"

namespace gdn::ascend {

Prepared<GdnGatingArguments> prepare(const GdnGatingArgs& args);

}  // namespace gdn::ascend
