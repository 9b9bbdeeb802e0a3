#pragma once

// Vectors of float in the width of the instruction set this file is compiled for, and what the kernels do with them.
// Multiply-adds are fused only where fma() says so (the sources are compiled with -ffp-contract=off): a result does not
// depend on how the compiler inlines or unrolls. Conversions are integer arithmetic, bit-equal on every instruction
// set.
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_FMA)
#include <arm_neon.h>
#endif

#include "core/tensor_ref.hpp"
#include "cpu/isa_kernels.hpp"

#define GDN_INLINE inline __attribute__((always_inline))

namespace gdn::cpu::GDN_CPU_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kTileLanes = 8;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kTileLanes = 8;
#else
constexpr int kLanes = 4;
constexpr int kTileLanes = 4;
#endif

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
constexpr int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

template <int L>
struct VecTypes {
  typedef float F __attribute__((vector_size(L * 4)));
  typedef int32_t I __attribute__((vector_size(L * 4)));
  typedef uint32_t U __attribute__((vector_size(L * 4)));
  typedef uint16_t H __attribute__((vector_size(L * 2)));
};

template <int L>
using VecF = typename VecTypes<L>::F;
template <int L>
using VecI = typename VecTypes<L>::I;
template <int L>
using VecU = typename VecTypes<L>::U;
template <int L>
using VecH = typename VecTypes<L>::H;

using F = VecF<kLanes>;

template <int L = kLanes>
GDN_INLINE VecF<L> splat(float value) {
  return value - VecF<L>{};
}

template <int L = kLanes>
GDN_INLINE VecF<L> load(const float* p) {
  VecF<L> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

template <class V>
GDN_INLINE void store(float* p, V v) {
  __builtin_memcpy(p, &v, sizeof v);
}

template <class V>
GDN_INLINE V fma(V a, V b, V c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) return V(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
#endif
#if defined(__FMA__)
  if constexpr (sizeof(V) == 32) return V(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
  if constexpr (sizeof(V) == 16) return V(_mm_fmadd_ps(__m128(a), __m128(b), __m128(c)));
#elif defined(__ARM_FEATURE_FMA)
  if constexpr (sizeof(V) == 16) return V(vfmaq_f32(float32x4_t(c), float32x4_t(a), float32x4_t(b)));
#endif
  return a * b + c;
}

// Sum of all lanes, by halves: the order is fixed.
GDN_INLINE float sum(VecF<4> v) { return (v[0] + v[2]) + (v[1] + v[3]); }
#if defined(__AVX2__)
GDN_INLINE float sum(VecF<8> v) {
  return sum(__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7));
}
#endif
#if defined(__AVX512F__)
GDN_INLINE float sum(VecF<16> v) {
  return sum(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
             __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
}
#endif

// e^x within 1.5 ulp in the normal range; 0 below it, infinity above it, NaN for NaN.
// x = n ln2 + r, |r| <= ln2 / 2; e^r by its Taylor series to degree 7 (remainder below 6e-9).
template <int L = kLanes>
GDN_INLINE VecF<L> exp(VecF<L> x) {
  constexpr float kLog2E = 1.44269504088896340736f;
  constexpr float kLn2High = 0.693359375f;  // 9 significant bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440054690583e-4f;
  constexpr float kRoundToInteger = 12582912.0f;  // 1.5 * 2^23
  constexpr float kLowest = -87.33654f, kHighest = 88.72284f;
  const VecF<L> clamped = x < kLowest ? splat<L>(kLowest) : x > kHighest ? splat<L>(kHighest) : x;
  const VecF<L> n = fma(clamped, splat<L>(kLog2E), splat<L>(kRoundToInteger)) - kRoundToInteger;
  VecF<L> r = fma(n, splat<L>(-kLn2High), clamped);
  r = fma(n, splat<L>(-kLn2Low), r);
  VecF<L> p = splat<L>(1.0f / 5040);
  p = fma(p, r, splat<L>(1.0f / 720));
  p = fma(p, r, splat<L>(1.0f / 120));
  p = fma(p, r, splat<L>(1.0f / 24));
  p = fma(p, r, splat<L>(1.0f / 6));
  p = fma(p, r, splat<L>(0.5f));
  p = fma(p, r, splat<L>(1.0f));
  p = fma(p, r, splat<L>(1.0f));
  // 2^n in two factors: n = 128 alone is not a float.
  const VecI<L> exponent = __builtin_convertvector(n, VecI<L>);
  const VecI<L> half = exponent >> 1;
  const VecF<L> power = VecF<L>((half + 127) << 23), rest = VecF<L>((exponent - half + 127) << 23);
  const VecF<L> result = p * power * rest;
  const VecF<L> saturated = x < kLowest ? VecF<L>{} : x > kHighest ? splat<L>(__builtin_inff()) : result;
  return x == x ? saturated : x;
}

template <int L = kLanes>
GDN_INLINE VecF<L> sigmoid(VecF<L> x) {
  return 1.0f / (1.0f + exp<L>(-x));
}

// log(1 + u) for u in [0, 1] to float accuracy: 2 atanh(s), s = u / (2 + u) <= 1/3, by its series to s^15 / 15.
template <int L = kLanes>
GDN_INLINE VecF<L> log1p_of_unit(VecF<L> u) {
  const VecF<L> s = u / (2.0f + u), s2 = s * s;
  VecF<L> p = splat<L>(1.0f / 15);
  p = fma(p, s2, splat<L>(1.0f / 13));
  p = fma(p, s2, splat<L>(1.0f / 11));
  p = fma(p, s2, splat<L>(1.0f / 9));
  p = fma(p, s2, splat<L>(1.0f / 7));
  p = fma(p, s2, splat<L>(1.0f / 5));
  p = fma(p, s2, splat<L>(1.0f / 3));
  return 2.0f * fma(p * s2, s, s);
}

// log(1 + e^x), linear above 20.
template <int L = kLanes>
GDN_INLINE VecF<L> softplus(VecF<L> x) {
  const VecF<L> magnitude = x < 0.0f ? -x : x;
  const VecF<L> positive = x < 0.0f ? VecF<L>{} : x;
  return x > 20.0f ? x : positive + log1p_of_unit<L>(exp<L>(-magnitude));
}

template <int L>
GDN_INLINE VecF<L> float_from_bf16(VecH<L> h) {
  return VecF<L>(__builtin_convertvector(h, VecU<L>) << 16);
}

// To nearest, ties to even; NaN stays NaN.
template <int L>
GDN_INLINE VecH<L> bf16_from_float(VecF<L> f) {
  const VecU<L> bits = VecU<L>(f);
  const VecU<L> rounded = (bits + (0x7fffu + ((bits >> 16) & 1u))) >> 16;
  const VecU<L> quiet = (bits >> 16) | 0x40u;
  return __builtin_convertvector(f == f ? rounded : quiet, VecH<L>);
}

template <int L>
GDN_INLINE VecF<L> float_from_f16(VecH<L> h) {
  const VecU<L> wide = __builtin_convertvector(h, VecU<L>);
  const VecU<L> sign = (wide & 0x8000u) << 16, magnitude = wide & 0x7fffu;
  const VecU<L> normal = (magnitude << 13) + ((127u - 15u) << 23);
  const VecU<L> special = (magnitude << 13) | 0x7f800000u;
  // m * 2^-24 as (1 + m / 1024) 2^-14 - 2^-14: no subnormal operand.
  const VecF<L> one = VecF<L>((magnitude << 13) | (113u << 23));
  const VecU<L> subnormal = VecU<L>(one - 6.103515625e-5f);
  const VecU<L> result = magnitude >= 0x7c00u ? special : magnitude < 0x0400u ? subnormal : normal;
  return VecF<L>(result | sign);
}

// To nearest, ties to even; overflow becomes infinity, NaN stays NaN.
template <int L>
GDN_INLINE VecH<L> f16_from_float(VecF<L> f) {
  const VecU<L> bits = VecU<L>(f);
  const VecU<L> sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  const VecU<L> normal = (magnitude - ((127u - 15u) << 23) + (0xfffu + ((magnitude >> 13) & 1u))) >> 13;
  // Below 2^-14 the unit of the last place is 2^-24, that of a float in [0.5, 1).
  const VecU<L> subnormal = VecU<L>(VecF<L>(magnitude) + 0.5f) - 0x3f000000u;
  const VecU<L> finite = magnitude < (113u << 23) ? subnormal : normal;
  const VecU<L> infinite = magnitude > 0x7f800000u ? VecU<L>{} + 0x7e00u : VecU<L>{} + 0x7c00u;
  return __builtin_convertvector((magnitude >= 0x477ff000u ? infinite : finite) | sign, VecH<L>);
}

// Element types of tensors: how L of them become floats and back.
struct Float32 {
  using Storage = float;
  template <int L>
  static GDN_INLINE VecF<L> load(const float* p) {
    return cpu::GDN_CPU_ISA::load<L>(p);
  }
  template <int L>
  static GDN_INLINE void store(float* p, VecF<L> v) {
    cpu::GDN_CPU_ISA::store(p, v);
  }
};

struct BFloat16 {
  using Storage = uint16_t;
  template <int L>
  static GDN_INLINE VecF<L> load(const uint16_t* p) {
    VecH<L> h;
    __builtin_memcpy(&h, p, sizeof h);
    return float_from_bf16<L>(h);
  }
  template <int L>
  static GDN_INLINE void store(uint16_t* p, VecF<L> v) {
    const VecH<L> h = bf16_from_float<L>(v);
    __builtin_memcpy(p, &h, sizeof h);
  }
};

struct Float16 {
  using Storage = uint16_t;
  template <int L>
  static GDN_INLINE VecF<L> load(const uint16_t* p) {
    VecH<L> h;
    __builtin_memcpy(&h, p, sizeof h);
    return float_from_f16<L>(h);
  }
  template <int L>
  static GDN_INLINE void store(uint16_t* p, VecF<L> v) {
    const VecH<L> h = f16_from_float<L>(v);
    __builtin_memcpy(p, &h, sizeof h);
  }
};

// Calls function with the element type of a floating `dtype`.
template <class Function>
GDN_INLINE auto with_element(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::bf16:
      return function(BFloat16{});
    case DType::f16:
      return function(Float16{});
    default:
      return function(Float32{});
  }
}

}  // namespace gdn::cpu::GDN_CPU_ISA
