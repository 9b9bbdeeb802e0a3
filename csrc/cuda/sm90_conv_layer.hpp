#pragma once

#include "cuda/sm90_conv_channel.cuh"
#include "cuda/sm90_launch.hpp"

namespace gdn::sm90 {

inline ConvLayer conv_layer(const TensorRef& weight, const TensorRef& bias, const TensorRef& pool, DType activation,
                            bool silu) {
  return {float_ptr(weight),
          float_ptr(bias),
          float_ptr(pool),
          pool.stride[0],
          static_cast<int32_t>(weight.shape[1]),
          activation,
          silu};
}

// Served by ConvChannel<bf16>.
inline bool is_all_bf16(const TensorRef& x, const TensorRef& weight, const TensorRef& bias, const TensorRef& pool) {
  for (const TensorRef* tensor : {&x, &weight, &bias, &pool})
    if (tensor->present && tensor->dtype != DType::bf16) return false;
  return weight.shape[1] == kMaxTaps && is_aligned(weight, 8);
}

}  // namespace gdn::sm90
