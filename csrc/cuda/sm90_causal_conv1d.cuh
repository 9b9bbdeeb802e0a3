// Causal convolution over packed sequences, with the window of each sequence read from and written to its slot.
//
// Tiles: kTileTokens packed tokens x kConvThreads x kVector channels; a thread walks the tokens with the windows of its
// channels in registers. Which sequence a token belongs to is found by bisection and then followed.
// Ownership: the first W-1 tokens of a sequence all belong to the tile of its first token, also past the tile's end.
// That tile alone reads the slot, and then writes the new window, whose inputs it reads from x: no order between tiles
// is needed although slots are updated in place. Every other token has all its taps in x.
// Memory: x read once plus a halo of W-1 tokens a tile (from L2), out written once.
// Synchronisation: none.
#pragma once

#include "cuda/sm90_conv_channel.cuh"

namespace gdn::sm90 {

constexpr int kConvThreads = 128;
constexpr int kTileTokens = 32;

struct ConvParams {
  FloatPtr x, out;  // [T, D]
  ConvLayer conv;   // pool is null without a conv_pool
  SlotPtr cache_indices, track_slots;
  IndexPtr query_start_loc, track_lens;
  const bool* has_initial_state;
  int64_t x_pitch, tokens;
  int32_t rows, channels, tiles;
};

// The inputs of one token, as they lie in memory until they are used.
template <class T, int kVector>
struct Inputs {
  static_assert(sizeof(T) * kVector == 8);
  uint2 bits;

  __device__ static Inputs load(FloatPtr x, int64_t i) {
    return {*reinterpret_cast<const uint2*>(static_cast<const T*>(x.data) + i)};
  }
  __device__ float value(DType, int c) const {
    T element[kVector];
    memcpy(element, &bits, sizeof(bits));
    return to_float(element[c]);
  }
  __device__ static void store(FloatPtr out, int64_t i, const float (&y)[kVector]) {
    T element[kVector];
#pragma unroll
    for (int c = 0; c < kVector; ++c) element[c] = from_float<T>(y[c]);
    uint2 bits;
    memcpy(&bits, element, sizeof(bits));
    *reinterpret_cast<uint2*>(static_cast<T*>(out.data) + i) = bits;
  }
};

template <>
struct Inputs<AnyType, 1> {
  Raw<AnyType> raw;

  __device__ static Inputs load(FloatPtr x, int64_t i) { return {Raw<AnyType>::load(x, i)}; }
  __device__ float value(DType dtype, int) const { return raw.to_float(dtype); }
  __device__ static void store(FloatPtr out, int64_t i, const float (&y)[1]) { store_float<AnyType>(out, i, y[0]); }
};

template <class T, int kVector>
struct ConvThread {
  static constexpr int kGroupTokens = kVector == 1 ? 2 : 8;  // loads in flight
  const ConvParams& p;
  int channel;
  ConvChannel<T> conv[kVector];
  float window[kVector][kMaxWindow];

  __device__ bool resumes(int64_t n) const {
    return p.conv.pool.data && (!p.has_initial_state || p.has_initial_state[n]);
  }
  __device__ int64_t slot(int64_t n) const { return p.conv.pool.data ? load_slot(p.cache_indices, n) : 0; }

  __device__ void load_initial(int64_t n, float (&initial)[kVector][kMaxWindow]) const {
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      if (resumes(n)) {
        ConvWindow<T> stored;
        stored.load(p.conv, slot(n), channel + c);
        stored.values(p.conv, initial[c]);
      } else {
#pragma unroll
        for (int j = 0; j < kMaxWindow; ++j) initial[c][j] = 0.0f;
      }
    }
  }

  // The window after `length` tokens of a sequence that starts at `begin`.
  __device__ void store_window_after(int64_t target, int64_t begin, int64_t length,
                                     const float (&initial)[kVector][kMaxWindow]) const {
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      float last[kMaxWindow];
#pragma unroll
      for (int j = 0; j < kMaxWindow; ++j) {
        const int64_t t = length - kMaxWindow + j;  // negative: still in the initial window
        last[j] = t >= 0        ? load_float<T>(p.x, (begin + t) * p.x_pitch + channel + c)
                  : length == 0 ? initial[c][j]
                  : length == 1 ? initial[c][j + 1 < kMaxWindow ? j + 1 : j]
                                : initial[c][kMaxWindow - 1];
      }
      ConvWindow<T>::store(p.conv, target, channel + c, last);
    }
  }

  __device__ void store_windows(int64_t n, int64_t begin, int64_t end,
                                const float (&initial)[kVector][kMaxWindow]) const {
    if (!p.conv.pool.data) return;
    if (begin < end || !resumes(n)) store_window_after(slot(n), begin, end - begin, initial);
    const int64_t track = p.track_slots.ids.data ? load_slot(p.track_slots, n) : -1;
    if (track < 0) return;
    const int64_t length = load_index(p.track_lens, n);
    store_window_after(track, begin, length < end - begin ? (length > 0 ? length : 0) : end - begin, initial);
  }

  // NOTE: out may alias x for all the compiler knows, so a group's loads are written before its stores.
  __device__ void tokens(int64_t first, int64_t last) {
#pragma unroll 1
    for (int64_t t = first; t < last; t += kGroupTokens) {
      Inputs<T, kVector> in[kGroupTokens];
#pragma unroll
      for (int i = 0; i < kGroupTokens; ++i)
        if (t + i < last) in[i] = Inputs<T, kVector>::load(p.x, (t + i) * p.x_pitch + channel);
#pragma unroll
      for (int i = 0; i < kGroupTokens; ++i) {
        if (t + i >= last) break;
        float y[kVector];
#pragma unroll
        for (int c = 0; c < kVector; ++c) {
          const float x = in[i].value(p.x.dtype, c);
          y[c] = conv[c].output(p.conv, window[c], x);
          ConvWindow<T>::shift(window[c], x);
        }
        Inputs<T, kVector>::store(p.out, (t + i) * p.channels + channel, y);
      }
    }
  }

  __device__ void zeros(int64_t first, int64_t last) const {
    const float zero[kVector] = {};
    for (int64_t t = first; t < last; ++t) Inputs<T, kVector>::store(p.out, t * p.channels + channel, zero);
  }

  __device__ void halo(int64_t first) {
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j) {
      if (j < ConvChannel<T>::missing_taps(p.conv)) continue;  // its weight is zero, and the token may be outside x
      const auto in = Inputs<T, kVector>::load(p.x, (first - kMaxWindow + j) * p.x_pitch + channel);
#pragma unroll
      for (int c = 0; c < kVector; ++c) window[c][j] = in.value(p.x.dtype, c);
    }
  }
};

// Last row whose first token is at or before t.
__device__ inline int64_t row_of_token(const ConvParams& p, int64_t t) {
  int64_t low = 0, high = p.rows - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (load_index(p.query_start_loc, middle) <= t)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

template <class T, int kVector>
__global__ void __launch_bounds__(kConvThreads) sm90_causal_conv1d(const __grid_constant__ ConvParams p) {
  const int channel = (blockIdx.x * kConvThreads + threadIdx.x) * kVector;
  const int64_t tile = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  if (tile >= p.tiles || channel >= p.channels) return;
  ConvThread<T, kVector> thread{p, channel, {}, {}};
#pragma unroll
  for (int c = 0; c < kVector; ++c) thread.conv[c].load(p.conv, channel + c);

  wait_for_previous_kernel();
  allow_next_kernel();

  const int64_t owned = p.conv.width - 1;  // tokens of a sequence that belong to the tile of its first
  const int64_t tile_begin = tile * kTileTokens, tile_end = min(tile_begin + kTileTokens, p.tokens);
  float initial[kVector][kMaxWindow];
  for (int64_t n = row_of_token(p, tile_begin); n < p.rows; ++n) {
    const int64_t begin = load_index(p.query_start_loc, n), end = load_index(p.query_start_loc, n + 1);
    if (begin >= tile_end) break;
    if (end <= begin || end <= tile_begin) continue;
    const bool starts_here = begin >= tile_begin;
    const int64_t first = starts_here ? begin : max(tile_begin, min(begin + owned, end));
    const int64_t last = min(end, starts_here ? max(tile_end, begin + owned) : tile_end);
    if (thread.slot(n) < 0) {
      thread.zeros(first, last);
    } else if (starts_here) {
      thread.load_initial(n, initial);
#pragma unroll
      for (int c = 0; c < kVector; ++c)
#pragma unroll
        for (int j = 0; j < kMaxWindow; ++j) thread.window[c][j] = initial[c][j];
      thread.tokens(first, last);
      thread.store_windows(n, begin, end, initial);
    } else if (first < last) {
      thread.halo(first);
      thread.tokens(first, last);
    }
  }
  thread.zeros(max(tile_begin, load_index(p.query_start_loc, p.rows)), tile_end);

  // Rows without tokens: an initial state of zeros is stored all the same.
  for (int64_t n = tile; p.conv.pool.data && n < p.rows; n += p.tiles) {
    const int64_t begin = load_index(p.query_start_loc, n);
    if (load_index(p.query_start_loc, n + 1) != begin || thread.slot(n) < 0) continue;
    thread.load_initial(n, initial);
    thread.store_windows(n, begin, begin, initial);
  }
}

}  // namespace gdn::sm90
