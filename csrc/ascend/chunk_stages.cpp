#include "ascend/chunk_stages.hpp"

#include <algorithm>

#include "ascend/device.hpp"
#include "ascend/generated/chunk_cumsum.hpp"
#include "ascend/generated/chunk_h.hpp"
#include "ascend/generated/chunk_o.hpp"
#include "ascend/generated/chunk_transpose.hpp"
#include "ascend/generated/scaled_dot_kkt.hpp"
#include "ascend/generated/solve_tril.hpp"
#include "ascend/generated/wy_fast.hpp"
#include "ascend/refuse.hpp"

namespace gdn::ascend {
namespace {

constexpr int64_t kChunk = ChunkHArguments::kChunk, kHeadDim = ChunkHArguments::kHeadDim;
constexpr int32_t kLastStage = 7;
constexpr int64_t kActBytes = 2, kFloatBytes = 4;
constexpr int64_t kSquare = kChunk * kChunk, kState = kHeadDim * kHeadDim;
constexpr int64_t kDiagonal = kChunk * 16;  // of a square, its blocks on the diagonal
// Bytes a block of the pipeline, which needs most.
constexpr int64_t kBlockBytes =
    (4 * kSquare + 2 * kDiagonal + kState) * kFloatBytes + (13 * kSquare + 8 * kDiagonal + 2 * kState) * kActBytes;

int64_t rows(const ChunkGatedDeltaRuleArgs& args) { return args.query_start_loc.shape[0] - 1; }
int64_t heads(const ChunkGatedDeltaRuleArgs& args) { return args.v.shape[1]; }
int64_t key_heads(const ChunkGatedDeltaRuleArgs& args) { return args.k.shape[1]; }
int64_t most_chunks(const ChunkGatedDeltaRuleArgs& args) { return args.v.shape[0] / kChunk + rows(args); }

int32_t blocks_for(int64_t tasks, const ChunkGatedDeltaRuleArgs& args) {
  return cube_blocks(tasks, args.v.device_index);
}

template <class Arguments>
void fill_rows(Arguments& kernel, const ChunkGatedDeltaRuleArgs& args) {
  int32_of(args.kOp, "v", most_chunks(args) * heads(args) * kState);  // the lowered code indexes `h` with 32 bits
  kernel.query_start_loc = index_argument(args.query_start_loc);
  kernel.rows = int32_of(args.kOp, "query_start_loc", rows(args));
  kernel.start_pitch = index_pitch(args.query_start_loc);
  kernel.starts = rows(args) + 1;
  kernel.chunks = most_chunks(args);
  kernel.heads = heads(args);
}

// Where the next buffer of a workspace begins.
class Workspace {
 public:
  Workspace(const TensorRef& memory, int64_t blocks) : next_(memory.as<uint8_t>()), blocks_(blocks) {}
  TensorArgument take(int64_t elements, DType dtype) {
    const TensorArgument buffer{next_, dtype};
    next_ += blocks_ * elements * (dtype == DType::f32 ? kFloatBytes : kActBytes);
    return buffer;
  }

 private:
  uint8_t* next_;
  int64_t blocks_;
};

}  // namespace

int64_t chunk_workspace_elements(int32_t device) { return cube_cores(device) * kBlockBytes / kFloatBytes; }

void chunk_cumsum(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream) {
  ChunkCumsumArguments kernel;
  fill_rows(kernel, args);
  kernel.g = argument(args.g);
  kernel.gates = argument(between.gates);
  kernel.blocks = vector_blocks(most_chunks(args), args.v.device_index);
  kernel.tokens = args.g.shape[0];
  kernel.g_pitch = args.g.stride[0];
  launch(*find_chunk_cumsum(DType::f32), kernel, stream.handle);
}

void chunk_transpose(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream) {
  ChunkTransposeArguments kernel;
  fill_rows(kernel, args);
  kernel.gates = argument(between.gates);
  kernel.beta = argument(args.beta);
  kernel.head_gates = argument(between.head_gates);
  kernel.head_beta = argument(between.head_beta);
  kernel.blocks = vector_blocks(most_chunks(args), args.v.device_index);
  kernel.tokens = args.beta.shape[0];
  kernel.beta_pitch = args.beta.stride[0];
  launch(*find_chunk_transpose(DType::f32), kernel, stream.handle);
}

void scaled_dot_kkt(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream) {
  ScaledDotKktArguments kernel;
  fill_rows(kernel, args);
  kernel.blocks = blocks_for(most_chunks(args) * key_heads(args), args);
  Workspace space(between.workspace, kernel.blocks);
  kernel.k = argument(args.k);
  kernel.head_gates = argument(between.head_gates);
  kernel.head_beta = argument(between.head_beta);
  kernel.lower_ = argument(between.lower);
  kernel.workspace = space.take(2 * kSquare, DType::f32);
  kernel.k_head_pitch = int32_of(args.kOp, "k", args.k.stride[1]);
  kernel.key_heads = static_cast<int32_t>(key_heads(args));
  kernel.ratio = static_cast<int32_t>(heads(args) / key_heads(args));
  kernel.tokens = args.k.shape[0];
  kernel.k_pitch = args.k.stride[0];
  kernel.buffers = 2 * kernel.blocks;
  launch(*find_scaled_dot_kkt(args.k.dtype), kernel, stream.handle);
}

void solve_tril(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream) {
  SolveTrilArguments kernel;
  fill_rows(kernel, args);
  kernel.lower_ = argument(between.lower);
  kernel.head_gates = argument(between.head_gates);
  kernel.head_beta = argument(between.head_beta);
  kernel.write = argument(between.write);
  kernel.erase = argument(between.erase);
  kernel.blocks = vector_blocks(most_chunks(args) * heads(args), args.v.device_index);
  launch(*find_solve_tril(args.k.dtype), kernel, stream.handle);
}

void wy_fast(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream) {
  WyFastArguments kernel;
  fill_rows(kernel, args);
  kernel.k = argument(args.k);
  kernel.erase = argument(between.erase);
  kernel.w = argument(between.w);
  kernel.blocks = blocks_for(most_chunks(args) * heads(args), args);
  kernel.k_head_pitch = int32_of(args.kOp, "k", args.k.stride[1]);
  kernel.ratio = static_cast<int32_t>(heads(args) / key_heads(args));
  kernel.tokens = args.k.shape[0];
  kernel.k_pitch = args.k.stride[0];
  launch(*find_wy_fast(args.k.dtype), kernel, stream.handle);
}

void chunk_h(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream) {
  ChunkHArguments kernel;
  fill_rows(kernel, args);
  kernel.blocks = blocks_for(rows(args) * heads(args), args);
  Workspace space(between.workspace, kernel.blocks);
  kernel.k = argument(args.k);
  kernel.v = argument(args.v);
  kernel.head_gates = argument(between.head_gates);
  kernel.write = argument(between.write);
  kernel.w = argument(between.w);
  kernel.ssm_pool = argument(args.ssm_pool);
  kernel.cache_indices = index_argument(args.cache_indices);
  kernel.has_initial_state = flag_argument(args.has_initial_state, args.cache_indices);
  kernel.h = argument(between.h);
  kernel.v_new = argument(between.v_new);
  kernel.state_space = space.take(kState, DType::f32);
  kernel.diagonal_space = space.take(4 * kDiagonal, args.k.dtype);
  kernel.identity_space = space.take(kSquare, args.k.dtype);
  kernel.index_pitch = index_pitch(args.cache_indices);
  kernel.k_head_pitch = int32_of(args.kOp, "k", args.k.stride[1]);
  kernel.v_head_pitch = int32_of(args.kOp, "v", args.v.stride[1]);
  kernel.ratio = static_cast<int32_t>(heads(args) / key_heads(args));
  kernel.all_initial = !args.has_initial_state.present;
  kernel.update_state = args.update_state;
  kernel.tokens = args.k.shape[0];
  kernel.k_pitch = args.k.stride[0];
  kernel.v_pitch = args.v.stride[0];
  kernel.slots = args.ssm_pool.shape[0];
  kernel.pool_pitch = args.ssm_pool.stride[0];
  kernel.indices = kernel.flags = rows(args);
  kernel.buffers = kernel.blocks;
  launch(*find_chunk_h(args.k.dtype), kernel, stream.handle);
}

void chunk_o(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream) {
  ChunkOArguments kernel;
  fill_rows(kernel, args);
  kernel.blocks = blocks_for(most_chunks(args) * heads(args), args);
  Workspace space(between.workspace, kernel.blocks);
  kernel.q = argument(args.q);
  kernel.k = argument(args.k);
  kernel.head_gates = argument(between.head_gates);
  kernel.h = argument(between.h);
  kernel.v_new = argument(between.v_new);
  kernel.cache_indices = index_argument(args.cache_indices);
  kernel.out = argument(args.out);
  kernel.score_space = space.take(2 * kSquare, DType::f32);
  kernel.diagonal_space = space.take(4 * kDiagonal, args.q.dtype);
  kernel.weight_space = space.take(4 * kSquare, args.q.dtype);
  kernel.index_pitch = index_pitch(args.cache_indices);
  kernel.q_head_pitch = int32_of(args.kOp, "q", args.q.stride[1]);
  kernel.k_head_pitch = int32_of(args.kOp, "k", args.k.stride[1]);
  kernel.ratio = static_cast<int32_t>(heads(args) / key_heads(args));
  kernel.slots = int32_of(args.kOp, "ssm_pool", args.ssm_pool.shape[0]);
  kernel.scale = args.scale;
  kernel.tokens = args.q.shape[0];
  kernel.q_pitch = args.q.stride[0];
  kernel.k_pitch = args.k.stride[0];
  kernel.indices = rows(args);
  kernel.buffers = kernel.blocks;
  launch(*find_chunk_o(args.q.dtype), kernel, stream.handle);
}

Prepared<ChunkGatedDeltaRuleArguments> chunk_pipeline(const ChunkGatedDeltaRuleArgs& args,
                                                      const ChunkIntermediates& between, int32_t stop_after) {
  const bool inspect = stop_after < kLastStage;
  const DType act = args.q.dtype;
  ChunkGatedDeltaRuleArguments kernel;
  kernel.blocks = blocks_for(rows(args) * heads(args), args);
  Workspace space(between.workspace, kernel.blocks);
  const auto place = [&](const TensorRef& tensor, int64_t elements) {
    return inspect ? argument(tensor) : space.take(2 * elements, act);
  };
  kernel.q = argument(args.q);
  kernel.k = argument(args.k);
  kernel.v = argument(args.v);
  kernel.g = argument(args.g);
  kernel.beta = argument(args.beta);
  kernel.ssm_pool = argument(args.ssm_pool);
  kernel.query_start_loc = index_argument(args.query_start_loc);
  kernel.cache_indices = index_argument(args.cache_indices);
  kernel.has_initial_state = flag_argument(args.has_initial_state, args.cache_indices);
  kernel.tracks = args.track_state.present;
  kernel.keeps = args.h.present;
  kernel.track_state = argument_or_none(args.track_state, DType::f32);
  kernel.track_chunk_idx = index_argument(kernel.tracks ? args.track_chunk_idx : args.cache_indices);
  kernel.track_pitch = index_pitch(kernel.tracks ? args.track_chunk_idx : args.cache_indices);
  kernel.chunk_states = argument_or_none(args.h, DType::f32);
  kernel.out = argument(args.out);
  kernel.head_gates = argument_or_none(between.head_gates, DType::f32);
  kernel.head_beta = argument_or_none(between.head_beta, DType::f32);
  kernel.lower_ = argument_or_none(between.lower, DType::f32);
  kernel.w = argument_or_none(between.w, act);
  kernel.v_new = argument_or_none(between.v_new, act);
  kernel.product_space = space.take(4 * kSquare, DType::f32);
  kernel.norm_space = space.take(2 * kDiagonal, DType::f32);
  kernel.state_space = space.take(kState, DType::f32);
  kernel.write = place(between.write, 2 * kSquare);
  kernel.erase = place(between.erase, 2 * kSquare);
  kernel.h = place(between.h, kState);
  kernel.weight_space = space.take(4 * kSquare, act);
  kernel.diagonal_space = space.take(8 * kDiagonal, act);
  kernel.identity_space = space.take(kSquare, act);
  kernel.rows = int32_of(args.kOp, "query_start_loc", rows(args));
  kernel.start_pitch = index_pitch(args.query_start_loc);
  kernel.index_pitch = index_pitch(args.cache_indices);
  kernel.q_head_pitch = int32_of(args.kOp, "q", args.q.stride[1]);
  kernel.k_head_pitch = int32_of(args.kOp, "k", args.k.stride[1]);
  kernel.v_head_pitch = int32_of(args.kOp, "v", args.v.stride[1]);
  kernel.ratio = static_cast<int32_t>(heads(args) / key_heads(args));
  kernel.all_initial = !args.has_initial_state.present;
  kernel.update_state = args.update_state;
  kernel.l2norm = args.qk_l2norm;
  kernel.stop_after = stop_after;
  kernel.scale = args.scale;
  kernel.tokens = int32_of(args.kOp, "v", args.v.shape[0]);
  kernel.heads = heads(args);
  kernel.q_pitch = args.q.stride[0];
  kernel.k_pitch = args.k.stride[0];
  kernel.v_pitch = args.v.stride[0];
  kernel.g_pitch = args.g.stride[0];
  kernel.beta_pitch = args.beta.stride[0];
  kernel.slots = args.ssm_pool.shape[0];
  kernel.pool_pitch = args.ssm_pool.stride[0];
  kernel.starts = rows(args) + 1;
  kernel.indices = kernel.flags = rows(args);
  kernel.places = inspect ? most_chunks(args) * heads(args) : 2 * kernel.blocks;
  kernel.buffers = kernel.blocks;
  return {find_chunk_gated_delta_rule(act), kernel};
}

Prepared<ChunkGatedDeltaRuleArguments> prepare(const ChunkGatedDeltaRuleArgs& args) {
  expect_dtype(args.kOp, "h", args.h, DType::f32);
  expect_value_heads(args.kOp, "v", args.v, heads(args), ChunkGatedDeltaRuleArguments::kMaxHeads);
  const int64_t bytes = chunk_workspace_elements(args.v.device_index);
  if (!args.workspace || args.workspace.numel() * kFloatBytes < bytes)
    throw ArgumentError(
        ErrorKind::value, args.kOp, "workspace",
        "must have " + std::to_string(bytes / kFloatBytes) + " elements on npu; got " + args.workspace.to_string());
  ChunkIntermediates between;
  between.workspace = args.workspace;
  return chunk_pipeline(args, between, kLastStage);
}

}  // namespace gdn::ascend
