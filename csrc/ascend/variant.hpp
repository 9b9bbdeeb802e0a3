#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "core/tensor_ref.hpp"

// What the generated headers are made of. C++17, because the device compiler reads it too.
namespace gdn::ascend {

// Kernels launched with other arguments than they were generated for; a fault of this package, not of its caller.
class VariantError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

struct TensorArgument {
  uint8_t* data = nullptr;
  DType dtype = DType::f32;
};

inline TensorArgument argument(const TensorRef& tensor) { return {tensor.as<uint8_t>(), tensor.dtype}; }

// An optional tensor that the kernel is told not to touch.
inline TensorArgument argument_or_none(const TensorRef& tensor, DType dtype) {
  return tensor ? argument(tensor) : TensorArgument{nullptr, dtype};
}

// Indices are read as 32-bit words, `index_pitch` apart: of an int64 index that fits, the low word.
inline TensorArgument index_argument(const TensorRef& tensor) { return {tensor.as<uint8_t>(), DType::i32}; }
inline int32_t index_pitch(const TensorRef& tensor) { return tensor.dtype == DType::i64 ? 2 : 1; }

// Optional flags; without them the kernel is told to ignore what `instead` points to.
inline TensorArgument flag_argument(const TensorRef& flags, const TensorRef& instead) {
  return {flags ? flags.as<uint8_t>() : instead.as<uint8_t>(), DType::boolean};
}

constexpr int kMaxKeys = 4;
constexpr int kMaxTensors = 32;

// `name` is also that of the function that launches it.
template <class Arguments>
struct Variant {
  const char* name;
  DType keys[kMaxKeys];
  DType tensors[kMaxTensors];
};

// The launch functions are in a library of their own, which needs CANN and is loaded with the first of them.
void* device_function(const char* name);

template <class Arguments>
auto launch_function(const char* name) {
  return reinterpret_cast<void (*)(const Arguments&, void* stream)>(device_function(name));
}

template <class Arguments, size_t kVariants, size_t kKeys>
const Variant<Arguments>* find_variant(const Variant<Arguments> (&variants)[kVariants], const DType (&wanted)[kKeys]) {
  static_assert(kKeys <= kMaxKeys, "raise kMaxKeys");
  for (const auto& variant : variants) {
    bool same = true;
    for (size_t key = 0; key < kKeys; ++key) same = same && variant.keys[key] == wanted[key];
    if (same) return &variant;
  }
  return nullptr;
}

inline void expect_dtype(const char* variant, const char* name, const TensorArgument& argument, DType dtype) {
  if (argument.dtype != dtype)
    throw VariantError(std::string(variant) + ": " + name + " must be " + to_string(dtype) + "; got " +
                       to_string(argument.dtype));
}

}  // namespace gdn::ascend
