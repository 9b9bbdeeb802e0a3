#pragma once

#include "core/operators.hpp"

namespace gdn::sm90 {

void chunk_gated_delta_rule(const ChunkGatedDeltaRuleArgs& args, Stream stream);

}  // namespace gdn::sm90
