#include "cuda/sm90_gdn_prefill.hpp"

#include "core/composition.hpp"
#include "cuda/sm90_chunk_gated_delta_rule.hpp"
#include "cuda/sm90_gdn_frontend.hpp"

namespace gdn::sm90 {

void gdn_prefill(const GdnPrefillArgs& args, Stream stream) {
  gdn_frontend(frontend_of(args), stream);
  chunk_gated_delta_rule(chunk_rule_of(args), stream);
}

}  // namespace gdn::sm90
