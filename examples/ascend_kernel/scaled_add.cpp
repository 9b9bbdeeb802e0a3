#include "ascend/device.hpp"
#include "ascend/generated/scaled_add.hpp"

// out = x + factor * y on `size` elements; the arguments are validated.
extern "C" void gdn_example_scaled_add(void* x, void* y, void* out, int64_t size, float factor, void* stream) {
  using namespace gdn;
  const auto of = [](void* data) { return ascend::TensorArgument{static_cast<uint8_t*>(data), DType::bf16}; };
  ascend::ScaledAddArguments kernel;
  kernel.x = of(x);
  kernel.y = of(y);
  kernel.out = of(out);
  kernel.blocks = ascend::vector_blocks((size + kernel.kElements - 1) / kernel.kElements, 0);
  kernel.factor = factor;
  kernel.size = size;
  launch(*ascend::find_scaled_add(DType::bf16), kernel, stream);
}
