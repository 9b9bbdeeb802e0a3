// Everything before the chunk rule in one launch: causal convolution with SiLU, l2norm of q and k, gates, and the
// windows of the convolution read from and written to their slots. Without heads and gates it is causal_conv1d.
//
// Tiles: a warp walks tile_tokens packed tokens of 256 channels (bf16: two heads of 128, 16 bytes a lane) or of one
// head (any dtype, four channels a lane) with its window in registers; blocks after those compute the gates. Which
// sequence a token belongs to is found by a 32-ary search and then followed. Ownership: the first W-1 tokens of a
// sequence all belong to the tile of its first token, also past the tile's end. That tile alone reads the slot, and
// then writes the new window, whose inputs it reads from x: no order between tiles is needed although slots are updated
// in place. Every other token has all its taps in x. Memory: x read once plus W-1 tokens a tile (from L2), out written
// once. Synchronisation: none between threads. A lane copies its tokens into shared memory ahead of their use and alone
// reads them there.
#pragma once

#include "cuda/sm90_conv_channel.cuh"
#include "cuda/sm90_delta_rule.cuh"
#include "cuda/sm90_gates.cuh"

namespace gdn::sm90 {

constexpr int kFrontendThreads = 128;
constexpr int kFrontendBlocks = 4;  // resident on a multiprocessor
constexpr int kGatesABlock = 4 * kFrontendThreads;

struct FrontendParams {
  FloatPtr x, out;  // [T, D]
  ConvLayer conv;   // pool is null without a conv_pool
  SlotPtr cache_indices, track_slots;
  IndexPtr query_start_loc, track_lens;
  const bool* has_initial_state;
  GatingParams gates;
  int64_t x_pitch;
  int32_t tokens, rows, channels;
  int32_t key_heads, key_dim, value_dim;  // 2H, K and V
  bool qk_l2norm;
  int32_t tiles, tile_tokens, groups;  // groups of channels, a warp of a tile each
  uint32_t conv_blocks;                // the blocks after them compute the gates
};

// The channels of one lane. Input is one token of them as it lies in memory, Taps the same where it may stay in a
// window.
template <class T>
struct LaneChannels;

// bf16 throughout, W = 4, heads of 128, rows at multiples of 16 bytes.
template <>
struct LaneChannels<bf16> {
  static constexpr int kCount = 8, kHeadLanes = kHeadDim / kCount, kWarpChannels = kWarp * kCount;
  static constexpr int kGroupTokens = 2, kStages = 6;
  static constexpr int kSharedBytes = kStages * kGroupTokens * kFrontendThreads * static_cast<int>(sizeof(uint4));
  using Input = uint4;
  using Taps = uint4;
  int channel;  // the last ones in lanes past the end
  bool active, normalised;
  const char* x;
  char* out;
  uint32_t x_pitch, out_pitch;  // in bytes
  uint4* ring;                  // [kStages, kGroupTokens], kFrontendThreads apart
  int stage = 0;

  __device__ LaneChannels(const FrontendParams& p, int group, int lane)
      : channel(min(group * kWarpChannels + lane * kCount, p.channels - kCount)),
        active(group * kWarpChannels + lane * kCount < p.channels),
        normalised(p.qk_l2norm && group * kWarpChannels < p.key_heads * kHeadDim),
        x(static_cast<const char*>(p.x.data) + channel * sizeof(bf16)),
        out(static_cast<char*>(p.out.data) + channel * sizeof(bf16)),
        x_pitch(static_cast<uint32_t>(p.x_pitch * sizeof(bf16))),
        out_pitch(static_cast<uint32_t>(p.channels * sizeof(bf16))) {
    extern __shared__ uint4 shared[];
    ring = shared + threadIdx.x;
  }

  __device__ static uint64_t offset(int t, uint32_t pitch) {
    return static_cast<uint64_t>(static_cast<uint32_t>(t)) * pitch;
  }
  __device__ const uint4* at(int t) const { return reinterpret_cast<const uint4*>(x + offset(t, x_pitch)); }
  __device__ Input load(const FrontendParams&, int t) const { return *at(t); }
  __device__ static Taps taps(const FrontendParams&, Input input) { return input; }
  __device__ static void values(Taps taps, float (&value)[kCount]) {
    const uint32_t words[kCount / 2] = {taps.x, taps.y, taps.z, taps.w};
#pragma unroll
    for (int c = 0; c < kCount; ++c)
      value[c] = __uint_as_float(c % 2 == 0 ? words[c / 2] << 16 : words[c / 2] & 0xffff0000);
  }
  __device__ void store(const FrontendParams&, int t, bool wanted, const float (&y)[kCount]) const {
    store_words_if(wanted && active, reinterpret_cast<uint4*>(out + offset(t, out_pitch)),
                   {pack_bf16(y[0], y[1]), pack_bf16(y[2], y[3]), pack_bf16(y[4], y[5]), pack_bf16(y[6], y[7])});
  }

  __device__ uint4* slot_of(int in_stage, int i) const {
    return ring + (in_stage * kGroupTokens + i) * kFrontendThreads;
  }
  __device__ void copy_group(int first, int last, int to_stage) const {
#pragma unroll
    for (int i = 0; i < kGroupTokens; ++i)
      if (first + i < last) copy_words_async(slot_of(to_stage, i), at(first + i));
    commit_copies();
  }
  // Starts to fetch the tokens of [first, last).
  __device__ void start(int first, int last) {
    stage = 0;
#pragma unroll
    for (int s = 0; s + 1 < kStages; ++s) copy_group(first + s * kGroupTokens, last, s);
  }
  // The group from t on, as soon as it is there.
  __device__ void next_group(const FrontendParams&, int t, int last, Input (&group)[kGroupTokens]) {
    wait_for_older_copies<kStages - 2>();
#pragma unroll
    for (int i = 0; i < kGroupTokens; ++i) group[i] = *slot_of(stage, i);
    copy_group(t + (kStages - 1) * kGroupTokens, last, stage == 0 ? kStages - 1 : stage - 1);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  __device__ static void finish() { wait_for_own_copies(); }

  __device__ void filter(const FrontendParams& p, float (&weight)[kMaxTaps][kCount], float (&bias)[kCount]) const {
    uint4 words[kMaxTaps], bias_words = {};
#pragma unroll
    for (int i = 0; i < kMaxTaps; ++i)
      words[i] = reinterpret_cast<const uint4*>(static_cast<const bf16*>(p.conv.weight.data) + channel * kMaxTaps)[i];
    if (p.conv.bias.data)
      bias_words = *reinterpret_cast<const uint4*>(static_cast<const bf16*>(p.conv.bias.data) + channel);
    bf16 element[kCount * kMaxTaps];
    memcpy(element, words, sizeof(words));
#pragma unroll
    for (int c = 0; c < kCount; ++c)
#pragma unroll
      for (int j = 0; j < kMaxTaps; ++j) weight[j][c] = to_float(element[c * kMaxTaps + j]);
    values(bias_words, bias);
  }

  // Windows lie in the pool as [channel, tap].
  __device__ uint4* window_of(const FrontendParams& p, int64_t slot) const {
    return reinterpret_cast<uint4*>(static_cast<bf16*>(p.conv.pool.data) + slot * p.conv.pool_pitch +
                                    channel * kMaxWindow);
  }
  __device__ void load_window(const FrontendParams& p, int64_t slot, Taps (&window)[kMaxWindow]) const {
    uint4 words[kMaxWindow];
#pragma unroll
    for (int i = 0; i < kMaxWindow; ++i) words[i] = window_of(p, slot)[i];
    uint16_t element[kCount * kMaxWindow], token[kCount];
    memcpy(element, words, sizeof(words));
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j) {
#pragma unroll
      for (int c = 0; c < kCount; ++c) token[c] = element[c * kMaxWindow + j];
      memcpy(&window[j], token, sizeof(token));
    }
  }
  __device__ void store_window(const FrontendParams& p, int64_t slot, const Taps (&window)[kMaxWindow]) const {
    uint16_t element[kCount * kMaxWindow], token[kCount];
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j) {
      memcpy(token, &window[j], sizeof(token));
#pragma unroll
      for (int c = 0; c < kCount; ++c) element[c * kMaxWindow + j] = token[c];
    }
    uint4 words[kMaxWindow];
    memcpy(words, element, sizeof(words));
#pragma unroll
    for (int i = 0; i < kMaxWindow; ++i) store_words_if(active, window_of(p, slot) + i, words[i]);
  }
};

// Any dtypes, widths and head sizes up to 128: channels lane, lane + 32, ... of one head.
template <>
struct LaneChannels<AnyType> {
  static constexpr int kCount = kHeadDim / kWarp, kHeadLanes = kWarp, kGroupTokens = 2, kSharedBytes = 0;
  struct Input {
    Raw<AnyType> raw[kCount];
  };
  struct Taps {
    float value[kCount];
  };
  int first, size, lane;
  bool normalised;

  __device__ LaneChannels(const FrontendParams& p, int group, int lane) : lane(lane) {
    const bool is_key = group < p.key_heads;
    first = is_key ? group * p.key_dim : p.key_heads * p.key_dim + (group - p.key_heads) * p.value_dim;
    size = min(is_key ? p.key_dim : p.value_dim, p.channels - first);
    normalised = p.qk_l2norm && is_key;
  }

  __device__ bool active(int c) const { return lane + c * kWarp < size; }
  __device__ int channel(int c) const { return first + lane + c * kWarp; }
  __device__ Input load(const FrontendParams& p, int t) const {
    Input input = {};
#pragma unroll
    for (int c = 0; c < kCount; ++c)
      if (active(c)) input.raw[c] = Raw<AnyType>::load(p.x, t * p.x_pitch + channel(c));
    return input;
  }
  __device__ static Taps taps(const FrontendParams& p, const Input& input) {
    Taps taps;
#pragma unroll
    for (int c = 0; c < kCount; ++c) taps.value[c] = input.raw[c].to_float(p.x.dtype);
    return taps;
  }
  __device__ static void values(const Taps& taps, float (&value)[kCount]) { memcpy(value, taps.value, sizeof(value)); }
  __device__ void store(const FrontendParams& p, int t, bool wanted, const float (&y)[kCount]) const {
#pragma unroll
    for (int c = 0; c < kCount; ++c)
      if (wanted && active(c)) store_float<AnyType>(p.out, static_cast<int64_t>(t) * p.channels + channel(c), y[c]);
  }

  __device__ static void start(int, int) {}
  __device__ void next_group(const FrontendParams& p, int t, int last, Input (&group)[kGroupTokens]) const {
#pragma unroll
    for (int i = 0; i < kGroupTokens; ++i) group[i] = load(p, min(t + i, last - 1));
  }
  __device__ static void finish() {}

  __device__ void filter(const FrontendParams& p, float (&weight)[kMaxTaps][kCount], float (&bias)[kCount]) const {
    ConvChannel<AnyType> filter[kCount] = {};
#pragma unroll
    for (int c = 0; c < kCount; ++c)
      if (active(c)) filter[c].load(p.conv, channel(c));
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      float taps[kMaxTaps];
      filter[c].weights(p.conv, taps);
#pragma unroll
      for (int j = 0; j < kMaxTaps; ++j) weight[j][c] = taps[j];
      bias[c] = p.conv.bias.data ? filter[c].raw_bias.to_float(p.conv.bias.dtype) : 0.0f;
    }
  }

  __device__ void load_window(const FrontendParams& p, int64_t slot, Taps (&window)[kMaxWindow]) const {
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      ConvWindow<AnyType> stored = {};
      if (active(c)) stored.load(p.conv, slot, channel(c));
      float tap[kMaxWindow];
      stored.values(p.conv, tap);
#pragma unroll
      for (int j = 0; j < kMaxWindow; ++j) window[j].value[c] = tap[j];
    }
  }
  __device__ void store_window(const FrontendParams& p, int64_t slot, const Taps (&window)[kMaxWindow]) const {
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      const float tap[kMaxWindow] = {window[0].value[c], window[1].value[c], window[2].value[c]};
      if (active(c)) ConvWindow<AnyType>::store(p.conv, slot, channel(c), tap);
    }
  }
};

template <class T>
struct FrontendWarp {
  using Channels = LaneChannels<T>;
  using Input = typename Channels::Input;
  using Taps = typename Channels::Taps;
  static constexpr int kCount = Channels::kCount, kGroupTokens = Channels::kGroupTokens;
  struct Row {
    int begin, end;
    int64_t slot;
  };
  const FrontendParams& p;
  Channels channels;
  int lane;

  __device__ FrontendWarp(const FrontendParams& p, int group, int lane) : p(p), channels(p, group, lane), lane(lane) {}

  __device__ int offset_of(int n) const {
    const int64_t t = load_index(p.query_start_loc, n);
    return t < 0 ? 0 : t < p.tokens ? static_cast<int>(t) : p.tokens;
  }
  __device__ Row row(int n) const {
    return {offset_of(n), offset_of(n + 1), p.conv.pool.data ? load_slot(p.cache_indices, n) : 0};
  }
  __device__ bool resumes(int n) const { return p.conv.pool.data && (!p.has_initial_state || p.has_initial_state[n]); }

  // Last row whose first token is at or before t.
  __device__ int row_of_token(int t) const {
    int first = 0, count = p.rows;
    while (count > 1) {
      const int step = (count + kWarp - 1) / kWarp, probe = lane * step;
      const bool before = probe < count && load_index(p.query_start_loc, first + probe) <= t;
      const int passed = max(__popc(__ballot_sync(kFullMask, before)) - 1, 0) * step;
      first += passed;
      count = min(step, count - passed);
    }
    return first;
  }

  __device__ void initial_window(int n, int64_t slot, Taps (&window)[kMaxWindow]) const {
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j) window[j] = {};
    if (resumes(n)) channels.load_window(p, slot, window);
  }

  __device__ void window_before(int t, Taps (&window)[kMaxWindow]) const {
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j) {
      window[j] = {};  // where a narrow filter has no tap, and the token may be outside x
      if (j >= ConvChannel<T>::missing_taps(p.conv))
        window[j] = Channels::taps(p, channels.load(p, t - kMaxWindow + j));
    }
  }

  // The window after `length` tokens of a row.
  __device__ void store_window_after(int64_t slot, int begin, int length, const Taps (&initial)[kMaxWindow]) const {
    Taps last[kMaxWindow];
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j) {
      const int t = length - kMaxWindow + j;
      last[j] = t >= 0        ? Channels::taps(p, channels.load(p, begin + t))
                : length == 0 ? initial[j]
                : length == 1 ? initial[min(j + 1, kMaxWindow - 1)]
                              : initial[kMaxWindow - 1];
    }
    channels.store_window(p, slot, last);
  }

  __device__ void store_windows(int n, const Row& row, const Taps (&initial)[kMaxWindow]) const {
    if (!p.conv.pool.data) return;
    const int length = row.end - row.begin;
    if (length > 0 || !resumes(n)) store_window_after(row.slot, row.begin, length, initial);
    const int64_t track = p.track_slots.ids.data ? load_slot(p.track_slots, n) : -1;
    if (track < 0) return;
    const int64_t wanted = load_index(p.track_lens, n);
    if (wanted >= 0 && wanted <= length) store_window_after(track, row.begin, static_cast<int>(wanted), initial);
  }

  __device__ void zeros(int first, int last) const {
    const float zero[kCount] = {};
    for (int t = first; t < last; ++t) channels.store(p, t, true, zero);
  }

  template <bool kNormalise>
  __device__ void finish_token(float (&y)[kCount]) const {
#pragma unroll
    for (int c = 0; c < kCount; ++c) y[c] = activated<T>(p.conv, y[c]);
    if constexpr (!kNormalise) return;
    float squares = 0.0f;
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      y[c] = round_to<T>(p.x.dtype, y[c]);
      squares = fmaf(y[c], y[c], squares);
    }
#pragma unroll
    for (int step = Channels::kHeadLanes / 2; step > 0; step /= 2) squares += __shfl_xor_sync(kFullMask, squares, step);
    const float factor = rsqrtf(squares + kNormEps);
#pragma unroll
    for (int c = 0; c < kCount; ++c) y[c] *= factor;
  }

  // Tokens [first, last) of a row, which are being fetched.
  template <bool kNormalise>
  __device__ void tokens(int first, int last, const Taps (&before)[kMaxWindow]) {
    float weight[kMaxTaps][kCount], bias[kCount], tap[kMaxTaps][kCount];
    channels.filter(p, weight, bias);
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j) Channels::values(before[j], tap[j]);
#pragma unroll 1
    for (int t = first; t < last; t += kGroupTokens) {
      Input group[kGroupTokens];
      channels.next_group(p, t, last, group);
#pragma unroll
      for (int i = 0; i < kGroupTokens; ++i) {
        Channels::values(Channels::taps(p, group[i]), tap[kMaxWindow]);
        float y[kCount];
#pragma unroll
        for (int c = 0; c < kCount; ++c) {
          y[c] = bias[c];
#pragma unroll
          for (int j = 0; j < kMaxTaps; ++j) y[c] = fmaf(weight[j][c], tap[j][c], y[c]);
        }
        finish_token<kNormalise>(y);
        channels.store(p, t + i, t + i < last, y);
#pragma unroll
        for (int j = 0; j < kMaxWindow; ++j) memcpy(tap[j], tap[j + 1], sizeof(tap[j]));
      }
    }
  }

  __device__ void tile(int index) {
    const int owned = p.conv.width - 1;  // tokens of a row that belong to the tile of its first
    const int tile_begin = index * p.tile_tokens, tile_end = min(tile_begin + p.tile_tokens, p.tokens);
    Taps window[kMaxWindow];
    for (int n = row_of_token(tile_begin); n < p.rows; ++n) {
      const Row row = this->row(n);
      if (row.begin >= tile_end) break;
      const bool starts_here = row.begin >= tile_begin;
      const int first = starts_here ? row.begin : max(tile_begin, row.begin + owned);
      const int last = min(row.end, starts_here ? max(tile_end, row.begin + owned) : tile_end);
      if (first >= last) continue;
      channels.start(first, last);  // before anything waits for the slot
      if (row.slot >= 0) {
        if (starts_here) {
          initial_window(n, row.slot, window);
          store_windows(n, row, window);
        } else {
          window_before(first, window);
        }
        channels.normalised ? tokens<true>(first, last, window) : tokens<false>(first, last, window);
      } else {
        zeros(first, last);
      }
      channels.finish();
    }
    zeros(max(tile_begin, offset_of(p.rows)), tile_end);

    // Rows without tokens: an initial state of zeros is stored all the same.
    for (int n = index; p.conv.pool.data && n < p.rows; n += p.tiles) {
      const Row row = this->row(n);
      if (row.begin != row.end || row.slot < 0) continue;
      initial_window(n, row.slot, window);
      store_windows(n, row, window);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kFrontendThreads, kFrontendBlocks)
    sm90_gdn_frontend(const __grid_constant__ FrontendParams p) {
  wait_for_previous_kernel();
  allow_next_kernel();
  if (blockIdx.x >= p.conv_blocks) {
    const int64_t first = static_cast<int64_t>(blockIdx.x - p.conv_blocks) * kGatesABlock + threadIdx.x;
    store_gates<kGatesABlock / kFrontendThreads>(p.gates, first, kFrontendThreads);
    return;
  }
  const int warp = static_cast<int>(blockIdx.x) * (kFrontendThreads / kWarp) + threadIdx.x / kWarp;
  const int tile = warp / p.groups;
  if (tile < p.tiles) FrontendWarp<T>(p, warp % p.groups, threadIdx.x % kWarp).tile(tile);
}

}  // namespace gdn::sm90
