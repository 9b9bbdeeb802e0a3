#include "cuda/sm90_conv_layer.hpp"
#include "cuda/sm90_gdn_decode.cuh"
#include "cuda/sm90_gdn_decode.hpp"
#include "cuda/sm90_launch.hpp"

namespace gdn::sm90 {
namespace {

constexpr int kRows = 8;

// Blocks of a cluster: as many as are portable, while every block has the 128 threads that convolve q and k.
int cluster_blocks(int64_t ratio) { return ratio == 1 ? 4 : 8; }

DecodeParams params_of(const GdnDecodeArgs& args) {
  DecodeParams p;
  p.x = float_ptr(args.mixed_qkv);
  p.a = float_ptr(args.a);
  p.b = float_ptr(args.b);
  p.A_log = float_ptr(args.weights.A_log);
  p.dt_bias = float_ptr(args.weights.dt_bias);
  p.conv =
      conv_layer(args.weights.conv_weight, args.weights.conv_bias, args.conv_pool, args.mixed_qkv.dtype, args.silu);
  p.out = float_ptr(args.out);
  p.ssm_pool = args.ssm_pool.data;
  p.cache_indices = index_ptr(args.cache_indices);
  p.x_pitch = args.mixed_qkv.stride[0];
  p.a_pitch = args.a.stride[0];
  p.b_pitch = args.b.stride[0];
  p.ssm_pitch = args.ssm_pool.stride[0];
  p.rows = static_cast<int32_t>(args.mixed_qkv.shape[0]);
  p.key_heads = static_cast<int32_t>(args.heads.num_k_heads);
  p.ratio = static_cast<int32_t>(args.heads.ratio());
  p.scale = args.scale;
  p.aligned_state = is_aligned(args.ssm_pool, 4 * size_of(args.ssm_pool.dtype), 0);
  return p;
}

template <class State>
void (*kernel_of(bool all_bf16))(DecodeParams) {
  return all_bf16                               ? sm90_gdn_decode < State, bf16, kRows, RegisterTile,
         std::is_same_v<State, float> ? 3 : 2 > : sm90_gdn_decode<State, AnyType, kRows, RegisterTile, 1>;
}

}  // namespace

void gdn_decode(const GdnDecodeArgs& args, Stream stream) {
  const bool all_bf16 = is_all_bf16(args.mixed_qkv, args.weights.conv_weight, args.weights.conv_bias, args.conv_pool);
  void (*kernel)(DecodeParams) = nullptr;
  switch (args.ssm_pool.dtype) {
    case DType::bf16:
      kernel = kernel_of<bf16>(all_bf16);
      break;
    case DType::f16:
      kernel = kernel_of<f16>(all_bf16);
      break;
    default:
      kernel = kernel_of<float>(all_bf16);
  }
  const int64_t ratio = args.heads.ratio();
  const int blocks = cluster_blocks(ratio);
  LaunchShape shape;
  shape.grid = grid_of_rows(args.heads.num_k_heads * blocks, args.mixed_qkv.shape[0]);
  shape.block = static_cast<unsigned>(ratio * kHeadDim / blocks / kRows * kWarp);
  shape.cluster_x = static_cast<unsigned>(blocks);
  launch(args.kOp, kernel, shape, params_of(args), args.mixed_qkv.device_index, stream);
}

}  // namespace gdn::sm90
