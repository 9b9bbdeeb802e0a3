// Generated from python/gdn_aot/kernels/ascend/solve_tril.py by `python -m gdn_aot compile-kernels`; not to be edited.
#pragma once

#include "ascend/variant.hpp"

namespace gdn::ascend {

struct SolveTrilArguments {
  static constexpr int32_t kChunk = 64;
  TensorArgument lower_;  // in, [NT, HV, 64, 64] contiguous
  TensorArgument head_gates;  // in, [NT, HV, 64] contiguous
  TensorArgument head_beta;  // in, [NT, HV, 64] contiguous
  TensorArgument query_start_loc;  // in, [N+1], start_pitch words an offset
  TensorArgument write;  // out, [NT, HV, 2, 64, 64] contiguous
  TensorArgument erase;  // out, [NT, HV, 2, 64, 64] contiguous
  int32_t blocks;
  int32_t rows;
  int32_t start_pitch;
  int64_t chunks;
  int64_t heads;
  int64_t starts;
};

// Null if no such variant is built.
const Variant<SolveTrilArguments>* find_solve_tril(DType act);

// Refuses tensors whose element type is not that of the variant.
void launch(const Variant<SolveTrilArguments>& variant, const SolveTrilArguments& arguments, void* stream);

}  // namespace gdn::ascend
