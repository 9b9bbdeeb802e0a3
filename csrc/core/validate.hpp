#pragma once

#include "core/operators.hpp"
#include "core/specialization.hpp"

namespace gdn {

// Checks every argument, throws ArgumentError, touches no memory behind the pointers. Returns the registry key.
Specialization validate(const CausalConv1dArgs& args);
Specialization validate(const CausalConv1dUpdateArgs& args);
Specialization validate(const GdnGatingArgs& args);
Specialization validate(const ChunkGatedDeltaRuleArgs& args);
Specialization validate(const FusedSigmoidGatingDeltaRuleUpdateArgs& args);
Specialization validate(const GdnFrontendArgs& args);
Specialization validate(const GdnPrefillArgs& args);
Specialization validate(const GdnDecodeArgs& args);
Specialization validate(const GdnVerifyArgs& args);
Specialization validate(const GdnCommitArgs& args);
Specialization validate(const GdnFoldArgs& args);

}  // namespace gdn
