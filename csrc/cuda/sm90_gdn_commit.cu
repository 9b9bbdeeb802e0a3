#include <algorithm>

#include "cuda/sm90_gdn_commit.cuh"
#include "cuda/sm90_gdn_commit.hpp"
#include "cuda/sm90_launch.hpp"

namespace gdn::sm90 {

void gdn_commit(const GdnCommitArgs& args, Stream stream) {
  const int64_t ssm_size = size_of(args.ssm_pool.dtype), conv_size = size_of(args.conv_pool.dtype);
  const TensorRef& states = args.intermediate_ssm;
  const TensorRef& windows = args.intermediate_conv_window;
  CommitParams p;
  p.ssm_pool = args.ssm_pool.as<char>();
  p.conv_pool = args.conv_pool.as<char>();
  p.intermediate_ssm = states.as<char>();
  p.intermediate_conv = windows.as<char>();
  p.cache_indices = slot_ptr(args.cache_indices, args.ssm_pool);
  p.cache_indices.slots = std::min(p.cache_indices.slots, args.conv_pool.shape[0]);
  p.intermediate_indices = slot_ptr(args.intermediate_state_indices, states);
  p.intermediate_indices.slots = std::min(p.intermediate_indices.slots, windows.shape[0]);
  p.last_steps = index_ptr(args.last_steps);
  p.ssm_pitch = args.ssm_pool.stride[0] * ssm_size;
  p.conv_pitch = args.conv_pool.stride[0] * conv_size;
  p.ssm_row = states.stride[0] * ssm_size, p.ssm_token = states.stride[1] * ssm_size;
  p.conv_row = windows.stride[0] * conv_size, p.conv_token = windows.stride[1] * conv_size;
  p.conv_channel = windows.stride[2] * conv_size;
  p.state_bytes = args.ssm_pool.shape[1] * args.ssm_pool.shape[2] * args.ssm_pool.shape[3] * ssm_size;
  p.rows = static_cast<int32_t>(args.cache_indices.shape[0]);
  p.drafts = static_cast<int32_t>(states.shape[1]);
  p.state_blocks = static_cast<int32_t>((p.state_bytes + kStateBytes - 1) / kStateBytes);
  p.window_size = static_cast<int32_t>(args.conv_pool.shape[2]);
  p.window_elements = static_cast<int32_t>(args.conv_pool.shape[1] * args.conv_pool.shape[2]);
  p.conv_size = static_cast<int32_t>(conv_size);
  p.aligned = p.state_bytes % 16 == 0 && is_aligned(args.ssm_pool, 16, 0) && is_aligned(states, 16, 0, 1);
  LaunchShape shape;
  shape.grid = grid_of_rows(p.state_blocks + (p.window_elements + kCommitThreads - 1) / kCommitThreads, p.rows);
  shape.block = kCommitThreads;
  launch(args.kOp, sm90_gdn_commit, shape, p, args.ssm_pool.device_index, stream);
}

}  // namespace gdn::sm90
