#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "cuda/sm90_chunk_gated_delta_rule.cuh"
#include "cuda/sm90_chunk_gated_delta_rule.hpp"
#include "cuda/sm90_launch.hpp"
#include "cuda/sm90_tensor_map.hpp"

namespace gdn::sm90 {
namespace {

void require_aligned(const ChunkGatedDeltaRuleArgs& args, const char* name, const TensorRef& tensor) {
  if (has_tensor_map(tensor)) return;
  throw NoKernelError(args.kOp, std::string("must have ") + name +
                                    " with tokens and heads at multiples of 16 bytes on cuda; got address " +
                                    std::to_string(reinterpret_cast<uintptr_t>(tensor.data)) + ", strides [" +
                                    std::to_string(tensor.stride[0]) + ", " + std::to_string(tensor.stride[1]) +
                                    ", 1]");
}

ChunkRuleParams params_of(const ChunkGatedDeltaRuleArgs& args) {
  ChunkRuleParams p;
  p.q = tensor_map(args.kOp, args.q, kChunk);
  p.k = tensor_map(args.kOp, args.k, kChunk);
  p.v = tensor_map(args.kOp, args.v, kChunk);
  p.out_boxes = tensor_map(args.kOp, args.out, kChunk);
  p.g = static_cast<const float*>(args.g.data);
  p.beta = static_cast<const float*>(args.beta.data);
  p.out = float_ptr(args.out);
  p.ssm_pool = float_ptr(args.ssm_pool);
  p.h = float_ptr(args.h);
  p.track_state = static_cast<float*>(float_ptr(args.track_state).data);
  p.items = p.segment_chunks = 0;
  p.segment_ends = p.segment_maps = nullptr;
  if (args.segment_states.present) {
    p.segment_chunks = static_cast<int32_t>(args.segment_chunks);
    p.segment_ends = static_cast<float*>(args.segment_states.data);
    p.segment_maps = p.segment_ends + args.segment_states.stride[0];
  }
  p.track_chunk_idx = index_ptr(args.track_chunk_idx);
  p.query_start_loc = index_ptr(args.query_start_loc);
  p.cache_indices = slot_ptr(args.cache_indices, args.ssm_pool);
  p.has_initial_state =
      args.has_initial_state.present ? static_cast<const bool*>(args.has_initial_state.data) : nullptr;
  p.g_pitch = args.g.stride[0];
  p.beta_pitch = args.beta.stride[0];
  p.ssm_pitch = args.ssm_pool.stride[0];
  p.rows = static_cast<int32_t>(args.cache_indices.shape[0]);
  p.tokens = static_cast<int32_t>(args.q.shape[0]);
  p.value_heads = static_cast<int32_t>(args.v.shape[1]);
  p.ratio = static_cast<int32_t>(args.v.shape[1] / args.q.shape[1]);
  p.scale = args.scale;
  p.update_state = args.update_state;
  return p;
}

template <class T, Pass kPass>
void launch_pass(const ChunkGatedDeltaRuleArgs& args, ChunkRuleParams p, int64_t items, Stream stream) {
  p.items = static_cast<int32_t>(items);
  const int64_t clusters = multiprocessors(args.kOp, args.q.device_index) / kBlocks;
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(kBlocks * std::clamp<int64_t>(items, 1, clusters)));
  shape.block = kChunkThreads;
  shape.cluster_x = kBlocks;
  shape.shared_bytes = sizeof(ChunkShared);
  launch(args.kOp,
         args.qk_l2norm ? sm90_chunk_gated_delta_rule<T, true, kPass> : sm90_chunk_gated_delta_rule<T, false, kPass>,
         shape, p, args.q.device_index, stream);
}

void launch_join(const ChunkGatedDeltaRuleArgs& args, const ChunkRuleParams& p, Stream stream) {
  LaunchShape shape;
  shape.grid = grid_of_rows(kHead / kJoinRows * p.value_heads, p.rows);
  shape.block = kJoinThreads;
  shape.shared_bytes = sizeof(JoinShared);
  launch(args.kOp, sm90_join_segments, shape, p, args.q.device_index, stream);
}

template <class T>
void launch_chunk_rule(const ChunkGatedDeltaRuleArgs& args, Stream stream) {
  const ChunkRuleParams p = params_of(args);
  const int64_t heads = p.value_heads, segments = args.segment_states.shape[1];
  if (p.segment_chunks == 0) return launch_pass<T, Pass::rows>(args, p, p.rows * heads, stream);
  launch_pass<T, Pass::ends>(args, p, 2 * segments * heads, stream);
  launch_join(args, p, stream);
  launch_pass<T, Pass::segments>(args, p, segments * heads, stream);
}

}  // namespace

void chunk_gated_delta_rule(const ChunkGatedDeltaRuleArgs& args, Stream stream) {
  require_aligned(args, "q", args.q);
  require_aligned(args, "k", args.k);
  require_aligned(args, "v", args.v);
  if (args.q.dtype == DType::bf16)
    launch_chunk_rule<bf16>(args, stream);
  else
    launch_chunk_rule<f16>(args, stream);
}

}  // namespace gdn::sm90
