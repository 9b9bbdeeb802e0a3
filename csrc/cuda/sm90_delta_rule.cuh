// One token of the gated delta rule on kRows rows of a head's state, held in the registers of one warp.
//
//   d = beta (v - e^g S k),  o = scale (e^g S q + (k.q) d),  S = e^g S + d k^T
//
// Tile: lane l holds columns 4l..4l+3 of every row, so a row is one 512-byte (fp32) access of the warp and both sums
// S k and S q come from one pass over the old state.
// The sums of all rows are reduced together; lane l then owns row (l mod 16) kRows / 16 for d and o.
// The order of additions does not depend on kRows or on the rows' place in the block: any tiling gives the same bits.
#pragma once

#include "cuda/sm90_device.cuh"

namespace gdn::sm90 {

constexpr int kHeadDim = 128;  // K and V
constexpr float kNormEps = 1e-6f;

// q and k of one token, four columns a lane, as they come; the factors that normalise them; and k.q with both applied.
// Normalising the sums instead of the vectors takes the norms off the way from q and k to the state.
struct KeyQuery {
  float4 k, q;
  float k_scale, q_scale, kq;

  __device__ static KeyQuery of(float4 k, float4 q, bool l2norm) {
    float kk = dot(k, k), qq = dot(q, q), kq = dot(k, q);
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
      kk += __shfl_xor_sync(kFullMask, kk, step);
      qq += __shfl_xor_sync(kFullMask, qq, step);
      kq += __shfl_xor_sync(kFullMask, kq, step);
    }
    const float k_scale = l2norm ? rsqrtf(kk + kNormEps) : 1.0f, q_scale = l2norm ? rsqrtf(qq + kNormEps) : 1.0f;
    return {k, q, k_scale, q_scale, kq * k_scale * q_scale};
  }
};

struct Gate {
  float decay;  // e^g
  float beta;
};

// Which row of the warp a lane owns once the sums are reduced.
template <int kRows>
struct RowMap {
  static_assert(kRows == 4 || kRows == 8 || kRows == 16);
  static constexpr int kLanesPerRow = 16 / kRows;

  // The row whose d and o this lane computes, and whether it is the one lane that stores them.
  __device__ static int row_of_lane(int lane) { return (lane % 16) / kLanesPerRow; }
  __device__ static bool stores(int lane) { return lane < 16 && lane % kLanesPerRow == 0; }
  __device__ static float d_of_row(float d, int row) { return __shfl_sync(kFullMask, d, row * kLanesPerRow); }
};

// What one lane finds for its row: d k_scale, which multiplies k as it came, and o.
struct RowResult {
  float d_scaled, o;
};

// From S k and S q of every row, still to be summed over the lanes.
template <int kRows>
__device__ inline RowResult delta_and_output(const float (&sums)[2 * kRows], const KeyQuery& token, Gate gate, float v,
                                             float scale, int lane) {
  const float sum = warp_sums(sums, lane);
  const float state_k = __shfl_sync(kFullMask, sum, lane % 16) * token.k_scale;
  const float state_q = __shfl_sync(kFullMask, sum, lane % 16 + 16) * token.q_scale;
  const float d = gate.beta * (v - gate.decay * state_k);
  return {d * token.k_scale, scale * fmaf(token.kq, d, gate.decay * state_q)};
}

// e^g S + d k^T for one row.
__device__ inline float4 updated_row(float4 row, float4 k, float decay, float d_scaled) {
  return fused_multiply_add(d_scaled, k, row * decay);
}

}  // namespace gdn::sm90
