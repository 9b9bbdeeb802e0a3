#include "ascend/causal_conv1d.hpp"

#include <algorithm>

#include "ascend/device.hpp"
#include "ascend/refuse.hpp"

namespace gdn::ascend {

Prepared<CausalConv1dArguments> prepare(const CausalConv1dArgs& args) {
  const DType act = args.x.dtype;
  expect_dtype(args.kOp, "weight", args.weight, act);
  expect_dtype(args.kOp, "bias", args.bias, act);

  const int64_t tokens = args.x.shape[0], channels = args.x.shape[1], rows = args.query_start_loc.shape[0] - 1;
  const bool pooled = args.conv_pool.present;
  const DType window = pooled ? args.conv_pool.dtype : DType::f32;
  const TensorRef& slots = pooled ? args.cache_indices : args.query_start_loc;
  const bool tracks = args.track_slots.present;
  const TensorRef& track_slots = tracks ? args.track_slots : slots;
  const TensorRef& track_lens = tracks ? args.track_lens : slots;
  constexpr int64_t kTask = CausalConv1dArguments::kChannels;
  const int64_t channel_blocks = (channels + kTask - 1) / kTask;
  const int32_t blocks = vector_blocks(channel_blocks * std::max<int64_t>(rows, 1), args.x.device_index);
  const int64_t cores = 2 * blocks;
  const int64_t channel_lanes = std::min(channel_blocks, cores);

  CausalConv1dArguments kernel;
  kernel.x = argument(args.x);
  kernel.weight = argument(args.weight);
  kernel.bias = argument_or_none(args.bias, act);
  kernel.conv_pool = argument_or_none(args.conv_pool, window);
  kernel.query_start_loc = index_argument(args.query_start_loc);
  kernel.cache_indices = index_argument(slots);
  kernel.has_initial_state = flag_argument(args.has_initial_state, slots);
  kernel.track_slots = index_argument(track_slots);
  kernel.track_lens = index_argument(track_lens);
  kernel.out = argument(args.out);
  kernel.blocks = blocks;
  kernel.channel_lanes = static_cast<int32_t>(channel_lanes);
  kernel.row_lanes = static_cast<int32_t>(cores / channel_lanes);
  kernel.rows = int32_of(args.kOp, "query_start_loc", rows);
  kernel.width = static_cast<int32_t>(args.weight.shape[1]);
  kernel.start_pitch = index_pitch(args.query_start_loc);
  kernel.index_pitch = index_pitch(slots);
  kernel.track_pitch = index_pitch(track_slots);
  kernel.track_len_pitch = index_pitch(track_lens);
  kernel.tracks = tracks;
  kernel.has_bias = args.bias.present;
  kernel.has_pool = pooled;
  kernel.all_initial = !args.has_initial_state.present;
  kernel.silu = args.silu;
  kernel.tokens = int32_of(args.kOp, "x", tokens);
  kernel.x_pitch = args.x.stride[0];
  kernel.slots = pooled ? args.conv_pool.shape[0] : int64_t{1} << 31;  // more than any offset
  kernel.pool_pitch = args.conv_pool.stride[0];
  kernel.channels = channels;
  kernel.taps_size = args.weight.numel();
  kernel.starts = rows + 1;
  kernel.indices = rows;
  kernel.flags = rows;
  return {find_causal_conv1d(act, window), kernel};
}

}  // namespace gdn::ascend
