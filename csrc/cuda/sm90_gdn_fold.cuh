// Commits draft tokens from their record, in all layers at once: S = e^G S + sum_i e^(G - G_i) d_i k_i^T over the
// tokens on the path to the last accepted one, and the conv window that ends there. The states after one more token of
// the path may go to a track slot.
//
// Tiles: the first blocks of a (layer, row) take 32 rows of one head's state, a warp 8 of them in registers; the last
// ones take one conv channel a thread. Memory: state read once and written once, which bounds the time; k and d of all
// drafts are copied to shared memory beside the loads of the state. Bounds: a step outside [0, T_d), and slots and
// parents outside their ranges, reach no memory. Synchronisation: one block barrier after the copies; every warp
// derives path and factors itself, and what a thread writes it has read before.
#pragma once

#include "cuda/sm90_delta_rule.cuh"
#include "cuda/sm90_draft_path.cuh"

namespace gdn::sm90 {

constexpr int kFoldThreads = 128;
constexpr int kFoldRows = 8;                                      // of state, a warp
constexpr int kFoldBlockRows = kFoldRows * kFoldThreads / kWarp;  // of one head, a block

struct LayerPitch {
  int64_t layer, row, token;
  __device__ int64_t at(int layer_index, int64_t n, int t) const { return layer_index * layer + n * row + t * token; }
};

struct FoldParams {
  void* ssm_pool;          // [layers, slots, HV, 128, 128]
  void *conv_pool, *x;     // [layers, slots, D, W-1], [layers, rows, T_d, D], elements of conv_size bytes
  const float *k, *d, *g;  // [layers, rows, T_d, H, 128], [.., HV, 128], [.., HV]
  SlotPtr cache_indices, track_slots;
  IndexPtr last_steps, track_steps, parents;
  LayerPitch x_pitch, k_pitch, d_pitch, g_pitch;
  int64_t ssm_layer, ssm_slot, conv_layer, conv_slot;
  int32_t rows, drafts, value_heads, ratio, channels, window, conv_size;
  int32_t state_blocks, layer_blocks;
  bool aligned_state, aligned_record;
};

// Where the states after draft token `step` go; slot -1: nowhere.
struct FoldTarget {
  int64_t slot;
  int step;

  __device__ static FoldTarget load(const FoldParams& p, SlotPtr slots, IndexPtr steps, int64_t n) {
    const int64_t slot = load_slot(slots, n), step = load_index(steps, n);
    const bool exists = step >= 0 && step < p.drafts;
    return {exists ? slot : -1, exists ? static_cast<int>(step) : 0};
  }
};

// The record of one layer and row, for the rows of one block.
struct FoldShared {
  float k[kMaxDrafts][kHeadDim], d[kMaxDrafts][kFoldBlockRows];

  __device__ void copy(const FoldParams& p, int layer, int64_t n, int key_head, int64_t first_row) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, column = 4 * lane;
    for (int t = warp; t < p.drafts; t += kFoldThreads / kWarp) {
      copy_four_async(&k[t][column], p.k + p.k_pitch.at(layer, n, t) + key_head * kHeadDim + column, p.aligned_record);
      if (column < kFoldBlockRows)
        copy_four_async(&d[t][column], p.d + p.d_pitch.at(layer, n, t) + first_row + column, p.aligned_record);
    }
  }
};

template <class State>
__device__ inline void fold_state(const FoldParams& p, int layer, int64_t n, int block, int64_t slot, FoldTarget track,
                                  FoldTarget in_place) {
  constexpr int kBlocksOfHead = kHeadDim / kFoldBlockRows;
  __shared__ __align__(16) FoldShared shared;
  const int lane = threadIdx.x % kWarp, warp_row = threadIdx.x / kWarp * kFoldRows;
  const int value_head = block / kBlocksOfHead;
  const int64_t block_row = static_cast<int64_t>(block) * kFoldBlockRows;
  State* const states =
      static_cast<State*>(p.ssm_pool) + layer * p.ssm_layer + (block_row + warp_row) * kHeadDim + 4 * lane;
  shared.copy(p, layer, n, value_head / p.ratio, block_row);
  const float g = lane < p.drafts ? p.g[p.g_pitch.at(layer, n, lane) + value_head] : 0.0f;
  const int parent = draft_parent(p.parents, n, p.drafts, lane);
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const FoldTarget target = i == 0 ? track : in_place;
    float4 state[kFoldRows];
    if (target.slot >= 0) {
#pragma unroll
      for (int r = 0; r < kFoldRows; ++r)
        state[r] = load_four(states + slot * p.ssm_slot + r * kHeadDim, p.aligned_state);
    }
    wait_for_own_copies();
    __syncthreads();
    if (target.slot < 0) continue;
    const DraftPath path = DraftPath::of(parent, g, lane);
    const float log_decay = __shfl_sync(kFullMask, path.log_decay, target.step);
    const float factors = expf(log_decay - path.log_decay), decay = expf(log_decay);
#pragma unroll
    for (int r = 0; r < kFoldRows; ++r) state[r] = state[r] * decay;
#pragma unroll 1
    for (uint32_t rest = __shfl_sync(kFullMask, path.tokens, target.step); rest != 0; rest &= rest - 1) {
      const int t = __ffs(rest) - 1;
      const float4 k = read_four(&shared.k[t][4 * lane]) * __shfl_sync(kFullMask, factors, t);
#pragma unroll
      for (int r = 0; r < kFoldRows; r += 4) {
        const float4 d = read_four(&shared.d[t][warp_row + r]);
        state[r] = fused_multiply_add(d.x, k, state[r]);
        state[r + 1] = fused_multiply_add(d.y, k, state[r + 1]);
        state[r + 2] = fused_multiply_add(d.z, k, state[r + 2]);
        state[r + 3] = fused_multiply_add(d.w, k, state[r + 3]);
      }
    }
#pragma unroll
    for (int r = 0; r < kFoldRows; ++r)
      store_four(states + target.slot * p.ssm_slot + r * kHeadDim, state[r], p.aligned_state);
  }
}

template <class Element>
__device__ inline void fold_window(const FoldParams& p, int layer, int64_t n, int channel, int64_t slot,
                                   FoldTarget target) {
  const int lane = threadIdx.x % kWarp;
  const uint32_t inputs_before = DraftInputs::before(draft_parent(p.parents, n, p.drafts, lane), lane);
  const uint32_t before = __shfl_sync(kFullMask, inputs_before, target.step);
  if (channel >= p.channels) return;
  const int rows[kMaxWindow] = {kMaxWindow + target.step, static_cast<int>(before & 255),
                                static_cast<int>(before >> 8 & 255)};
  Element* const windows =
      static_cast<Element*>(p.conv_pool) + layer * p.conv_layer + static_cast<int64_t>(channel) * p.window;
  const Element* const x = static_cast<const Element*>(p.x) + channel;
  Element newest_first[kMaxWindow];
#pragma unroll
  for (int j = 0; j < kMaxWindow; ++j) {
    if (j >= p.window) break;
    const int t = rows[j] - kMaxWindow;
    newest_first[j] = t >= 0 ? x[p.x_pitch.at(layer, n, t)] : windows[slot * p.conv_slot + p.window + t];
  }
#pragma unroll
  for (int j = 0; j < kMaxWindow; ++j)
    if (j < p.window) windows[target.slot * p.conv_slot + p.window - 1 - j] = newest_first[j];
}

template <class State>
__global__ void __launch_bounds__(kFoldThreads, 5) sm90_gdn_fold(const __grid_constant__ FoldParams p) {
  const int64_t n = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  if (n >= p.rows) return;
  const int layer = blockIdx.x / p.layer_blocks, block = blockIdx.x % p.layer_blocks;
  wait_for_previous_kernel();
  allow_next_kernel();
  const int64_t slot = load_slot(p.cache_indices, n);
  if (slot < 0) return;
  const FoldTarget track =
      p.track_steps.data ? FoldTarget::load(p, p.track_slots, p.track_steps, n) : FoldTarget{-1, 0};
  const FoldTarget in_place = FoldTarget::load(p, p.cache_indices, p.last_steps, n);
  if (track.slot < 0 && in_place.slot < 0) return;
  if (block < p.state_blocks) return fold_state<State>(p, layer, n, block, slot, track, in_place);
  const int channel = (block - p.state_blocks) * kFoldThreads + threadIdx.x;
  const auto fold_to = [&](FoldTarget target) {
    if (target.slot < 0) return;
    p.conv_size == 4 ? fold_window<uint32_t>(p, layer, n, channel, slot, target)
                     : fold_window<uint16_t>(p, layer, n, channel, slot, target);
  };
  fold_to(track);
  fold_to(in_place);
}

}  // namespace gdn::sm90
