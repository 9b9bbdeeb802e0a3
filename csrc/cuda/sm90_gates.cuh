// The two gates of one token and value head: g = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b), both kept in
// float32.
#pragma once

#include "core/operators.hpp"
#include "cuda/sm90_device.cuh"

namespace gdn::sm90 {

struct GatingParams {
  FloatPtr A_log, dt_bias, a, b;  // [HV], [HV], [T, HV], [T, HV]
  float *g, *beta;                // [T, HV]
  int64_t a_pitch, b_pitch;
  int64_t elements;  // T * HV
  int32_t heads;
};

inline GatingParams gating_params(const GdnGatingArgs& args) {
  GatingParams p;
  p.A_log = float_ptr(args.A_log);
  p.dt_bias = float_ptr(args.dt_bias);
  p.a = float_ptr(args.a);
  p.b = float_ptr(args.b);
  p.g = args.g.as<float>();
  p.beta = args.beta.as<float>();
  p.a_pitch = args.a.stride[0];
  p.b_pitch = args.b.stride[0];
  p.elements = args.a.numel();
  p.heads = static_cast<int32_t>(args.a.shape[1]);
  return p;
}

// Elements first, first + stride, ... of [T, HV]: kCount of them, all loaded before the first is used.
template <int kCount>
__device__ inline void store_gates(const GatingParams& p, int64_t first, int stride) {
  Raw<AnyType> a[kCount], b[kCount], A_log[kCount], dt_bias[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int64_t element = min(first + i * stride, p.elements - 1), t = element / p.heads, h = element % p.heads;
    a[i] = Raw<AnyType>::load(p.a, t * p.a_pitch + h);
    b[i] = Raw<AnyType>::load(p.b, t * p.b_pitch + h);
    A_log[i] = Raw<AnyType>::load(p.A_log, h);
    dt_bias[i] = Raw<AnyType>::load(p.dt_bias, h);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int64_t element = first + i * stride;
    if (element >= p.elements) break;
    const float x = a[i].to_float(p.a.dtype) + dt_bias[i].to_float(p.dt_bias.dtype);
    p.g[element] = log_gate(A_log[i].to_float(p.A_log.dtype), x);
    p.beta[element] = sigmoid(b[i].to_float(p.b.dtype));
  }
}

}  // namespace gdn::sm90
