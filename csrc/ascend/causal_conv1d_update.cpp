#include "ascend/causal_conv1d_update.hpp"

#include <algorithm>

#include "ascend/device.hpp"
#include "ascend/refuse.hpp"

namespace gdn::ascend {

Prepared<CausalConv1dUpdateArguments> prepare(const CausalConv1dUpdateArgs& args) {
  refuse(args.kOp, "parent_tokens", args.parent_tokens, "draft trees are not built");
  const DType act = args.x.dtype, window = args.conv_pool.dtype;
  expect_dtype(args.kOp, "weight", args.weight, act);
  expect_dtype(args.kOp, "bias", args.bias, act);

  const int64_t rows = args.x.shape[0], tokens = args.x.shape[1], channels = args.x.shape[2];
  const TensorRef& windows = args.intermediate_conv_window;
  const TensorRef& window_indices = windows ? args.intermediate_state_indices : args.cache_indices;
  expect_dtype(args.kOp, "intermediate_state_indices", window_indices, args.cache_indices.dtype);
  constexpr int64_t kTask = CausalConv1dUpdateArguments::kChannels;
  const int64_t channel_blocks = (channels + kTask - 1) / kTask;
  const int32_t blocks = vector_blocks(channel_blocks * rows, args.x.device_index);
  const int64_t cores = 2 * blocks;
  const int64_t channel_lanes = std::min(channel_blocks, cores);

  CausalConv1dUpdateArguments kernel;
  kernel.x = argument(args.x);
  kernel.weight = argument(args.weight);
  kernel.bias = argument_or_none(args.bias, act);
  kernel.conv_pool = argument(args.conv_pool);
  kernel.cache_indices = index_argument(args.cache_indices);
  kernel.windows = argument_or_none(windows, window);
  kernel.window_indices = index_argument(window_indices);
  kernel.out = argument(args.out);
  kernel.blocks = blocks;
  kernel.channel_lanes = static_cast<int32_t>(channel_lanes);
  kernel.row_lanes = static_cast<int32_t>(cores / channel_lanes);
  kernel.tokens = static_cast<int32_t>(tokens);
  kernel.width = static_cast<int32_t>(args.weight.shape[1]);
  kernel.x_token_pitch = int32_of(args.kOp, "x", args.x.stride[1]);
  kernel.window_token_pitch = int32_of(args.kOp, "intermediate_conv_window", windows.stride[1]);
  kernel.index_pitch = index_pitch(args.cache_indices);
  kernel.has_bias = args.bias.present;
  kernel.silu = args.silu;
  kernel.update_state = !args.disable_state_update;
  kernel.store_windows = windows.present;
  kernel.rows = rows;
  kernel.x_pitch = args.x.stride[0];
  kernel.taps_size = args.weight.numel();
  kernel.channels = channels;
  kernel.slots = args.conv_pool.shape[0];
  kernel.pool_pitch = args.conv_pool.stride[0];
  kernel.indices = rows;
  kernel.spec_slots = windows.shape[0];
  kernel.windows_pitch = windows.stride[0];
  kernel.out_pitch = tokens * channels;
  return {find_causal_conv1d_update(act, window), kernel};
}

}  // namespace gdn::ascend
