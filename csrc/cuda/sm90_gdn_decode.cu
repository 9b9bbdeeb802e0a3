#include <algorithm>

#include "core/composition.hpp"
#include "cuda/sm90_conv_layer.hpp"
#include "cuda/sm90_gdn_decode.cuh"
#include "cuda/sm90_gdn_decode.hpp"
#include "cuda/sm90_launch.hpp"

namespace gdn::sm90 {
namespace {

constexpr int kResidentBlocks = 4;  // on a multiprocessor

// Whether all blocks of the finest tiling are resident at once: then latency counts, else bandwidth.
bool is_short(const GdnDecodeArgs& args) {
  const int64_t blocks = args.projection().shape[0] * args.heads.num_k_heads * kMostBlocks;
  return blocks <= kResidentBlocks * multiprocessors(args.kOp, args.projection().device_index);
}

// Blocks of a cluster: many small ones for short kernels; blocks of 64 rows convolve q and k less often.
// NOTE: ratio 3 stays at 48 rows. With 96 its sums are formed by 8 warps instead of 6, and a row's bits would depend on
// the batch.
int cluster_blocks(int64_t ratio, bool short_kernel) {
  if (ratio == 1) return short_kernel ? 4 : 2;
  return short_kernel || ratio > 2 ? kMostBlocks : kMostBlocks / 2;
}

DecodeParams params_of(const GdnDecodeArgs& args, int blocks, bool short_kernel) {
  const GdnDecodeInputs inputs = inputs_of(args);
  DecodeParams p;
  p.q = float_ptr(inputs.q);
  p.k = float_ptr(inputs.k);
  p.v = float_ptr(inputs.v);
  p.a = float_ptr(inputs.a);
  p.b = float_ptr(inputs.b);
  p.z = float_ptr(inputs.z);
  p.norm_weight = float_ptr(args.norm_weight);
  p.A_log = float_ptr(args.weights.A_log);
  p.dt_bias = float_ptr(args.weights.dt_bias);
  p.conv =
      conv_layer(args.weights.conv_weight, args.weights.conv_bias, args.conv_pool, args.projection().dtype, args.silu);
  p.out = float_ptr(args.out);
  p.ssm_pool = args.ssm_pool.data;
  p.cache_indices = slot_ptr(args.cache_indices, args.ssm_pool);
  p.cache_indices.slots = std::min(p.cache_indices.slots, args.conv_pool.shape[0]);
  p.track_slots = slot_ptr(args.track_slots, args.ssm_pool);
  p.track_slots.slots = p.cache_indices.slots;
  p.x_pitch = inputs.q.stride[0];
  p.a_pitch = inputs.a.stride[0];
  p.b_pitch = inputs.b.stride[0];
  p.z_pitch = inputs.z.stride[0], p.z_key_head = inputs.z.stride[1], p.z_value_head = inputs.z.stride[2];
  p.qk_key_head = static_cast<int32_t>(inputs.q.stride[1]);
  p.v_key_head = static_cast<int32_t>(inputs.v.stride[1]);
  p.a_key_head = static_cast<int32_t>(inputs.a.stride[1]);
  p.b_key_head = static_cast<int32_t>(inputs.b.stride[1]);
  p.ssm_pitch = args.ssm_pool.stride[0];
  p.rows = static_cast<int32_t>(args.projection().shape[0]);
  p.key_heads = static_cast<int32_t>(args.heads.num_k_heads);
  p.ratio = static_cast<int32_t>(args.heads.ratio());
  p.scale = args.scale;
  p.norm_eps = args.norm_eps;
  p.norm_silu = args.norm_silu;
  p.block_rows = p.ratio * kHeadDim / blocks;
  p.short_kernel = short_kernel;
  p.state_warps = p.ratio == 3 ? 6 : kDecodeThreads / kWarp;
  p.batches = p.block_rows / (p.state_warps * kDecodeRows);
  p.aligned_state = is_aligned(args.ssm_pool, 4 * size_of(args.ssm_pool.dtype), 0);
  return p;
}

template <class State>
void launch_decode(const GdnDecodeArgs& args, Stream stream) {
  const bool short_kernel = is_short(args);
  const int blocks = cluster_blocks(args.heads.ratio(), short_kernel);
  const DecodeParams p = params_of(args, blocks, short_kernel);
  LaunchShape shape;
  shape.grid = grid_of_rows(p.key_heads * blocks, p.rows);
  shape.block = kDecodeThreads;
  shape.cluster_x = static_cast<unsigned>(blocks);
  shape.shared_bytes = (2 * kHeadDim + p.block_rows) * sizeof(float) + p.block_rows * kHeadDim * sizeof(State);
  const bool all_bf16 =
      is_all_bf16(args.projection(), args.weights.conv_weight, args.weights.conv_bias, args.conv_pool) &&
      p.aligned_state;
  const bool norm = args.norm_weight.present, tracks = args.track_slots.present;
  const auto kernel = !all_bf16        ? sm90_gdn_decode<State, AnyType, true, true>
                      : norm && tracks ? sm90_gdn_decode<State, bf16, true, true>
                      : norm           ? sm90_gdn_decode<State, bf16, true, false>
                      : tracks         ? sm90_gdn_decode<State, bf16, false, true>
                                       : sm90_gdn_decode<State, bf16, false, false>;
  launch(args.kOp, kernel, shape, p, args.projection().device_index, stream);
}

}  // namespace

void gdn_decode(const GdnDecodeArgs& args, Stream stream) {
  switch (args.ssm_pool.dtype) {
    case DType::bf16:
      return launch_decode<bf16>(args, stream);
    case DType::f16:
      return launch_decode<f16>(args, stream);
    default:
      return launch_decode<float>(args, stream);
  }
}

}  // namespace gdn::sm90
