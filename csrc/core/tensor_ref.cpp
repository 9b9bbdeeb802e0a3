#include "core/tensor_ref.hpp"

namespace gdn {

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::i32:
      return "int32";
    case DType::i64:
      return "int64";
    case DType::boolean:
      return "bool";
  }
  return "?";
}

const char* to_string(Device device) {
  switch (device) {
    case Device::cpu:
      return "cpu";
    case Device::cuda:
      return "cuda";
    case Device::npu:
      return "npu";
  }
  return "?";
}

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::i64:
      return 8;
    case DType::boolean:
      return 1;
  }
  return 0;
}

int64_t TensorRef::numel() const {
  int64_t count = 1;
  for (int i = 0; i < ndim; ++i) count *= shape[i];
  return count;
}

namespace {

std::string bracketed(const int64_t* values, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

}  // namespace

std::string TensorRef::to_string() const {
  if (!present) return "None";
  return std::string(gdn::to_string(dtype)) + " " + bracketed(shape, ndim) + " strides " + bracketed(stride, ndim) +
         " on " + gdn::to_string(device);
}

}  // namespace gdn
