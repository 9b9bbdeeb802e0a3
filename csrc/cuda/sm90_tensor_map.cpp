#include "cuda/sm90_tensor_map.hpp"

#include <cuda_runtime_api.h>

#include <string>

#include "cuda/sm90_launch.hpp"
#include "cuda/sm90_params.hpp"

namespace gdn::sm90 {
namespace {

constexpr int64_t kAlignment = 16;

// The driver is asked when first needed, so that the module loads on machines without one.
auto driver_encode(const char* op) {
  static const auto encode = [&] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess)
      throw LaunchError(std::string(op) + ": the CUDA driver has no cuTensorMapEncodeTiled (needs 12.0 or newer)");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return encode;
}

}  // namespace

bool has_tensor_map(const TensorRef& tensor) { return is_aligned(tensor, kAlignment, 0, 1); }

CUtensorMap tensor_map(const char* op, const TensorRef& tensor, unsigned box_tokens) {
  const auto element = static_cast<cuuint64_t>(size_of(tensor.dtype));
  const auto count = [&](int dim) { return static_cast<cuuint64_t>(tensor.shape[dim]); };
  // The stride of a dimension with one element has no meaning, but must be valid.
  const auto stride = [&](int dim, cuuint64_t packed) {
    return tensor.shape[dim] == 1 ? packed : static_cast<cuuint64_t>(tensor.stride[dim]) * element;
  };
  const cuuint64_t head_bytes = count(2) * element;
  const cuuint64_t sizes[] = {count(2), count(1), count(0)};
  const cuuint64_t strides[] = {stride(1, head_bytes), stride(0, head_bytes * count(1))};
  const cuuint32_t box[] = {64, 1, box_tokens};
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult status = driver_encode(op)(
      &map, tensor.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3,
      tensor.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw LaunchError(std::string(op) + ": cuTensorMapEncodeTiled failed with code " + std::to_string(status));
  return map;
}

}  // namespace gdn::sm90
