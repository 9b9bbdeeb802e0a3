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

// q and k of one token, four columns a lane.
struct KeyQuery {
  float4 k, q;
  float kq;

  __device__ void l2norm() {
    k = k * rsqrtf(warp_sum(dot(k, k)) + kNormEps);
    q = q * rsqrtf(warp_sum(dot(q, q)) + kNormEps);
  }
  __device__ void finish() { kq = warp_sum(dot(k, q)); }
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

// S k and S q of one row each, reduced together; returns (d, o) of this lane's row.
template <int kRows>
__device__ inline float2 delta_and_output(const float (&sums)[2 * kRows], const KeyQuery& token, Gate gate, float v,
                                          float scale, int lane) {
  const float sum = warp_sums(sums, lane);
  const float state_k = __shfl_sync(kFullMask, sum, lane % 16);
  const float state_q = __shfl_sync(kFullMask, sum, lane % 16 + 16);
  const float d = gate.beta * (v - gate.decay * state_k);
  return {d, scale * fmaf(token.kq, d, gate.decay * state_q)};
}

__device__ inline float4 updated_row(float4 row, float4 k, float decay, float d) {
  return {fmaf(d, k.x, decay * row.x), fmaf(d, k.y, decay * row.y), fmaf(d, k.z, decay * row.z),
          fmaf(d, k.w, decay * row.w)};
}

// State in registers.
template <class State, int kRows>
struct RegisterTile {
  static constexpr int kSharedElements = 0;
  using Rows = RowMap<kRows>;
  float4 row[kRows];

  __device__ void load(const State* head, State*, int lane, bool aligned) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) row[i] = load_four(head + i * kHeadDim + 4 * lane, aligned);
  }
  __device__ void wait() {}
  __device__ float4 get(int i) const { return row[i]; }
};

// State staged in shared memory: every lane copies and reads back its own columns, so no barrier is needed and loads in
// flight hold no registers.
template <class State, int kRows>
struct StagedTile {
  static constexpr int kSharedElements = kRows * kHeadDim;
  using Rows = RowMap<kRows>;
  State* own;

  __device__ void load(const State* head, State* shared, int lane, bool aligned) {
    own = shared + 4 * lane;
#pragma unroll
    for (int i = 0; i < kRows; ++i) copy_four_async(own + i * kHeadDim, head + i * kHeadDim + 4 * lane, aligned);
  }
  __device__ void wait() { wait_for_own_copies(); }
  __device__ float4 get(int i) const { return read_four(own + i * kHeadDim); }
};

}  // namespace gdn::sm90
