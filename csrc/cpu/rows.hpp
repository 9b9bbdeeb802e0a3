#pragma once

// Access to the elements of tensors: indices of either width, rows of any floating dtype as floats, and scratch memory
// cut into aligned pieces.
#include "cpu/simd.hpp"
#include "cpu/threads.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

constexpr float kL2NormEps = 1e-6f;

GDN_INLINE int64_t index_at(const TensorRef& t, int64_t i) {
  const int64_t offset = i * t.stride[0];
  return t.dtype == DType::i64 ? t.as<const int64_t>()[offset] : t.as<const int32_t>()[offset];
}

GDN_INLINE int64_t index_at(const TensorRef& t, int64_t i, int64_t j) {
  const int64_t offset = i * t.stride[0] + j * t.stride[1];
  return t.dtype == DType::i64 ? t.as<const int64_t>()[offset] : t.as<const int32_t>()[offset];
}

// The slot of row n, or -1 where there is none: ids outside [0, slots) are never dereferenced.
GDN_INLINE int64_t slot_at(const TensorRef& indices, int64_t n, int64_t slots) {
  const int64_t slot = index_at(indices, n);
  return slot >= 0 && slot < slots ? slot : -1;
}

GDN_INLINE bool flag_at(const TensorRef& flags, int64_t n, bool absent) {
  return flags ? flags.as<const uint8_t>()[n * flags.stride[0]] != 0 : absent;
}

GDN_INLINE int64_t element_size(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

GDN_INLINE char* element_at(const TensorRef& t, int64_t offset) {
  return t.as<char>() + offset * element_size(t.dtype);
}

template <class Element>
GDN_INLINE float scalar_from(const typename Element::Storage* p) {
  typename Element::Storage lanes[kLanes] = {};
  lanes[0] = *p;
  return Element::template load<kLanes>(lanes)[0];
}

template <class Element>
GDN_INLINE void scalar_to(typename Element::Storage* p, float value) {
  typename Element::Storage lanes[kLanes];
  Element::template store<kLanes>(lanes, splat(value));
  *p = lanes[0];
}

// The element `offset` elements after the first, as float.
GDN_INLINE float float_at(const TensorRef& t, int64_t offset) {
  return with_element(t.dtype, [&](auto element) {
    using E = decltype(element);
    return scalar_from<E>(t.as<const typename E::Storage>() + offset);
  });
}

// dst[0, count) = src[0, count) as floats; dst[count, padded) = 0. `padded` is a multiple of kLanes.
template <class Element>
GDN_INLINE void floats_from(const void* src, int64_t count, float* dst, int64_t padded) {
  const auto* const from = static_cast<const typename Element::Storage*>(src);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(dst + i, Element::template load<kLanes>(from + i));
  for (; i < padded; i += kLanes) {
    typename Element::Storage tail[kLanes] = {};
    for (int64_t j = i; j < count; ++j) tail[j - i] = from[j];
    store(dst + i, Element::template load<kLanes>(tail));
  }
}

template <class Element>
GDN_INLINE void floats_to(void* dst, const float* src, int64_t count) {
  auto* const to = static_cast<typename Element::Storage*>(dst);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Element::template store<kLanes>(to + i, load(src + i));
  if (i < count) {
    float tail[kLanes] = {};
    for (int64_t j = i; j < count; ++j) tail[j - i] = src[j];
    typename Element::Storage rounded[kLanes];
    Element::template store<kLanes>(rounded, load(tail));
    for (int64_t j = i; j < count; ++j) to[j] = rounded[j - i];
  }
}

// As above, for a dtype known at run time.
void load_floats(DType dtype, const void* src, int64_t count, float* dst, int64_t padded);
void store_floats(DType dtype, void* dst, const float* src, int64_t count);

// A query or key row times `factor`, and divided by its root of (sum of squares + eps) if `l2norm`.
// `padded` is a multiple of kLanes.
void load_head_row(const TensorRef& t, int64_t offset, int64_t count, bool l2norm, float factor, float* dst,
                   int64_t padded);

float dot(const float* a, const float* b, int64_t padded);

void fill_zero(void* dst, int64_t bytes);
void copy_bytes(void* dst, const void* src, int64_t bytes);

template <class Function>
GDN_INLINE void parallel_for(int64_t tasks, const Function& function) {
  run_tasks(
      tasks, [](const void* context, int64_t task) { (*static_cast<const Function*>(context))(task); }, &function);
}

// Cuts a buffer into pieces aligned to 64 bytes. With a null base it only adds up the size.
class ScratchCutter {
 public:
  explicit ScratchCutter(void* base) : base_(static_cast<char*>(base)) {}

  GDN_INLINE float* floats(int64_t count) { return static_cast<float*>(bytes(count * 4)); }
  GDN_INLINE void* bytes(int64_t count) {
    const int64_t at = used_;
    used_ += round_up(count, 64);
    return base_ == nullptr ? nullptr : base_ + at;
  }
  GDN_INLINE int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

}  // namespace gdn::cpu::GDN_CPU_ISA
