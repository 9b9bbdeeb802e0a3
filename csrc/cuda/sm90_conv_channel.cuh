// One channel of the depthwise causal convolution, y = act(bias + sum_j weight[j] tap[j]), with the taps oldest first.
//
// A channel is the unit of all convolution kernels: its four weights sit in registers, narrower filters have leading
// zeros, and its window in the pool is read and written by one thread. Sums are float32 in the order of the taps; the
// result is rounded once to the activation dtype.
// T is the dtype of x, weights, bias and pool when they agree and the width is 4; AnyType reads all of them at run
// time.
#pragma once

#include "cuda/sm90_device.cuh"

namespace gdn::sm90 {

constexpr int kMaxTaps = 4;
constexpr int kMaxWindow = kMaxTaps - 1;

struct ConvLayer {
  FloatPtr weight, bias, pool;  // [D, W], [D] or null, [slots, D, W-1]
  int64_t pool_pitch;
  int32_t width;
  DType activation;
  bool silu;
};

template <class T>
struct ConvChannel {
  static constexpr bool kAny = std::is_same_v<T, AnyType>;
  float weight[kMaxTaps];
  float bias;

  __device__ static int missing_taps(const ConvLayer& layer) { return kAny ? kMaxTaps - layer.width : 0; }

  __device__ void load(const ConvLayer& layer, int channel) {
    bias = layer.bias.data ? load_float<T>(layer.bias, channel) : 0.0f;
    if constexpr (!kAny) {
      const uint2 raw = static_cast<const uint2*>(layer.weight.data)[channel];
      T tap[kMaxTaps];
      memcpy(tap, &raw, sizeof(raw));
#pragma unroll
      for (int j = 0; j < kMaxTaps; ++j) weight[j] = to_float(tap[j]);
    } else {
      const int64_t first = static_cast<int64_t>(channel) * layer.width - missing_taps(layer);
#pragma unroll
      for (int j = 0; j < kMaxTaps; ++j)
        weight[j] = j < missing_taps(layer) ? 0.0f : load_float<T>(layer.weight, first + j);
    }
  }

  // Offset of tap 0 in the pool, where it exists.
  __device__ static int64_t window_offset(const ConvLayer& layer, int64_t slot, int channel) {
    const int size = kMaxWindow - missing_taps(layer);
    return slot * layer.pool_pitch + static_cast<int64_t>(channel) * size - missing_taps(layer);
  }

  __device__ static void load_window(const ConvLayer& layer, int64_t slot, int channel, float (&window)[kMaxWindow]) {
    const int64_t offset = window_offset(layer, slot, channel);
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j)
      window[j] = j < missing_taps(layer) ? 0.0f : load_float<T>(layer.pool, offset + j);
  }

  __device__ static void store_window(const ConvLayer& layer, int64_t slot, int channel,
                                      const float (&window)[kMaxWindow]) {
    const int64_t offset = window_offset(layer, slot, channel);
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j)
      if (j >= missing_taps(layer)) store_float<T>(layer.pool, offset + j, window[j]);
  }

  __device__ static void shift(float (&window)[kMaxWindow], float x) {
#pragma unroll
    for (int j = 0; j + 1 < kMaxWindow; ++j) window[j] = window[j + 1];
    window[kMaxWindow - 1] = x;
  }

  __device__ float output(const ConvLayer& layer, const float (&window)[kMaxWindow], float x) const {
    float y = bias;
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j) y = fmaf(weight[j], window[j], y);
    y = fmaf(weight[kMaxWindow], x, y);
    return round_to<T>(layer.activation, layer.silu ? silu(y) : y);
  }
};

}  // namespace gdn::sm90
