// Log gates and write strengths of every token and value head: g = -exp(A_log) softplus(a + dt_bias), beta =
// sigmoid(b).
//
// Tile: one thread per (token, head), heads fastest, so reads of a and b and writes of g and beta are coalesced.
// Memory: a and b read once in their own dtype, g and beta written once as float32; neither is ever rounded to less.
// Order: nothing is read before the previous kernel has finished.
// Synchronisation: none.
#pragma once

#include "cuda/sm90_gates.cuh"

namespace gdn::sm90 {

constexpr int kGatingThreads = 256;

__global__ void __launch_bounds__(kGatingThreads) sm90_gdn_gating(const __grid_constant__ GatingParams p) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kGatingThreads + threadIdx.x;
  if (i < p.elements) store_gates<1>(p, i, 0);
}

}  // namespace gdn::sm90
