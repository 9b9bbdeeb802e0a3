// Device helpers that every SM90 kernel shares: conversion between stored and computed types, reads of tensors whose
// dtype is known at run time, programmatic dependent launch and cluster barriers, the gates, and the reduction of many
// sums over one warp. Inline PTX is here and in sm90_async.cuh and sm90_tensor_core.cuh.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/sm90_params.hpp"

namespace gdn::sm90 {

constexpr int kWarp = 32;
constexpr unsigned kFullMask = 0xffffffffu;

using bf16 = __nv_bfloat16;
using f16 = __half;

// Stands for a dtype that the kernel reads at run time.
struct AnyType {};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __bfloat162float(x); }
__device__ inline float to_float(f16 x) { return __half2float(x); }

template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else if constexpr (std::is_same_v<T, bf16>)
    return __float2bfloat16_rn(x);
  else
    return __float2half_rn(x);
}

__device__ inline float bf16_bits_to_float(uint32_t bits) { return __uint_as_float(bits << 16); }
__device__ inline float f16_bits_to_float(uint32_t bits) { return __half2float(__ushort_as_half(bits)); }

// An element as it lies in memory: loading does not wait for the value, to_float does.
template <class T>
struct Raw {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
  Bits bits;

  __device__ static Raw load(FloatPtr p, int64_t i) { return {static_cast<const Bits*>(p.data)[i]}; }
  __device__ float to_float(DType) const {
    if constexpr (std::is_same_v<T, float>) return __uint_as_float(bits);
    return std::is_same_v<T, bf16> ? bf16_bits_to_float(bits) : f16_bits_to_float(bits);
  }
};

// NOTE: a branch on the dtype would wait for its load. The aligned word around the element serves every dtype.
template <>
struct Raw<AnyType> {
  uint32_t bits;
  bool upper;  // a 16-bit element in the upper half of the word

  __device__ static Raw load(FloatPtr p, int64_t i) {
    const auto address = reinterpret_cast<uintptr_t>(p.data) + (p.dtype == DType::f32 ? i * 4 : i * 2);
    return {*reinterpret_cast<const uint32_t*>(address & ~uintptr_t{3}), (address & 2) != 0};
  }
  __device__ float to_float(DType dtype) const {
    const uint32_t half = upper ? bits >> 16 : bits & 0xffff;
    const float narrow = dtype == DType::bf16 ? bf16_bits_to_float(half) : f16_bits_to_float(half);
    return dtype == DType::f32 ? __uint_as_float(bits) : narrow;
  }
};

template <class T>
__device__ inline float load_float(FloatPtr p, int64_t i) {
  return Raw<T>::load(p, i).to_float(p.dtype);
}

template <class T>
__device__ inline void store_float(FloatPtr p, int64_t i, float x) {
  if constexpr (!std::is_same_v<T, AnyType>) {
    static_cast<T*>(p.data)[i] = from_float<T>(x);
    return;
  }
  switch (p.dtype) {
    case DType::bf16:
      static_cast<bf16*>(p.data)[i] = from_float<bf16>(x);
      break;
    case DType::f16:
      static_cast<f16*>(p.data)[i] = from_float<f16>(x);
      break;
    default:
      static_cast<float*>(p.data)[i] = x;
  }
}

// Two values as bf16 in one word.
__device__ inline uint32_t pack_bf16(float lower, float upper) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(upper), "f"(lower));
  return bits;
}

// NOTE: the conversion of one value runs on the slow unit of exp and 1/x, that of two does not. The upper half of the
// word is the float.
__device__ inline float round_to_bf16(float x) { return __uint_as_float(pack_bf16(0.0f, x)); }

template <class T>
__device__ inline float round_to(DType dtype, float x) {
  if constexpr (std::is_same_v<T, bf16>) return round_to_bf16(x);
  if constexpr (!std::is_same_v<T, AnyType>) return to_float(from_float<T>(x));
  switch (dtype) {
    case DType::bf16:
      return round_to_bf16(x);
    case DType::f16:
      return to_float(from_float<f16>(x));
    default:
      return x;
  }
}

__device__ inline int64_t load_index(IndexPtr p, int64_t i) {
  return p.is_64_bit ? static_cast<const int64_t*>(p.data)[i] : static_cast<const int32_t*>(p.data)[i];
}

// The slot of row n, or -1 for padding. An id outside the pool, which is the caller's fault, counts as padding.
__device__ inline int64_t load_slot(SlotPtr p, int64_t n) {
  const int64_t slot = load_index(p.ids, n);
  return slot >= 0 && slot < p.slots ? slot : -1;
}

// Four consecutive elements at an address that is a multiple of their size.
template <class T>
__device__ inline float4 read_four(const T* p) {
  if constexpr (std::is_same_v<T, float>) {
    return *reinterpret_cast<const float4*>(p);
  } else {
    const uint2 raw = *reinterpret_cast<const uint2*>(p);
    T element[4];
    memcpy(element, &raw, sizeof(raw));
    return {to_float(element[0]), to_float(element[1]), to_float(element[2]), to_float(element[3])};
  }
}

// NOTE: both loads are written before either is converted, so that they overlap.
template <class T>
__device__ inline void load_four_of_both(FloatPtr a, int64_t i, FloatPtr b, int64_t j, float4& x, float4& y) {
  using Words = std::conditional_t<sizeof(T) == 4, uint4, uint2>;
  const Words raw_x = *reinterpret_cast<const Words*>(static_cast<const T*>(a.data) + i);
  const Words raw_y = *reinterpret_cast<const Words*>(static_cast<const T*>(b.data) + j);
  T element[4];
  memcpy(element, &raw_x, sizeof(raw_x));
  x = {to_float(element[0]), to_float(element[1]), to_float(element[2]), to_float(element[3])};
  memcpy(element, &raw_y, sizeof(raw_y));
  y = {to_float(element[0]), to_float(element[1]), to_float(element[2]), to_float(element[3])};
}

// Four consecutive elements of two tensors of one dtype, at multiples of their size.
__device__ inline void load_four_of_both(FloatPtr a, int64_t i, FloatPtr b, int64_t j, float4& x, float4& y) {
  switch (a.dtype) {
    case DType::bf16:
      return load_four_of_both<bf16>(a, i, b, j, x, y);
    case DType::f16:
      return load_four_of_both<f16>(a, i, b, j, x, y);
    default:
      return load_four_of_both<float>(a, i, b, j, x, y);
  }
}

// Four consecutive elements, read or written once: 16 bytes (fp32) or 8 bytes where the address allows it.
template <class T>
__device__ inline float4 load_four(const T* p, bool aligned) {
  if (!aligned) return {to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
  if constexpr (std::is_same_v<T, float>) {
    return __ldcs(reinterpret_cast<const float4*>(p));
  } else {
    const uint2 raw = __ldcs(reinterpret_cast<const uint2*>(p));
    T element[4];
    memcpy(element, &raw, sizeof(raw));
    return {to_float(element[0]), to_float(element[1]), to_float(element[2]), to_float(element[3])};
  }
}

// Copies four consecutive elements into shared memory without passing through a register.
template <class T>
__device__ inline void copy_four_async(T* shared, const T* global, bool aligned) {
  if (!aligned) {
    for (int i = 0; i < 4; ++i) shared[i] = global[i];
    return;
  }
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (sizeof(T) == 4)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(address), "l"(global) : "memory");
}

// Copies 16 bytes the same way.
__device__ inline void copy_words_async(uint4* shared, const uint4* global) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}

// Ends a group of this thread's copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kNewest groups of this thread's copies are under way.
template <int kNewest>
__device__ inline void wait_for_older_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
}
__device__ inline void wait_for_own_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// NOTE: predicated inside, because a branch around a store splits the code that the compiler could interleave.
__device__ inline void store_words_if(bool wanted, uint4* p, uint4 x) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; @p st.global.v4.u32 [%4], {%0, %1, %2, %3}; }" ::"r"(x.x),
               "r"(x.y), "r"(x.z), "r"(x.w), "l"(p), "r"(static_cast<int>(wanted))
               : "memory");
}

// NOTE: a kernel whose last stores pass by the L1 cache ends some 0.3 us sooner, which counts in short kernels; in long
// ones plain stores reach 1 to 2 % more bandwidth.
__device__ inline void store_words(float* p, float4 x, bool past_l1) {
  if (past_l1)
    asm volatile("st.global.L1::no_allocate.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(x.x), "f"(x.y), "f"(x.z),
                 "f"(x.w)
                 : "memory");
  else
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
}

template <class T>
__device__ inline void store_four(T* p, float4 x, bool aligned, bool past_l1 = false) {
  const T element[4] = {from_float<T>(x.x), from_float<T>(x.y), from_float<T>(x.z), from_float<T>(x.w)};
  if (!aligned) {
    for (int i = 0; i < 4; ++i) p[i] = element[i];
  } else if constexpr (std::is_same_v<T, float>) {
    // NOTE: as a plain assignment the compiler merges it with the scalar stores above.
    store_words(p, x, past_l1);
  } else {
    uint2 raw;
    memcpy(&raw, element, sizeof(raw));
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(raw.x), "r"(raw.y) : "memory");
  }
}

// Waits until the kernels before this one in the stream have finished and their writes are visible.
__device__ inline void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Lets the next kernel start, which waits in turn before it touches anything a kernel writes.
__device__ inline void allow_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline uint32_t cluster_size() {
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

__device__ inline uint32_t cluster_index_x() {
  uint32_t index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}

// A barrier in shared memory that opens once the bytes it expects have been stored to its block by store_to_peer.
struct TransferBarrier {
  uint64_t state;

  __device__ uint32_t address() const { return static_cast<uint32_t>(__cvta_generic_to_shared(&state)); }

  // Both by one thread, with a block barrier between them and a cluster barrier before peers store.
  __device__ void init() {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address()) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ void expect(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }

  __device__ void wait() const {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%0], 0;\n"
        "@!complete bra again;\n"
        "}\n" ::"r"(address())
        : "memory");
  }
};

// Stores x to the place that `shared` has in block `rank` of the cluster and counts it at that block's `barrier`.
__device__ inline void store_to_peer(const float* shared, const TransferBarrier& barrier, uint32_t rank, float x) {
  uint32_t target, target_barrier;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(target)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(target_barrier) : "r"(barrier.address()), "r"(rank));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(target),
               "r"(__float_as_uint(x)), "r"(target_barrier)
               : "memory");
}

// NOTE: relaxed, because what it orders are reads that have returned their values before writes that follow the wait.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Every thread of the cluster, whichever way its warp came here.
__device__ inline void cluster_synchronize() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Divisions are approximate, within 2 units in the last place: the exact one branches.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
__device__ inline float silu(float x) { return __fdividef(x, 1.0f + expf(-x)); }
// The exponential is within 1e-6 for |x| < 20: enough where the result is rounded to 16 bits. Subnormals count as zero.
__device__ inline float fast_silu(float x) {
  constexpr float kLog2E = 1.44269504f;
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -kLog2E));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return x * inverse;
}

// g = -exp(A_log) softplus(x) with softplus linear above 20.
__device__ inline float log_gate(float A_log, float x) {
  const float softplus = log1pf(expf(fminf(x, 20.0f)));
  return -expf(A_log) * (x > 20.0f ? x : softplus);
}

__device__ inline float dot(float4 a, float4 b) { return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, a.x * b.x))); }
__device__ inline float4 operator*(float4 a, float b) { return {a.x * b, a.y * b, a.z * b, a.w * b}; }
__device__ inline float4 fused_multiply_add(float a, float4 b, float4 c) {
  return {fmaf(a, b.x, c.x), fmaf(a, b.y, c.y), fmaf(a, b.z, c.z), fmaf(a, b.w, c.w)};
}

// c += a b for a 16 x 8 and b 8 x 8, whose elements count with 10 bits of mantissa. Lane 4 r + i has rows r and r + 8
// of a and c and column r of b: columns i and i + 4 of a, a = {(r, i), (r + 8, i), (r, i + 4), (r + 8, i + 4)}, rows i
// and i + 4 of b, columns 2 i and 2 i + 1 of c, c = {(r, 2 i), (r, 2 i + 1), (r + 8, 2 i), (r + 8, 2 i + 1)}.
__device__ inline void mma_tf32(float (&c)[4], const float (&a)[4], float b0, float b1) {
  const auto bits = [](float x) { return __float_as_uint(x); };
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(bits(a[0])), "r"(bits(a[1])), "r"(bits(a[2])), "r"(bits(a[3])), "r"(bits(b0)), "r"(bits(b1)));
}

// The part of x that has 10 bits of mantissa; x minus that is exact.
__device__ inline float tf32_head(float x) { return __uint_as_float(__float_as_uint(x) & 0xffffe000u); }

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kFullMask, x, step);
  return x;
}

// Sums N values over the warp at once: every step halves both the lanes that hold a value and the values a lane holds.
// Lane l ends with the sum of value[l * N / 32]. The order of additions is that of warp_sum.
template <int N, int kStep = kWarp / 2>
__device__ inline float warp_sums(const float (&value)[N], int lane) {
  if constexpr (N == 1) {
    float sum = value[0];
#pragma unroll
    for (int step = kStep; step > 0; step /= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
    return sum;
  } else {
    const bool upper = (lane & kStep) != 0;
    float half[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float sent = upper ? value[i] : value[i + N / 2];
      const float kept = upper ? value[i + N / 2] : value[i];
      half[i] = kept + __shfl_xor_sync(kFullMask, sent, kStep);
    }
    return warp_sums<N / 2, kStep / 2>(half, lane);
  }
}

}  // namespace gdn::sm90
