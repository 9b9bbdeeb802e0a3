// Log gates and write strengths of every token and value head, g = -exp(A_log) softplus(a + dt_bias), beta =
// sigmoid(b).
//
// Tiles: one task takes 64 tokens; the inner loop runs over the value heads in vectors, with A_log and dt_bias
// converted once per task.
// Memory: reads a and b once in their own dtype, writes g and beta once as float32; nothing is ever rounded to the
// dtype of a or b.
// Synchronisation: none, tasks write disjoint rows.
#include "cpu/gdn_gating.hpp"

#include "cpu/isa_kernels.hpp"
#include "cpu/rows.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

void gdn_gating(const GdnGatingArgs& args) {
  constexpr int64_t kTokens = 64;
  const int64_t tokens = args.a.shape[0], heads = args.a.shape[1], padded = round_up(heads, kLanes);
  parallel_for((tokens + kTokens - 1) / kTokens, [&](int64_t task) {
    ScratchCutter cut(thread_scratch(static_cast<size_t>(padded) * 16 + 256));
    float* const A_log = cut.floats(padded);
    float* const dt_bias = cut.floats(padded);
    float* const first = cut.floats(padded);
    float* const second = cut.floats(padded);
    for (int64_t h = 0; h < padded; ++h) {
      A_log[h] = h < heads ? float_at(args.A_log, h * args.A_log.stride[0]) : 0.0f;
      dt_bias[h] = h < heads ? float_at(args.dt_bias, h * args.dt_bias.stride[0]) : 0.0f;
    }
    for (int64_t t = task * kTokens; t < min((task + 1) * kTokens, tokens); ++t) {
      load_floats(args.a.dtype, element_at(args.a, t * args.a.stride[0]), heads, first, padded);
      load_floats(args.b.dtype, element_at(args.b, t * args.b.stride[0]), heads, second, padded);
      for (int64_t h = 0; h < padded; h += kLanes) {
        store(first + h, log_gate(load(A_log + h), load(first + h), load(dt_bias + h)));
        store(second + h, sigmoid<kLanes>(load(second + h)));
      }
      store_floats(DType::f32, args.g.as<float>() + t * args.g.stride[0], first, heads);
      store_floats(DType::f32, args.beta.as<float>() + t * args.beta.stride[0], second, heads);
    }
  });
}

}  // namespace gdn::cpu::GDN_CPU_ISA
