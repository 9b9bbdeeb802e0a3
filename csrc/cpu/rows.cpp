#include "cpu/rows.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

void load_floats(DType dtype, const void* src, int64_t count, float* dst, int64_t padded) {
  with_element(dtype, [&](auto element) { floats_from<decltype(element)>(src, count, dst, padded); });
}

void store_floats(DType dtype, void* dst, const float* src, int64_t count) {
  with_element(dtype, [&](auto element) { floats_to<decltype(element)>(dst, src, count); });
}

void load_head_row(const TensorRef& t, int64_t offset, int64_t count, bool l2norm, float factor, float* dst,
                   int64_t padded) {
  load_floats(t.dtype, element_at(t, offset), count, dst, padded);
  const float norm = l2norm ? 1.0f / __builtin_sqrtf(dot(dst, dst, padded) + kL2NormEps) : 1.0f;
  for (int64_t i = 0; i < padded; i += kLanes) store(dst + i, load(dst + i) * norm * factor);
}

float dot(const float* a, const float* b, int64_t padded) {
  F total = {};
  for (int64_t i = 0; i < padded; i += kLanes) total = fma(load(a + i), load(b + i), total);
  return sum(total);
}

void fill_zero(void* dst, int64_t bytes) { __builtin_memset(dst, 0, static_cast<size_t>(bytes)); }

void copy_bytes(void* dst, const void* src, int64_t bytes) { __builtin_memcpy(dst, src, static_cast<size_t>(bytes)); }

}  // namespace gdn::cpu::GDN_CPU_ISA
