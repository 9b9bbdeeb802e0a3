#include "cuda/sm90_launch.hpp"

#include <array>
#include <atomic>
#include <string>

namespace gdn::sm90 {
namespace {

constexpr size_t kSharedByDefault = 48 << 10;

void check(const char* op, const char* call, cudaError_t status) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // a launch error that is not sticky must not surface in somebody else's check
  std::string text = std::string(op) + ": " + call + " failed: " + cudaGetErrorString(status);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction)
    text += " (the kernels are built for compute capability 9.0, Hopper)";
  throw LaunchError(text);
}

// Makes `device` current, and the previous one again at the end.
class DeviceGuard {
 public:
  DeviceGuard(const char* op, int device) : wanted_(device) {
    check(op, "cudaGetDevice", cudaGetDevice(&previous_));
    if (previous_ != wanted_) check(op, "cudaSetDevice", cudaSetDevice(wanted_));
  }
  ~DeviceGuard() {
    if (previous_ != wanted_) cudaSetDevice(previous_);
  }

 private:
  int previous_ = 0, wanted_;
};

}  // namespace

int multiprocessors(const char* op, int device) {
  static std::array<std::atomic<int>, 64> counts = {};
  std::atomic<int>& count = counts[device % counts.size()];
  if (count == 0) {
    int value = 0;
    check(op, "cudaDeviceGetAttribute", cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
    count = value;
  }
  return count;
}

void launch_kernel(const char* op, const void* kernel, const LaunchShape& shape, void** arguments, int device,
                   Stream stream) {
  const DeviceGuard guard(op, device);
  if (shape.shared_bytes > kSharedByDefault)
    check(op, "cudaFuncSetAttribute",
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)));
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster_x, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = attributes;
  config.numAttrs = shape.cluster_x > 1 ? 2 : 1;
  check(op, "cudaLaunchKernelExC", cudaLaunchKernelExC(&config, kernel, arguments));
}

}  // namespace gdn::sm90
