#pragma once

#include <cstdint>

#include "core/tensor_ref.hpp"

// Tensors as kernel parameters: plain memory whose element type the kernel reads at run time. `data` is null where an
// optional tensor is absent.
namespace gdn::sm90 {

struct FloatPtr {
  void* data;
  DType dtype;
};

struct IndexPtr {
  const void* data;
  bool is_64_bit;
};

// Slot ids and the number of slots they may name.
struct SlotPtr {
  IndexPtr ids;
  int64_t slots;
};

inline FloatPtr float_ptr(const TensorRef& tensor) { return {tensor.present ? tensor.data : nullptr, tensor.dtype}; }
inline IndexPtr index_ptr(const TensorRef& tensor) {
  return {tensor.present ? tensor.data : nullptr, tensor.dtype == DType::i64};
}

inline SlotPtr slot_ptr(const TensorRef& ids, const TensorRef& pool) {
  return {index_ptr(ids), pool.present ? pool.shape[0] : 0};
}

// True if the tensor starts at a multiple of `bytes` and so does every row along `pitch_dims`.
template <class... Dims>
bool is_aligned(const TensorRef& tensor, int64_t bytes, Dims... pitch_dims) {
  [[maybe_unused]] const auto whole = [&](int i) {
    return tensor.shape[i] == 1 || tensor.stride[i] * size_of(tensor.dtype) % bytes == 0;
  };
  return reinterpret_cast<uintptr_t>(tensor.data) % bytes == 0 && (whole(pitch_dims) && ... && true);
}

}  // namespace gdn::sm90
