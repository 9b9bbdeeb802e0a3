// One decode step of a GDN layer: conv window shift, SiLU, l2norm, gates, delta rule and output, one token a row.
//
// Tiles: a cluster of C blocks takes one row and one key head with its r value heads, that is r x 128 consecutive rows
// of state, split evenly over the C x warps of the cluster; a warp holds kRows rows of state in registers. Memory: the
// state is read and written once, streaming; x, conv window and output are 2-4 % of that. The q and k channels are
// convolved by every block of the cluster (from L2) rather than exchanged. Order: weights are loaded before the wait
// for the previous kernel; then slot, x, window, state loads, all in flight before the first is used. Synchronisation:
// one block barrier publishes q and k. The q and k windows are shifted by one block each, after a cluster barrier that
// every reader has passed; v windows belong to one warp.
#pragma once

#include "cuda/sm90_conv_channel.cuh"
#include "cuda/sm90_delta_rule.cuh"

namespace gdn::sm90 {

constexpr int kMaxDecodeThreads = 256;

struct DecodeParams {
  FloatPtr x, a, b;         // [N, D], [N, HV], [N, HV]
  FloatPtr A_log, dt_bias;  // [HV]
  ConvLayer conv;
  FloatPtr out;            // [N, HV, 128]
  void* ssm_pool;          // [slots, HV, 128, 128]
  IndexPtr cache_indices;  // [N]
  int64_t x_pitch, a_pitch, b_pitch, ssm_pitch;
  int32_t rows, key_heads, ratio;
  float scale;
  bool aligned_state;
};

// T: dtype of x, conv weights, bias, conv pool and output, with width 4; AnyType: all of them read at run time.
template <class State, class T, int kRows, template <class, int> class Tile, int kMinBlocks>
__global__ void __launch_bounds__(kMaxDecodeThreads, kMinBlocks)
    sm90_gdn_decode(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];  // warps x kRows x 128 elements of state
  __shared__ float shared_q[kHeadDim];
  __shared__ float shared_k[kHeadDim];

  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const int rank = cluster_rank(), blocks = cluster_size();
  const int key_head = cluster_index_x();
  const int64_t n = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  if (n >= p.rows) return;

  const int first_row = (rank * warps + warp) * kRows;  // of the r x 128 rows of this key head
  const int value_head = key_head * p.ratio + first_row / kHeadDim;
  const int head_row = first_row % kHeadDim;
  const int value_heads = p.key_heads * p.ratio;
  const int lane_row = RowMap<kRows>::row_of_lane(lane);

  // q and k channel of this thread (threads 128 and above have none), v channel of this lane's row
  const bool has_qk = threadIdx.x < kHeadDim;
  const int q_channel = key_head * kHeadDim + (threadIdx.x % kHeadDim);
  const int k_channel = q_channel + p.key_heads * kHeadDim;
  const int v_channel = 2 * p.key_heads * kHeadDim + value_head * kHeadDim + head_row + lane_row;

  ConvChannel<T> q, k, v;
  if (has_qk) {
    q.load(p.conv, q_channel);
    k.load(p.conv, k_channel);
  }
  v.load(p.conv, v_channel);
  const float A_log = load_float<AnyType>(p.A_log, value_head), dt_bias = load_float<AnyType>(p.dt_bias, value_head);

  wait_for_previous_kernel();
  allow_next_kernel();

  const int64_t slot = load_index(p.cache_indices, n);
  const int64_t out_row = (n * value_heads + value_head) * kHeadDim + head_row;
  if (slot < 0) {
    if (lane < kRows) store_float<T>(p.out, out_row + lane, 0.0f);
    return;
  }
  float q_x, k_x, q_window[kMaxWindow], k_window[kMaxWindow], v_window[kMaxWindow];
  if (has_qk) {
    q_x = load_float<T>(p.x, n * p.x_pitch + q_channel);
    k_x = load_float<T>(p.x, n * p.x_pitch + k_channel);
  }
  const float v_x = load_float<T>(p.x, n * p.x_pitch + v_channel);
  const float a = load_float<AnyType>(p.a, n * p.a_pitch + value_head);
  const float b = load_float<AnyType>(p.b, n * p.b_pitch + value_head);
  if (has_qk) {
    q.load_window(p.conv, slot, q_channel, q_window);
    k.load_window(p.conv, slot, k_channel, k_window);
  }
  v.load_window(p.conv, slot, v_channel, v_window);
  State* const head = static_cast<State*>(p.ssm_pool) + slot * p.ssm_pitch +
                      (static_cast<int64_t>(value_head) * kHeadDim + head_row) * kHeadDim;
  Tile<State, kRows> state;
  state.load(head, reinterpret_cast<State*>(dynamic_shared) + warp * state.kSharedElements, lane, p.aligned_state);

  if (has_qk) {
    shared_q[threadIdx.x] = q.output(p.conv, q_window, q_x);
    shared_k[threadIdx.x] = k.output(p.conv, k_window, k_x);
  }
  const float value = v.output(p.conv, v_window, v_x);
  const Gate gate{expf(log_gate(A_log, a + dt_bias)), sigmoid(b)};
  __syncthreads();
  cluster_arrive();  // the windows of this block have been read

  KeyQuery token;
  token.q = reinterpret_cast<const float4*>(shared_q)[lane];
  token.k = reinterpret_cast<const float4*>(shared_k)[lane];
  token.l2norm();
  token.finish();
  state.wait();
  float sums[2 * kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float4 row = state.get(i);
    sums[i] = dot(row, token.k);
    sums[kRows + i] = dot(row, token.q);
  }
  const float2 d_o = delta_and_output<kRows>(sums, token, gate, value, p.scale, lane);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float d = RowMap<kRows>::d_of_row(d_o.x, i);
    store_four(head + i * kHeadDim + 4 * lane, updated_row(state.get(i), token.k, gate.decay, d), p.aligned_state);
  }
  if (RowMap<kRows>::stores(lane)) {
    store_float<T>(p.out, out_row + lane_row, d_o.y);
    v.shift(v_window, v_x);
    v.store_window(p.conv, slot, v_channel, v_window);
  }
  cluster_wait();
  if (has_qk && static_cast<int>(threadIdx.x) * blocks / kHeadDim == rank) {
    q.shift(q_window, q_x);
    k.shift(k_window, k_x);
    q.store_window(p.conv, slot, q_channel, q_window);
    k.store_window(p.conv, slot, k_channel, k_window);
  }
}

}  // namespace gdn::sm90
