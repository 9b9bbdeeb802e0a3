// Generated from python/gdn_aot/kernels/ascend/solve_tril.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/solve_tril.hpp"

namespace gdn::ascend {
namespace {

const Variant<SolveTrilArguments> kVariants[] = {
    {"gdn_ascend_solve_tril_act_bf16", {DType::bf16}, {DType::f32, DType::f32, DType::f32, DType::i32, DType::bf16, DType::bf16}},
    {"gdn_ascend_solve_tril_act_f16", {DType::f16}, {DType::f32, DType::f32, DType::f32, DType::i32, DType::f16, DType::f16}},
};

}  // namespace

const Variant<SolveTrilArguments>* find_solve_tril(DType act) {
  return find_variant(kVariants, {act});
}

void launch(const Variant<SolveTrilArguments>& variant, const SolveTrilArguments& arguments, void* stream) {
  expect_dtype(variant.name, "lower_", arguments.lower_, variant.tensors[0]);
  expect_dtype(variant.name, "head_gates", arguments.head_gates, variant.tensors[1]);
  expect_dtype(variant.name, "head_beta", arguments.head_beta, variant.tensors[2]);
  expect_dtype(variant.name, "query_start_loc", arguments.query_start_loc, variant.tensors[3]);
  expect_dtype(variant.name, "write", arguments.write, variant.tensors[4]);
  expect_dtype(variant.name, "erase", arguments.erase, variant.tensors[5]);
  launch_function<SolveTrilArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
