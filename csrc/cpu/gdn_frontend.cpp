// What precedes the chunk rule: convolution with SiLU, l2norm of q and k, gates.
//
// Tiles: those of causal_conv1d and gdn_gating; the l2norm takes 64 tokens a task.
// Memory: q and k make another round trip to be normalised where they lie.
// Accuracy: the norm is summed in float32 over the convolved q and k as they are stored, and rounded once more.
// Synchronisation: each step ends before the next one starts.
#include "core/composition.hpp"
#include "cpu/isa_kernels.hpp"
#include "cpu/rows.hpp"

namespace gdn::cpu::GDN_CPU_ISA {
namespace {

void normalise_keys_and_queries(const GdnFrontendArgs& args) {
  constexpr int64_t kTokens = 64;
  const int64_t tokens = args.qkv.shape[0], size = args.heads.head_k_dim, padded = round_up(size, kLanes);
  parallel_for((tokens + kTokens - 1) / kTokens, [&](int64_t task) {
    ScratchCutter cut(thread_scratch(static_cast<size_t>(padded) * 4 + 64));
    float* const row = cut.floats(padded);
    for (int64_t t = task * kTokens; t < min((task + 1) * kTokens, tokens); ++t) {
      for (int64_t head = 0; head < 2 * args.heads.num_k_heads; ++head) {
        const int64_t offset = t * args.qkv.stride[0] + head * size;
        load_head_row(args.qkv, offset, size, true, 1.0f, row, padded);
        store_floats(args.qkv.dtype, element_at(args.qkv, offset), row, size);
      }
    }
  });
}

}  // namespace

void gdn_frontend(const GdnFrontendArgs& args) {
  causal_conv1d(convolution_of(args));
  gdn_gating(gates_of(args));
  if (args.qk_l2norm) normalise_keys_and_queries(args);
}

}  // namespace gdn::cpu::GDN_CPU_ISA
