#include "cuda/sm90_causal_conv1d.cuh"
#include "cuda/sm90_causal_conv1d.hpp"
#include "cuda/sm90_conv_layer.hpp"

namespace gdn::sm90 {

void causal_conv1d(const CausalConv1dArgs& args, Stream stream) {
  ConvParams p;
  p.x = float_ptr(args.x);
  p.out = float_ptr(args.out);
  p.conv = conv_layer(args.weight, args.bias, args.conv_pool, args.x.dtype, args.silu);
  p.query_start_loc = index_ptr(args.query_start_loc);
  p.cache_indices = slot_ptr(args.cache_indices, args.conv_pool);
  p.track_slots = slot_ptr(args.track_slots, args.conv_pool);
  p.track_lens = index_ptr(args.track_lens);
  p.has_initial_state = args.has_initial_state.present ? args.has_initial_state.as<bool>() : nullptr;
  p.x_pitch = args.x.stride[0];
  p.tokens = args.x.shape[0];
  p.rows = static_cast<int32_t>(args.query_start_loc.shape[0] - 1);
  p.channels = static_cast<int32_t>(args.x.shape[1]);
  p.tiles = static_cast<int32_t>((p.tokens + kTileTokens - 1) / kTileTokens);
  constexpr int kVector = 4;
  const bool vectors = is_all_bf16(args.x, args.weight, args.bias, args.conv_pool) && p.channels % kVector == 0 &&
                       is_aligned(args.x, 8, 0) && is_aligned(args.out, 8, 0);
  const int64_t threads = p.channels / (vectors ? kVector : 1);
  LaunchShape shape;
  shape.grid = grid_of_rows((threads + kConvThreads - 1) / kConvThreads, p.tiles);
  shape.block = kConvThreads;
  launch(args.kOp, vectors ? sm90_causal_conv1d<bf16, kVector> : sm90_causal_conv1d<AnyType, 1>, shape, p,
         args.x.device_index, stream);
}

}  // namespace gdn::sm90
