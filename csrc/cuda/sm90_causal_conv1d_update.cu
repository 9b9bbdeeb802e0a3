#include "cuda/sm90_causal_conv1d_update.cuh"
#include "cuda/sm90_causal_conv1d_update.hpp"
#include "cuda/sm90_conv_layer.hpp"

namespace gdn::sm90 {

void causal_conv1d_update(const CausalConv1dUpdateArgs& args, Stream stream) {
  ConvUpdateParams p;
  p.x = float_ptr(args.x);
  p.out = float_ptr(args.out);
  p.intermediate = float_ptr(args.intermediate_conv_window);
  p.conv = conv_layer(args.weight, args.bias, args.conv_pool, args.x.dtype, args.silu);
  p.cache_indices = slot_ptr(args.cache_indices, args.conv_pool);
  p.intermediate_indices = slot_ptr(args.intermediate_state_indices, args.intermediate_conv_window);
  p.parents = index_ptr(args.parent_tokens);
  p.x_row = args.x.stride[0], p.x_token = args.x.stride[1];
  p.intermediate_row = args.intermediate_conv_window.stride[0];
  p.intermediate_token = args.intermediate_conv_window.stride[1];
  p.intermediate_channel = args.intermediate_conv_window.stride[2];
  p.rows = static_cast<int32_t>(args.x.shape[0]);
  p.drafts = static_cast<int32_t>(args.x.shape[1]);
  p.channels = static_cast<int32_t>(args.x.shape[2]);
  p.commit = !args.disable_state_update;
  LaunchShape shape;
  shape.grid = grid_of_rows((p.channels + kConvUpdateThreads - 1) / kConvUpdateThreads, p.rows);
  shape.block = kConvUpdateThreads;
  const auto kernel = is_all_bf16(args.x, args.weight, args.bias, args.conv_pool) ? sm90_causal_conv1d_update<bf16>
                                                                                  : sm90_causal_conv1d_update<AnyType>;
  launch(args.kOp, kernel, shape, p, args.x.device_index, stream);
}

}  // namespace gdn::sm90
