#pragma once

#include <cstdint>
#include <string>

namespace gdn {

enum class DType : uint8_t { f32, bf16, f16, i32, i64, boolean };
enum class Device : uint8_t { cpu, cuda, npu };

const char* to_string(DType dtype);
const char* to_string(Device device);
int64_t size_of(DType dtype);

// A borrowed view of somebody else's memory. `present` is false for an optional tensor that was not passed;
// an empty tensor is present and may have a null pointer. Shapes and strides count elements, never bytes.
struct TensorRef {
  static constexpr int kMaxDims = 6;

  void* data = nullptr;
  bool present = false;
  DType dtype = DType::f32;
  Device device = Device::cpu;
  int32_t device_index = 0;
  int32_t ndim = 0;
  int64_t shape[kMaxDims] = {};
  int64_t stride[kMaxDims] = {};

  explicit operator bool() const { return present; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int64_t numel() const;
  std::string to_string() const;  // "bfloat16 [8, 4096] strides [12288, 1] on cpu"
};

// The queue a kernel is ordered on: cudaStream_t, aclrtStream, or null on a CPU.
struct Stream {
  void* handle = nullptr;
};

}  // namespace gdn
