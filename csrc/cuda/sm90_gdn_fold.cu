#include <algorithm>

#include "cuda/sm90_gdn_fold.cuh"
#include "cuda/sm90_gdn_fold.hpp"
#include "cuda/sm90_launch.hpp"

namespace gdn::sm90 {
namespace {

LayerPitch pitch_of(const TensorRef& tensor) { return {tensor.stride[0], tensor.stride[1], tensor.stride[2]}; }

FoldParams params_of(const GdnFoldArgs& args) {
  const int64_t slots = std::min(args.ssm_pool.shape[1], args.conv_pool.shape[1]);
  FoldParams p;
  p.ssm_pool = args.ssm_pool.data;
  p.conv_pool = args.conv_pool.data;
  p.x = args.record.x.data;
  p.k = args.record.k.as<float>();
  p.d = args.record.d.as<float>();
  p.g = args.record.g.as<float>();
  p.cache_indices = {index_ptr(args.cache_indices), slots};
  p.track_slots = {index_ptr(args.track_slots), slots};
  p.last_steps = index_ptr(args.last_steps);
  p.track_steps = index_ptr(args.track_steps);
  p.parents = index_ptr(args.parent_tokens);
  p.x_pitch = pitch_of(args.record.x);
  p.k_pitch = pitch_of(args.record.k);
  p.d_pitch = pitch_of(args.record.d);
  p.g_pitch = pitch_of(args.record.g);
  p.ssm_layer = args.ssm_pool.stride[0], p.ssm_slot = args.ssm_pool.stride[1];
  p.conv_layer = args.conv_pool.stride[0], p.conv_slot = args.conv_pool.stride[1];
  p.rows = static_cast<int32_t>(args.cache_indices.shape[0]);
  p.drafts = static_cast<int32_t>(args.record.k.shape[2]);
  p.value_heads = static_cast<int32_t>(args.ssm_pool.shape[2]);
  p.ratio = static_cast<int32_t>(args.ssm_pool.shape[2] / args.record.k.shape[3]);
  p.channels = static_cast<int32_t>(args.conv_pool.shape[2]);
  p.window = static_cast<int32_t>(args.conv_pool.shape[3]);
  p.conv_size = static_cast<int32_t>(size_of(args.conv_pool.dtype));
  p.state_blocks = p.value_heads * (kHeadDim / kFoldBlockRows);
  p.layer_blocks = p.state_blocks + (p.channels + kFoldThreads - 1) / kFoldThreads;
  p.aligned_state = is_aligned(args.ssm_pool, 4 * size_of(args.ssm_pool.dtype), 0, 1);
  p.aligned_record = is_aligned(args.record.k, 16, 0, 1, 2) && is_aligned(args.record.d, 16, 0, 1, 2);
  return p;
}

}  // namespace

void gdn_fold(const GdnFoldArgs& args, Stream stream) {
  const FoldParams p = params_of(args);
  LaunchShape shape;
  shape.grid = grid_of_rows(args.ssm_pool.shape[0] * p.layer_blocks, p.rows);
  shape.block = kFoldThreads;
  const auto kernel = args.ssm_pool.dtype == DType::bf16  ? sm90_gdn_fold<bf16>
                      : args.ssm_pool.dtype == DType::f16 ? sm90_gdn_fold<f16>
                                                          : sm90_gdn_fold<float>;
  launch(args.kOp, kernel, shape, p, args.ssm_pool.device_index, stream);
}

}  // namespace gdn::sm90
