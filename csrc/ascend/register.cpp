#include <utility>

#include "ascend/causal_conv1d.hpp"
#include "ascend/causal_conv1d_update.hpp"
#include "ascend/chunk_stages.hpp"
#include "ascend/fused_sigmoid_gating_delta_rule_update.hpp"
#include "ascend/gdn_gating.hpp"
#include "core/registry.hpp"

namespace gdn {
namespace {

Support convolution() {
  Support support;
  support.act = {DType::bf16, DType::f16};
  support.conv = {DType::f32, DType::bf16, DType::f16};
  return support;
}

Support gating() {
  Support support;
  support.act = {DType::bf16, DType::f16};
  return support;
}

Support delta_rule() {
  Support support;
  support.act = {DType::bf16, DType::f16};
  support.state = {DType::f32};
  support.head_k_dims = {128};
  support.head_v_dims = {128};
  return support;
}

template <class Args>
void add(const char* name, Support support) {
  KernelRegistry<Args>::instance().add(
      {name, Device::npu, std::move(support),
       [](const Args& args, Stream stream) { ascend::run(ascend::prepare(args), stream); },
       [](const Args& args) { ascend::prepare(args); }});
}

}  // namespace

void register_ascend_kernels() {
  add<CausalConv1dArgs>("ascend_causal_conv1d", convolution());
  add<CausalConv1dUpdateArgs>("ascend_causal_conv1d_update", convolution());
  add<GdnGatingArgs>("ascend_gdn_gating", gating());
  add<ChunkGatedDeltaRuleArgs>("ascend_chunk_rule", delta_rule());
  add<FusedSigmoidGatingDeltaRuleUpdateArgs>("ascend_delta_update", delta_rule());
}

}  // namespace gdn
