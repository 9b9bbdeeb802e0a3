#pragma once

#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "core/tensor_ref.hpp"

// What validation allows and the Ascend kernels do not do, refused by name.
namespace gdn::ascend {

inline void refuse(const char* op, const char* name, const TensorRef& tensor, const char* reason) {
  if (tensor)
    throw ArgumentError(ErrorKind::unsupported, op, name,
                        std::string("must be None on npu (") + reason + "); got " + tensor.to_string());
}

inline void expect_dtype(const char* op, const char* name, const TensorRef& tensor, DType dtype) {
  if (tensor && tensor.dtype != dtype)
    throw ArgumentError(ErrorKind::unsupported, op, name,
                        std::string("must be ") + to_string(dtype) + " on npu; got " + tensor.to_string());
}

inline void expect_value_heads(const char* op, const char* name, const TensorRef& tensor, int64_t heads, int64_t most) {
  if (heads > most)
    throw ArgumentError(ErrorKind::unsupported, op, name,
                        "must have at most " + std::to_string(most) + " value heads on npu; got " + tensor.to_string());
}

// int32 counts and pitches of a kernel.
inline int32_t int32_of(const char* op, const char* name, int64_t value) {
  if (value > INT32_MAX)
    throw ArgumentError(ErrorKind::unsupported, op, name,
                        "must have sizes and inner pitches below 2^31 on npu; got " + std::to_string(value));
  return static_cast<int32_t>(value);
}

}  // namespace gdn::ascend
