// Log gates and write strengths of every token and value head: g = -exp(A_log) softplus(a + dt_bias), beta =
// sigmoid(b).
//
// Tile: one thread per (token, head), heads fastest, so reads of a and b and writes of g and beta are coalesced.
// Memory: a and b read once in their own dtype, g and beta written once as float32; neither is ever rounded to less.
// Order: nothing is read before the previous kernel has finished.
// Synchronisation: none.
#pragma once

#include "cuda/sm90_device.cuh"

namespace gdn::sm90 {

constexpr int kGatingThreads = 256;

struct GatingParams {
  FloatPtr A_log, dt_bias, a, b;  // [HV], [HV], [T, HV], [T, HV]
  float *g, *beta;                // [T, HV]
  int64_t a_pitch, b_pitch, elements;
  int32_t heads;
};

__global__ void __launch_bounds__(kGatingThreads) sm90_gdn_gating(const __grid_constant__ GatingParams p) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kGatingThreads + threadIdx.x;
  if (i >= p.elements) return;
  const int64_t t = i / p.heads, h = i % p.heads;
  const float x = load_float<AnyType>(p.a, t * p.a_pitch + h) + load_float<AnyType>(p.dt_bias, h);
  p.g[i] = log_gate(load_float<AnyType>(p.A_log, h), x);
  p.beta[i] = sigmoid(load_float<AnyType>(p.b, t * p.b_pitch + h));
}

}  // namespace gdn::sm90
