// One decode step of a GDN layer: conv window shift, SiLU, l2norm, gates, delta rule and output, one token a row; on
// request the gated RMSNorm of the output and a second store of state and windows.
//
// Tiles: a cluster of C blocks takes one row and one key head with its r value heads, that is r x 128 consecutive rows
// of state, split evenly over the blocks; a warp takes `batches` times kRows of them.
// Order: weights are loaded before the wait for the previous kernel; then slot, x, windows and state, all in flight
// before the first is used. Each lane stages its own columns of the state in shared memory with asynchronous copies, so
// loads in flight hold no registers and need no barrier. Memory: the state crosses HBM once each way, 96 % of the
// bytes; every block of a cluster convolves q and k (from L2). Synchronisation: one block barrier publishes q, k, v. A
// q or k window is shifted by one block, after a cluster barrier that all its readers have passed; v windows belong to
// one thread. For the norm every warp sends the sums of squares of four rows at a time to all blocks of the cluster,
// which add them in one order whatever the tiling; they travel while states are updated.
#pragma once

#include "cuda/sm90_conv_channel.cuh"
#include "cuda/sm90_delta_rule.cuh"

namespace gdn::sm90 {

constexpr int kDecodeThreads = 2 * kHeadDim;  // one q or k channel each
constexpr int kDecodeRows = 4;                // rows of state a warp takes at a time
constexpr int kMostBlocks = 8;                // of a portable cluster
constexpr int kMostRows = 64;                 // of a block
constexpr int kMaxRatio = 4;

struct DecodeParams {
  FloatPtr q, k, v, a, b;   // [N, H, 128], [N, H, 128], [N, H, r x 128], [N, H, r], [N, H, r]
  FloatPtr A_log, dt_bias;  // [HV]
  ConvLayer conv;
  FloatPtr out;                        // [N, HV, 128]
  FloatPtr z, norm_weight;             // [N, H, r, 128], [128]; null without a norm
  void* ssm_pool;                      // [slots, HV, 128, 128]
  SlotPtr cache_indices, track_slots;  // [N]
  int64_t x_pitch, a_pitch, b_pitch, z_pitch, ssm_pitch;
  int64_t z_key_head, z_value_head;  // pitches within a row, as are the next
  int32_t qk_key_head, v_key_head, a_key_head, b_key_head;
  int32_t rows, key_heads, ratio;
  int32_t block_rows, state_warps, batches;  // block_rows = state_warps x batches x kRows
  float scale, norm_eps;
  bool aligned_state, short_kernel, norm_silu;
};

// The channel a thread convolves: its input, its window, and the window's shift.
template <class T>
struct DecodeChannel {
  ConvChannel<T> conv;
  ConvWindow<T> window;
  Raw<T> x;

  __device__ float output(const DecodeParams& p) const {
    float taps[kMaxWindow];
    window.values(p.conv, taps);
    return conv.output(p.conv, taps, x.to_float(p.q.dtype));
  }

  __device__ void store_shifted(const DecodeParams& p, int64_t slot, int64_t track_slot, int channel) const {
    float taps[kMaxWindow];
    window.values(p.conv, taps);
    window.shift(taps, x.to_float(p.q.dtype));
    window.store(p.conv, slot, channel, taps);
    if (track_slot >= 0) window.store(p.conv, track_slot, channel, taps);
  }
};

// What the blocks of a cluster exchange for the norm: sums of squares of four outputs each, whatever the tiling.
struct NormSums {
  static constexpr int kPerHead = kHeadDim / kDecodeRows;  // one a lane
  static_assert(kPerHead == kWarp && kMostBlocks <= kWarp);
  static_assert(kMostRows / (kDecodeThreads / kWarp) / kDecodeRows <= RowMap<kDecodeRows>::kLanesPerRow);

  TransferBarrier barrier;
  float partial[kMaxRatio * kPerHead];
  float gate[kMostRows];  // norm_weight act(z) of the rows of the block

  __device__ static uint32_t bytes(int ratio) { return ratio * kPerHead * sizeof(float); }

  // o: of the row that the lane owns, of four from `first_row` of the r x 128.
  __device__ void send(float o, int first_row, int lane) {
    constexpr int kLanesPerRow = RowMap<kDecodeRows>::kLanesPerRow;
    float sum = o * o;
    sum += __shfl_xor_sync(kFullMask, sum, kLanesPerRow);
    sum += __shfl_xor_sync(kFullMask, sum, 2 * kLanesPerRow);
    if (lane < static_cast<int>(cluster_size())) store_to_peer(partial + first_row / kDecodeRows, barrier, lane, sum);
  }

  __device__ float rsqrt_of_mean(int head, float eps, int lane) const {
    return rsqrtf(fmaf(warp_sum(partial[head * kPerHead + lane]), 1.0f / kHeadDim, eps));
  }
};

// norm_weight act(z) of one of the r x 128 rows of a key head. NOTE: loaded before the states are, behind which it
// would come last and hold up the block.
struct RowGate {
  Raw<AnyType> weight, z;

  __device__ void load_weight(const DecodeParams& p, int row) {
    weight = Raw<AnyType>::load(p.norm_weight, row % kHeadDim);
  }
  __device__ void load_z(const DecodeParams& p, int64_t n, int key_head, int row) {
    const int64_t at = n * p.z_pitch + key_head * p.z_key_head + row / kHeadDim * p.z_value_head + row % kHeadDim;
    z = Raw<AnyType>::load(p.z, at);
  }
  __device__ float value(const DecodeParams& p) const {
    const float x = z.to_float(p.z.dtype);
    return weight.to_float(p.norm_weight.dtype) * (p.norm_silu ? silu(x) : sigmoid(x));
  }
};

// T: dtype of x, conv weights, bias, conv pool and output, with width 4 and states at multiples of 16 bytes; AnyType:
// all of that, and which options are used, is read at run time.
template <class State, class T, bool kNorm, bool kTracks>
__global__ void __launch_bounds__(kDecodeThreads, std::is_same_v<T, AnyType> ? 2 : 4)
    sm90_gdn_decode(const __grid_constant__ DecodeParams p) {
  constexpr int kRows = kDecodeRows;
  // NOTE: states first, so that they lie at multiples of 128 bytes: 16 bytes off, batch 256 took 5 % longer.
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ NormSums norm_sums;                                                        // 776 B, kNorm only
  State* const staged = reinterpret_cast<State*>(shared);                               // block_rows x 128
  float* const shared_qk = reinterpret_cast<float*>(staged + p.block_rows * kHeadDim);  // q, then k: 1 KB
  float* const shared_v = shared_qk + 2 * kHeadDim;                                     // block_rows
  const bool aligned = std::is_same_v<T, AnyType> ? p.aligned_state : true;
  const bool norm = kNorm && (!std::is_same_v<T, AnyType> || p.norm_weight.data);

  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int rank = cluster_rank(), key_head = cluster_index_x();
  const int64_t n = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  if (n >= p.rows) return;
  const int warp_rows = kRows * p.batches;
  const bool has_state = warp < p.state_warps;
  const int warp_row = warp * warp_rows;                 // in the block
  const int group_row = rank * p.block_rows + warp_row;  // in the r x 128 rows of the key head
  const int group_head = has_state ? group_row / kHeadDim : 0;
  const int value_head = key_head * p.ratio + group_head;

  const int thread = threadIdx.x;
  const bool is_k = thread >= kHeadDim;
  const int qk_channel = (is_k * p.key_heads + key_head) * kHeadDim + thread % kHeadDim;
  const int qk_input = key_head * p.qk_key_head + thread % kHeadDim;
  const int v_index = thread - kDecodeThreads + p.block_rows;  // the last threads convolve a v channel as well
  const bool has_v = v_index >= 0;
  const int v_row = rank * p.block_rows + v_index;
  const int v_channel = (2 * p.key_heads + key_head * p.ratio) * kHeadDim + v_row;
  const int v_input = key_head * p.v_key_head + v_row;

  if (norm && thread == 0) norm_sums.barrier.init();
  DecodeChannel<T> qk, v;
  qk.conv.load(p.conv, qk_channel);
  if (has_v) v.conv.load(p.conv, v_channel);
  const auto A_log = Raw<AnyType>::load(p.A_log, value_head);
  const auto dt_bias = Raw<AnyType>::load(p.dt_bias, value_head);
  RowGate row_gate;
  const bool has_gate = norm && thread < p.block_rows;
  const int gate_row = rank * p.block_rows + thread;
  if (has_gate) row_gate.load_weight(p, gate_row);

  State* const pool = static_cast<State*>(p.ssm_pool) +
                      (static_cast<int64_t>(key_head) * p.ratio * kHeadDim + group_row) * kHeadDim + 4 * lane;

  wait_for_previous_kernel();
  allow_next_kernel();

  const int64_t slot = load_slot(p.cache_indices, n);
  const int64_t track_slot = kTracks && p.track_slots.ids.data ? load_slot(p.track_slots, n) : -1;
  const int64_t x = n * p.x_pitch;
  qk.x = Raw<T>::load(is_k ? p.k : p.q, x + qk_input);
  if (has_v) v.x = Raw<T>::load(p.v, x + v_input);
  if (has_gate) row_gate.load_z(p, n, key_head, gate_row);
  const auto a = Raw<AnyType>::load(p.a, n * p.a_pitch + key_head * p.a_key_head + group_head);
  const auto b = Raw<AnyType>::load(p.b, n * p.b_pitch + key_head * p.b_key_head + group_head);
  const int64_t out = (n * p.key_heads + key_head) * p.ratio * kHeadDim + rank * p.block_rows;
  if (slot < 0) {
    for (int i = thread; i < p.block_rows; i += kDecodeThreads) store_float<T>(p.out, out + i, 0.0f);
    return;
  }
  qk.window.load(p.conv, slot, qk_channel);
  if (has_v) v.window.load(p.conv, slot, v_channel);
  State* const head = pool + slot * p.ssm_pitch;
  State* const own = staged + warp_row * kHeadDim + 4 * lane;
  if (has_state) {
    const State* from = head;
    State* to = own;
#pragma unroll 1
    for (int i = 0; i < p.batches; ++i, from += kRows * kHeadDim, to += kRows * kHeadDim) {
#pragma unroll
      for (int j = 0; j < kRows; ++j) copy_four_async(to + j * kHeadDim, from + j * kHeadDim, aligned);
    }
  }
  const float g = log_gate(A_log.to_float(p.A_log.dtype), a.to_float(p.a.dtype) + dt_bias.to_float(p.dt_bias.dtype));
  const Gate gate{expf(g), sigmoid(b.to_float(p.b.dtype))};
  if (has_gate) norm_sums.gate[thread] = row_gate.value(p);
  shared_qk[thread] = qk.output(p);
  if (has_v) shared_v[v_index] = v.output(p);
  __syncthreads();
  if (norm && thread == 0) norm_sums.barrier.expect(NormSums::bytes(p.ratio));
  cluster_arrive();  // the windows of this block have been read
  if (has_v) v.store_shifted(p, slot, track_slot, v_channel);
  const auto shift_qk = [&] {
    const int owner = thread * static_cast<int>(cluster_size()) / kDecodeThreads;
    if (norm || owner == rank) cluster_wait();  // whole warps; with a norm, so that every block expects sums
    if (owner == rank) qk.store_shifted(p, slot, track_slot, qk_channel);
  };
  if (norm) shift_qk();

  if (has_state) {
    const KeyQuery token = KeyQuery::of(reinterpret_cast<const float4*>(shared_qk + kHeadDim)[lane],
                                        reinterpret_cast<const float4*>(shared_qk)[lane], true);
    const int lane_row = RowMap<kRows>::row_of_lane(lane);
    const int lane_batch = lane % RowMap<kRows>::kLanesPerRow;  // whose o it keeps for the norm
    float lane_o = 0.0f;
    wait_for_own_copies();
    State* target = head;
    const State* source = own;
    const float* value = shared_v + warp_row + lane_row;
    int64_t out_row = out + warp_row + lane_row;
#pragma unroll 1
    for (int i = 0; i < p.batches; ++i) {
      float4 row[kRows];
      float sums[2 * kRows];
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        row[j] = read_four(source + j * kHeadDim);
        sums[j] = dot(row[j], token.k);
        sums[kRows + j] = dot(row[j], token.q);
      }
      const RowResult result = delta_and_output<kRows>(sums, token, gate, *value, p.scale, lane);
      if (norm) norm_sums.send(result.o, group_row + i * kRows, lane);
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const float d = RowMap<kRows>::d_of_row(result.d_scaled, j);
        row[j] = updated_row(row[j], token.k, gate.decay, d);
        store_four(target + j * kHeadDim, row[j], aligned, p.short_kernel);
      }
      if (track_slot >= 0) {
        State* const tracked = target + (track_slot - slot) * p.ssm_pitch;
#pragma unroll
        for (int j = 0; j < kRows; ++j) store_four(tracked + j * kHeadDim, row[j], aligned, p.short_kernel);
      }
      if (norm) {
        if (i == lane_batch) lane_o = result.o;
      } else if (RowMap<kRows>::stores(lane)) {
        store_float<T>(p.out, out_row, result.o);
      }
      target += kRows * kHeadDim, source += kRows * kHeadDim, value += kRows, out_row += kRows;
    }
    if (norm) {
      norm_sums.barrier.wait();
      const float factor = norm_sums.rsqrt_of_mean(group_head, p.norm_eps, lane);
      const int row = warp_row + lane_batch * kRows + lane_row;
      if (lane < kWarp / 2 && lane_batch < p.batches)
        store_float<T>(p.out, out + row, lane_o * factor * norm_sums.gate[row]);
    }
  }
  if (!norm) shift_qk();
}

}  // namespace gdn::sm90
