#pragma once

#include "ascend/generated/chunk_gated_delta_rule.hpp"
#include "ascend/prepared.hpp"
#include "core/operators.hpp"

// The chunked gated delta rule: in seven launches, with everything between them in global memory, or in one. C = 64
// tokens a chunk, D = 128; chunk c of row n has the number query_start_loc[n] / C + n + c, below NT = T / C + N.
namespace gdn::ascend {

struct ChunkIntermediates {
  TensorRef gates;       // [NT, C, HV] f32: log gates summed inside the chunk
  TensorRef head_gates;  // [NT, HV, C] f32
  TensorRef head_beta;   // [NT, HV, C] f32
  TensorRef lower;       // [NT, HV, C, C] f32: A, below its diagonal
  TensorRef write;       // [NT, HV, 2, C, C] activations: (I + A)^-1 diag(beta), rounded, and what that left out
  TensorRef erase;       // [NT, HV, 2, C, C] activations: -(I + A)^-1 diag(beta e^G), likewise
  TensorRef w;           // [NT, HV, C, D] activations: erase k
  TensorRef h;           // [NT, HV, D, D] activations: state before the chunk, [V, K]
  TensorRef v_new;       // [NT, HV, 2, C, D] activations: what every token writes to the state, likewise
  TensorRef workspace;   // f32, chunk_workspace_elements() for the device, contents undefined
};

// Of the stages and of chunk_gated_delta_rule.
int64_t chunk_workspace_elements(int32_t device);

// Each reads what earlier ones wrote. `args` must have passed validation.
void chunk_cumsum(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream);
void chunk_transpose(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream);
void scaled_dot_kkt(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream);
void solve_tril(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream);
void wy_fast(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream);
void chunk_h(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream);
void chunk_o(const ChunkGatedDeltaRuleArgs& args, const ChunkIntermediates& between, Stream stream);

// All stages in one launch, from the first to number `stop_after`, 1 to 7. Below 7 their results are those of the
// stages, all but `gates`, and `out` is not written.
Prepared<ChunkGatedDeltaRuleArguments> chunk_pipeline(const ChunkGatedDeltaRuleArgs& args,
                                                      const ChunkIntermediates& between, int32_t stop_after);

// The operator: chunk_pipeline to its end, in args.workspace.
Prepared<ChunkGatedDeltaRuleArguments> prepare(const ChunkGatedDeltaRuleArgs& args);

}  // namespace gdn::ascend
