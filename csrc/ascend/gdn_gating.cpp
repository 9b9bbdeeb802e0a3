#include "ascend/gdn_gating.hpp"

#include "ascend/device.hpp"
#include "ascend/refuse.hpp"

namespace gdn::ascend {

Prepared<GdnGatingArguments> prepare(const GdnGatingArgs& args) {
  const DType act = args.a.dtype;
  expect_dtype(args.kOp, "b", args.b, act);
  expect_dtype(args.kOp, "A_log", args.A_log, DType::f32);
  const auto* variant = find_gdn_gating(act, args.dt_bias.dtype);
  if (!variant) expect_dtype(args.kOp, "dt_bias", args.dt_bias, act);

  const int64_t tokens = args.a.shape[0], heads = args.a.shape[1];
  expect_value_heads(args.kOp, "a", args.a, heads, GdnGatingArguments::kMaxHeads);
  constexpr int64_t kTask = GdnGatingArguments::kTokens;

  GdnGatingArguments kernel;
  kernel.A_log = argument(args.A_log);
  kernel.a = argument(args.a);
  kernel.b = argument(args.b);
  kernel.dt_bias_weight = argument(args.dt_bias);
  kernel.g = argument(args.g);
  kernel.beta = argument(args.beta);
  kernel.blocks = vector_blocks((tokens + kTask - 1) / kTask, args.a.device_index);
  kernel.heads = heads;
  kernel.tokens = tokens;
  kernel.a_pitch = args.a.stride[0];
  kernel.b_pitch = args.b.stride[0];
  return {variant, kernel};
}

}  // namespace gdn::ascend
