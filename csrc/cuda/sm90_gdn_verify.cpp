#include "cuda/sm90_gdn_verify.hpp"

#include "core/composition.hpp"
#include "cuda/sm90_causal_conv1d_update.hpp"
#include "cuda/sm90_delta_update.hpp"

namespace gdn::sm90 {

void gdn_verify(const GdnVerifyArgs& args, Stream stream) {
  causal_conv1d_update(convolution_of(args), stream);
  fused_sigmoid_gating_delta_rule_update(delta_rule_of(args), stream);
}

}  // namespace gdn::sm90
