#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "core/tensor_ref.hpp"

// Host side of a launch. Nothing here allocates, synchronises or asks the device for its properties.
namespace gdn::sm90 {

// A CUDA call failed. Becomes a RuntimeError in Python.
class LaunchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct LaunchShape {
  dim3 grid, block;
  unsigned cluster_x = 1;
  size_t shared_bytes = 0;  // dynamic, at most 227 KB
};

// Launches on `device` and `stream`, allowed to start before the previous kernel in the stream has ended: the kernel
// must call wait_for_previous_kernel() before it touches what another kernel may write.
void launch_kernel(const char* op, const void* kernel, const LaunchShape& shape, void** arguments, int device,
                   Stream stream);

template <class Params>
void launch(const char* op, void (*kernel)(Params), const LaunchShape& shape, Params params, int device,
            Stream stream) {
  void* arguments[] = {&params};
  launch_kernel(op, reinterpret_cast<const void*>(kernel), shape, arguments, device, stream);
}

// Cached: asked of the driver once a device.
int multiprocessors(const char* op, int device);

constexpr unsigned kMaxGridY = 65535;

// Any number of rows in the second and third grid dimension: row = z * gridDim.y + y.
inline dim3 grid_of_rows(int64_t x, int64_t rows) {
  const auto y = static_cast<unsigned>(rows < kMaxGridY ? rows : kMaxGridY);
  return {static_cast<unsigned>(x), y, static_cast<unsigned>((rows + y - 1) / y)};
}

}  // namespace gdn::sm90
