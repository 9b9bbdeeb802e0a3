// Causal convolution of 1 to 16 new tokens a row: shifts the window in the pool, or leaves the pool alone and stores
// the window after each token (speculative drafts, a chain or a tree).
//
// Tile: one thread per (row, channel), channels fastest; it walks the tokens with the window in registers. In a tree
// the taps of a token are its ancestors' inputs, then the window of the pool. Memory: window and x read once, window
// and output written once. Windows of one row may overlap in memory: a thread then stores the same value twice.
// Synchronisation: none, a channel's window belongs to one thread.
#pragma once

#include "cuda/sm90_conv_channel.cuh"

namespace gdn::sm90 {

constexpr int kConvUpdateThreads = 128;
constexpr int kGroupDrafts = 4;  // loads in flight a thread

struct ConvUpdateParams {
  FloatPtr x, out, intermediate;  // [N, T_d, D] twice, [spec_slots, T_d, D, W-1] or null
  ConvLayer conv;
  SlotPtr cache_indices, intermediate_indices;
  IndexPtr parents;
  int64_t x_row, x_token, intermediate_row, intermediate_token, intermediate_channel;
  int32_t rows, drafts, channels;
  bool commit;
};

// Inputs before token t, along its path: the parents' x, then what the pool holds.
template <class T>
__device__ inline void gather_window(const ConvUpdateParams& p, int64_t n, int t, int channel,
                                     const float (&committed)[kMaxWindow], float (&window)[kMaxWindow]) {
  int token = t, older = 0;
#pragma unroll
  for (int j = kMaxWindow - 1; j >= 0; --j) {
    if (token >= 0) {
      const int64_t parent = load_index(p.parents, n * p.drafts + token);
      token = parent >= 0 && parent < token ? static_cast<int>(parent) : -1;
    }
    if (token >= 0) {
      window[j] = load_float<T>(p.x, n * p.x_row + token * p.x_token + channel);
    } else {
      ++older;
      window[j] = older == 1 ? committed[kMaxWindow - 1] : older == 2 ? committed[kMaxWindow - 2] : committed[0];
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kConvUpdateThreads)
    sm90_causal_conv1d_update(const __grid_constant__ ConvUpdateParams p) {
  const int channel = blockIdx.x * kConvUpdateThreads + threadIdx.x;
  const int64_t n = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  if (n >= p.rows || channel >= p.channels) return;
  ConvChannel<T> conv;
  conv.load(p.conv, channel);

  wait_for_previous_kernel();
  allow_next_kernel();

  const int64_t slot = load_slot(p.cache_indices, n);
  const int64_t out = n * p.drafts * p.channels + channel;
  if (slot < 0) {
    for (int t = 0; t < p.drafts; ++t) store_float<T>(p.out, out + static_cast<int64_t>(t) * p.channels, 0.0f);
    return;
  }
  const int64_t spec_slot = p.intermediate.data ? load_slot(p.intermediate_indices, n) : -1;
  ConvWindow<T> stored;
  stored.load(p.conv, slot, channel);
  float committed[kMaxWindow], window[kMaxWindow];
  stored.values(p.conv, committed);
  stored.values(p.conv, window);
#pragma unroll 1
  for (int first = 0; first < p.drafts; first += kGroupDrafts) {
    Raw<T> inputs[kGroupDrafts];
#pragma unroll
    for (int i = 0; i < kGroupDrafts; ++i)
      if (first + i < p.drafts) inputs[i] = Raw<T>::load(p.x, n * p.x_row + (first + i) * p.x_token + channel);
#pragma unroll
    for (int i = 0; i < kGroupDrafts; ++i) {
      const int t = first + i;
      if (t >= p.drafts) break;
      const float x = inputs[i].to_float(p.x.dtype);
      if (p.parents.data) gather_window<T>(p, n, t, channel, committed, window);
      store_float<T>(p.out, out + static_cast<int64_t>(t) * p.channels, conv.output(p.conv, window, x));
      stored.shift(window, x);
      if (spec_slot < 0) continue;
      const int missing = conv.missing_taps(p.conv);
      const int64_t target =
          spec_slot * p.intermediate_row + t * p.intermediate_token + channel * p.intermediate_channel - missing;
#pragma unroll
      for (int j = 0; j < kMaxWindow; ++j)
        if (j >= missing) store_float<T>(p.intermediate, target + j, window[j]);
    }
  }
  if (p.commit) stored.store(p.conv, slot, channel, window);
}

}  // namespace gdn::sm90
