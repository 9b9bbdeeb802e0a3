#include <utility>

#include "ascend/causal_conv1d_update.hpp"
#include "core/registry.hpp"

namespace gdn {
namespace {

Support convolution() {
  Support support;
  support.act = {DType::bf16, DType::f16};
  support.conv = {DType::f32, DType::bf16, DType::f16};
  return support;
}

template <class Args>
void add(const char* name, Support support, void (*launch)(const Args&, Stream)) {
  KernelRegistry<Args>::instance().add({name, Device::npu, std::move(support), launch});
}

}  // namespace

void register_ascend_kernels() { add("ascend_causal_conv1d_update", convolution(), ascend::causal_conv1d_update); }

}  // namespace gdn
