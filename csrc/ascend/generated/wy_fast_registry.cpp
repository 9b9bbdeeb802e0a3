// Generated from python/gdn_aot/kernels/ascend/wy_fast.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "ascend/generated/wy_fast.hpp"

namespace gdn::ascend {
namespace {

const Variant<WyFastArguments> kVariants[] = {
    {"gdn_ascend_wy_fast_act_bf16", {DType::bf16}, {DType::bf16, DType::bf16, DType::i32, DType::bf16}},
    {"gdn_ascend_wy_fast_act_f16", {DType::f16}, {DType::f16, DType::f16, DType::i32, DType::f16}},
};

}  // namespace

const Variant<WyFastArguments>* find_wy_fast(DType act) {
  return find_variant(kVariants, {act});
}

void launch(const Variant<WyFastArguments>& variant, const WyFastArguments& arguments, void* stream) {
  expect_dtype(variant.name, "k", arguments.k, variant.tensors[0]);
  expect_dtype(variant.name, "erase", arguments.erase, variant.tensors[1]);
  expect_dtype(variant.name, "query_start_loc", arguments.query_start_loc, variant.tensors[2]);
  expect_dtype(variant.name, "w", arguments.w, variant.tensors[3]);
  launch_function<WyFastArguments>(variant.name)(arguments, stream);
}

}  // namespace gdn::ascend
