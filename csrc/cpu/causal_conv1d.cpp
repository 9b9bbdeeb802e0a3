// Depthwise causal convolution with SiLU over packed rows (causal_conv1d) and over a few new tokens a row
// (causal_conv1d_update): y[t, c] = act(bias[c] + sum_j weight[c, j] x[t - (W-1) + j, c]).
//
// Tiles: one task takes 256 channels of one row and walks its tokens in strips of 16. A strip of inputs, behind the W-1
// inputs before it, lies as float rows in scratch (19 KiB, L1); weights and windows are transposed to [W, channels], so
// that every vector operation runs over channels.
// Memory: x is read once and out written once, in their own dtypes; windows and weights once per task.
// Accuracy: float32 sums in the order bias, j = 0 .. W-1; one rounding to the dtype of out. Windows keep raw inputs.
// Synchronisation: none. A task reads the initial window before it writes any window, and tasks of other rows name
// other slots, so in-place updates and tracked windows need no ordering.
#include "cpu/causal_conv1d.hpp"

#include "cpu/isa_kernels.hpp"

namespace gdn::cpu::GDN_CPU_ISA {
namespace {

constexpr int64_t kChannels = 256;
constexpr int64_t kStrip = 16;
constexpr int64_t kZeroRows = 64;

template <int W>
struct Width {
  static constexpr int value = W;
};

template <class Function>
GDN_INLINE void with_width(int64_t width, const Function& function) {
  if (width == 2) {
    function(Width<2>{});
  } else if (width == 3) {
    function(Width<3>{});
  } else {
    function(Width<4>{});
  }
}

// dst[j][c] = src[c][j]
template <int J>
void split_columns(const float* __restrict src, int64_t count, float* __restrict dst, int64_t pitch) {
  for (int64_t c = 0; c < count; ++c)
    for (int j = 0; j < J; ++j) dst[j * pitch + c] = src[c * J + j];
}

// The filter of a block of channels.
template <int W>
struct Filter {
  float* weights;  // [W, padded]
  float* bias;     // [padded]

  void load(const TensorRef& weight, const TensorRef& bias_tensor, int64_t channel, int64_t count, int64_t padded,
            float* staging) {
    if (weight.stride[1] == 1 && weight.stride[0] == W) {
      load_floats(weight.dtype, element_at(weight, channel * W), count * W, staging, W * padded);
      split_columns<W>(staging, padded, weights, padded);
    } else {
      for (int64_t c = 0; c < padded; ++c) {
        for (int j = 0; j < W; ++j) {
          const int64_t offset = (channel + c) * weight.stride[0] + j * weight.stride[1];
          weights[j * padded + c] = c < count ? float_at(weight, offset) : 0.0f;
        }
      }
    }
    if (!bias_tensor) {
      fill_zero(bias, padded * 4);
    } else if (bias_tensor.stride[0] == 1) {
      load_floats(bias_tensor.dtype, element_at(bias_tensor, channel), count, bias, padded);
    } else {
      for (int64_t c = 0; c < padded; ++c)
        bias[c] = c < count ? float_at(bias_tensor, (channel + c) * bias_tensor.stride[0]) : 0.0f;
    }
  }

  // One token: rows[j] holds x[t - (W-1) + j].
  void apply(const float* const (&rows)[W], int64_t padded, bool silu, float* out) const {
    for (int64_t c = 0; c < padded; c += kLanes) {
      F y = cpu::GDN_CPU_ISA::load(bias + c);
      for (int j = 0; j < W; ++j)
        y = fma(cpu::GDN_CPU_ISA::load(weights + j * padded + c), cpu::GDN_CPU_ISA::load(rows[j] + c), y);
      if (silu) y = y / (1.0f + exp<kLanes>(-y));
      store(out + c, y);
    }
  }
};

// rows[j][c] = column j of the window of channel `channel + c`, for W-1 columns.
template <int W>
void load_window(const TensorRef& pool, int64_t slot, int64_t channel, int64_t count, int64_t padded, float* staging,
                 float* rows) {
  const char* const window = element_at(pool, slot * pool.stride[0] + channel * (W - 1));
  load_floats(pool.dtype, window, count * (W - 1), staging, (W - 1) * padded);
  split_columns<W - 1>(staging, padded, rows, padded);
}

// The inverse. `window` is that of the first channel; windows of neighbouring channels are channel_stride apart.
template <int W>
void store_window(DType dtype, char* window, int64_t channel_stride, const float* const (&rows)[W - 1], int64_t count,
                  float* staging) {
  for (int64_t c = 0; c < count; ++c)
    for (int j = 0; j < W - 1; ++j) staging[c * (W - 1) + j] = rows[j][c];
  if (channel_stride == W - 1) {
    store_floats(dtype, window, staging, count * (W - 1));
  } else {
    with_element(dtype, [&](auto element) {
      using E = decltype(element);
      auto* const first = reinterpret_cast<typename E::Storage*>(window);
      for (int64_t c = 0; c < count; ++c)
        for (int j = 0; j < W - 1; ++j) scalar_to<E>(first + c * channel_stride + j, staging[c * (W - 1) + j]);
    });
  }
}

template <int W>
void store_pool_window(const TensorRef& pool, int64_t slot, int64_t channel, const float* const (&rows)[W - 1],
                       int64_t count, float* staging) {
  store_window<W>(pool.dtype, element_at(pool, slot * pool.stride[0] + channel * (W - 1)), W - 1, rows, count, staging);
}

GDN_INLINE void zero_channels(const TensorRef& out, int64_t offset, int64_t count) {
  fill_zero(element_at(out, offset), count * element_size(out.dtype));
}

// Channels [channel, channel + count) of row n.
template <int W>
void prefill_channels(const CausalConv1dArgs& args, int64_t n, int64_t channel, int64_t count) {
  const int64_t begin = index_at(args.query_start_loc, n), length = index_at(args.query_start_loc, n + 1) - begin;
  const int64_t slots = args.conv_pool ? args.conv_pool.shape[0] : 0;
  const int64_t slot = args.conv_pool ? slot_at(args.cache_indices, n, slots) : -1;
  if (args.conv_pool && slot < 0) {
    for (int64_t t = 0; t < length; ++t) zero_channels(args.out, (begin + t) * args.out.stride[0] + channel, count);
    return;
  }
  const int64_t track_slot = args.conv_pool && args.track_slots ? slot_at(args.track_slots, n, slots) : -1;
  const int64_t track_len = track_slot >= 0 ? index_at(args.track_lens, n) : -1;

  const int64_t padded = round_up(count, kLanes);
  ScratchCutter cut(thread_scratch(static_cast<size_t>(padded) * 4 * (3 * W + 2 + kStrip + W) + 1024));
  Filter<W> filter{cut.floats(W * padded), cut.floats(padded)};
  float* const staging = cut.floats(W * padded);
  float* const out = cut.floats(padded);
  float* const rows = cut.floats((kStrip + W - 1) * padded);
  filter.load(args.weight, args.bias, channel, count, padded, staging);
  const bool resumes = slot >= 0 && flag_at(args.has_initial_state, n, true);
  if (resumes) {
    load_window<W>(args.conv_pool, slot, channel, count, padded, staging, rows);
  } else {
    fill_zero(rows, (W - 1) * padded * 4);
  }

  // The window that ends `tokens` tokens into the strip.
  const auto store_after = [&](int64_t destination, int64_t tokens) {
    const float* window[W - 1];
    for (int j = 0; j < W - 1; ++j) window[j] = rows + (tokens + j) * padded;
    store_pool_window<W>(args.conv_pool, destination, channel, window, count, staging);
  };
  if (track_len == 0) store_after(track_slot, 0);
  if (length == 0 && slot >= 0 && !resumes) store_after(slot, 0);
  for (int64_t first = 0; first < length; first += kStrip) {
    const int64_t tokens = min(kStrip, length - first);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t row = begin + first + t;
      load_floats(args.x.dtype, element_at(args.x, row * args.x.stride[0] + channel), count,
                  rows + (W - 1 + t) * padded, padded);
      const float* inputs[W];
      for (int j = 0; j < W; ++j) inputs[j] = rows + (t + j) * padded;
      filter.apply(inputs, padded, args.silu, out);
      store_floats(args.out.dtype, element_at(args.out, row * args.out.stride[0] + channel), out, count);
    }
    if (track_len > first && track_len <= first + tokens) store_after(track_slot, track_len - first);
    if (first + tokens == length) {
      if (slot >= 0) store_after(slot, tokens);
    } else {
      for (int j = 0; j < W - 1; ++j) copy_bytes(rows + j * padded, rows + (tokens + j) * padded, padded * 4);
    }
  }
}

template <int W>
void update_channels(const CausalConv1dUpdateArgs& args, int64_t n, int64_t channel, int64_t count) {
  const int64_t tokens = args.x.shape[1];
  const int64_t slot = slot_at(args.cache_indices, n, args.conv_pool.shape[0]);
  if (slot < 0) {
    for (int64_t t = 0; t < tokens; ++t)
      zero_channels(args.out, n * args.out.stride[0] + t * args.out.stride[1] + channel, count);
    return;
  }
  const TensorRef& windows = args.intermediate_conv_window;
  const int64_t window_row = windows ? slot_at(args.intermediate_state_indices, n, windows.shape[0]) : -1;

  const int64_t padded = round_up(count, kLanes);
  ScratchCutter cut(thread_scratch(static_cast<size_t>(padded) * 4 * (3 * W + 2 + tokens + W) + 1024));
  Filter<W> filter{cut.floats(W * padded), cut.floats(padded)};
  float* const staging = cut.floats(W * padded);
  float* const out = cut.floats(padded);
  float* const committed = cut.floats((W - 1) * padded);
  float* const inputs = cut.floats(tokens * padded);
  filter.load(args.weight, args.bias, channel, count, padded, staging);
  load_window<W>(args.conv_pool, slot, channel, count, padded, staging, committed);

  const auto parent_of = [&](int64_t t) {
    if (!args.parent_tokens) return t - 1;
    const int64_t parent = index_at(args.parent_tokens, n, t);
    return parent >= 0 && parent < t ? parent : int64_t{-1};
  };
  for (int64_t t = 0; t < tokens; ++t) {
    load_floats(args.x.dtype, element_at(args.x, n * args.x.stride[0] + t * args.x.stride[1] + channel), count,
                inputs + t * padded, padded);
    const float* rows[W];
    int64_t ancestor = t;
    for (int j = W - 1, column = W - 2; j >= 0; --j) {
      rows[j] = ancestor >= 0 ? inputs + ancestor * padded : committed + column-- * padded;
      if (ancestor >= 0) ancestor = parent_of(ancestor);
    }
    filter.apply(rows, padded, args.silu, out);
    store_floats(args.out.dtype, element_at(args.out, n * args.out.stride[0] + t * args.out.stride[1] + channel), out,
                 count);
    const float* window[W - 1];
    for (int j = 0; j < W - 1; ++j) window[j] = rows[j + 1];
    if (window_row >= 0) {
      char* const first =
          element_at(windows, window_row * windows.stride[0] + t * windows.stride[1] + channel * windows.stride[2]);
      store_window<W>(windows.dtype, first, windows.stride[2], window, count, staging);
    }
    if (t == tokens - 1 && !args.disable_state_update)
      store_pool_window<W>(args.conv_pool, slot, channel, window, count, staging);
  }
}

}  // namespace

void causal_conv1d(const CausalConv1dArgs& args) {
  const int64_t rows = args.query_start_loc.shape[0] - 1;
  const int64_t tokens = args.x.shape[0], channels = args.x.shape[1];
  const int64_t blocks = (channels + kChannels - 1) / kChannels;
  const int64_t end = index_at(args.query_start_loc, rows);
  const int64_t zero_tasks = (tokens - end + kZeroRows - 1) / kZeroRows;
  parallel_for(rows * blocks + zero_tasks, [&](int64_t task) {
    if (task < rows * blocks) {
      const int64_t n = task / blocks, channel = task % blocks * kChannels;
      with_width(args.weight.shape[1], [&](auto width) {
        prefill_channels<width.value>(args, n, channel, min(kChannels, channels - channel));
      });
    } else {
      const int64_t first = end + (task - rows * blocks) * kZeroRows;
      for (int64_t t = first; t < min(first + kZeroRows, tokens); ++t)
        zero_channels(args.out, t * args.out.stride[0], channels);
    }
  });
}

void causal_conv1d_update_channels(const CausalConv1dUpdateArgs& args, int64_t row, int64_t channel, int64_t count) {
  with_width(args.weight.shape[1], [&](auto width) { update_channels<width.value>(args, row, channel, count); });
}

void causal_conv1d_update(const CausalConv1dUpdateArgs& args) {
  const int64_t channels = args.x.shape[2], blocks = (channels + kChannels - 1) / kChannels;
  parallel_for(args.x.shape[0] * blocks, [&](int64_t task) {
    const int64_t channel = task % blocks * kChannels;
    causal_conv1d_update_channels(args, task / blocks, channel, min(kChannels, channels - channel));
  });
}

}  // namespace gdn::cpu::GDN_CPU_ISA
