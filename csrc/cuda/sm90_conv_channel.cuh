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

// The activation of one output, before it is rounded.
template <class T>
__device__ inline float activated(const ConvLayer& layer, float y) {
  if (!layer.silu) return y;
  return std::is_same_v<T, AnyType> && layer.activation == DType::f32 ? silu(y) : fast_silu(y);
}

// The weights of one channel, as they lie in memory until they are used.
template <class T>
struct ConvChannel {
  static constexpr bool kAny = std::is_same_v<T, AnyType>;
  // 4 weights of 16 bits, or one raw element each
  using RawWeights = std::conditional_t<kAny, Raw<AnyType>[kMaxTaps], uint2>;
  RawWeights raw_weights;
  Raw<T> raw_bias;

  __device__ static int missing_taps(const ConvLayer& layer) { return kAny ? kMaxTaps - layer.width : 0; }

  __device__ void load(const ConvLayer& layer, int channel) {
    if (layer.bias.data) raw_bias = Raw<T>::load(layer.bias, channel);
    if constexpr (kAny) {
      const int64_t first = static_cast<int64_t>(channel) * layer.width - missing_taps(layer);
#pragma unroll
      for (int j = 0; j < kMaxTaps; ++j)
        if (j >= missing_taps(layer)) raw_weights[j] = Raw<T>::load(layer.weight, first + j);
    } else {
      raw_weights = static_cast<const uint2*>(layer.weight.data)[channel];
    }
  }

  __device__ void weights(const ConvLayer& layer, float (&weight)[kMaxTaps]) const {
    if constexpr (kAny) {
#pragma unroll
      for (int j = 0; j < kMaxTaps; ++j)
        weight[j] = j >= missing_taps(layer) ? raw_weights[j].to_float(layer.weight.dtype) : 0.0f;
    } else {
      T tap[kMaxTaps];
      memcpy(tap, &raw_weights, sizeof(raw_weights));
#pragma unroll
      for (int j = 0; j < kMaxTaps; ++j) weight[j] = to_float(tap[j]);
    }
  }

  __device__ float output(const ConvLayer& layer, const float (&window)[kMaxWindow], float x) const {
    float weight[kMaxTaps];
    weights(layer, weight);
    float y = layer.bias.data ? raw_bias.to_float(layer.bias.dtype) : 0.0f;
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j) y = fmaf(weight[j], window[j], y);
    return round_to<T>(layer.activation, activated<T>(layer, fmaf(weight[kMaxWindow], x, y)));
  }
};

// The W-1 inputs before a token, oldest first; narrower windows have leading zeros.
template <class T>
struct ConvWindow {
  static constexpr bool kAny = std::is_same_v<T, AnyType>;
  Raw<T> raw[kMaxWindow];

  // Offset of tap 0 in the pool, where it exists.
  __device__ static int64_t offset(const ConvLayer& layer, int64_t slot, int channel) {
    const int missing = ConvChannel<T>::missing_taps(layer);
    return slot * layer.pool_pitch + static_cast<int64_t>(channel) * (kMaxWindow - missing) - missing;
  }

  __device__ void load(const ConvLayer& layer, int64_t slot, int channel) {
    const int64_t first = offset(layer, slot, channel);
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j)
      if (j >= ConvChannel<T>::missing_taps(layer)) raw[j] = Raw<T>::load(layer.pool, first + j);
  }

  __device__ void values(const ConvLayer& layer, float (&window)[kMaxWindow]) const {
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j)
      window[j] = j >= ConvChannel<T>::missing_taps(layer) ? raw[j].to_float(layer.pool.dtype) : 0.0f;
  }

  __device__ static void store(const ConvLayer& layer, int64_t slot, int channel, const float (&window)[kMaxWindow]) {
    const int64_t first = offset(layer, slot, channel);
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j)
      if (j >= ConvChannel<T>::missing_taps(layer)) store_float<T>(layer.pool, first + j, window[j]);
  }

  __device__ static void shift(float (&window)[kMaxWindow], float x) {
#pragma unroll
    for (int j = 0; j + 1 < kMaxWindow; ++j) window[j] = window[j + 1];
    window[kMaxWindow - 1] = x;
  }
};

}  // namespace gdn::sm90
