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
void add(const char* name, Support support, void (*launch)(const Args&, Stream)) {
  KernelRegistry<Args>::instance().add({name, Device::npu, std::move(support), launch});
}

}  // namespace

void register_ascend_kernels() {
  add("ascend_causal_conv1d", convolution(), ascend::causal_conv1d);
  add("ascend_causal_conv1d_update", convolution(), ascend::causal_conv1d_update);
  add("ascend_gdn_gating", gating(), ascend::gdn_gating);
  add("ascend_chunk_rule", delta_rule(), ascend::chunk_gated_delta_rule);
  add("ascend_delta_update", delta_rule(), ascend::fused_sigmoid_gating_delta_rule_update);
}

}  // namespace gdn
