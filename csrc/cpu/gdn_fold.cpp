// Commits draft tokens from their record: the states of all layers become those after the last accepted token,
//   S' = e^G S + sum_i e^(G - G_i) d_i k_i^T over the tokens i on its path, G_i the sum of log gates up to i,
// and the windows of the convolution the last W-1 inputs of that path, continued by the old window.
//
// Tiles: one task takes the [V, K] state of one value head, or the windows of 256 channels, of one row and layer.
// Memory: a state is read once and written once, whatever the number of tokens; the record is 3 % of it a token.
// Accuracy: float32, rounded once to the dtype of the pool. Windows are copied.
// Synchronisation: none, live rows name different slots; a tracked copy is written before the state it is made from.
#include "cpu/isa_kernels.hpp"
#include "cpu/rows.hpp"

namespace gdn::cpu::GDN_CPU_ISA {
namespace {

constexpr int64_t kMaxDrafts = 16;
constexpr int64_t kChannels = 256;

// The tokens from the one to commit back to the committed state. Empty where the step names no draft.
struct Path {
  Path(const GdnFoldArgs& args, const TensorRef& steps, int64_t n) {
    for (int64_t token = slot_at(steps, n, args.record.k.shape[2]); token >= 0;) {
      tokens[length++] = token;
      const int64_t parent = args.parent_tokens ? index_at(args.parent_tokens, n, token) : token - 1;
      token = parent < token ? parent : -1;
    }
  }

  int64_t length = 0;
  int64_t tokens[kMaxDrafts];
};

void fold_head(const GdnFoldArgs& args, int64_t layer, int64_t n, int64_t head, int64_t slot, int64_t target,
               const Path& path) {
  const DraftRecord& record = args.record;
  const int64_t V = args.ssm_pool.shape[3], K = args.ssm_pool.shape[4], K_padded = round_up(K, kLanes);
  const int64_t key_head = head / (args.ssm_pool.shape[2] / record.k.shape[3]);
  ScratchCutter cut(thread_scratch(static_cast<size_t>(kMaxDrafts + 1) * K_padded * 4 + 128));
  float* const keys = cut.floats(path.length * K_padded);
  float* const row = cut.floats(K_padded);
  const float* d[kMaxDrafts];
  float weight[kMaxDrafts], G = 0;
  for (int64_t i = 0; i < path.length; ++i) {
    const auto at = [&](const TensorRef& t) {
      return t.as<const float>() + layer * t.stride[0] + n * t.stride[1] + path.tokens[i] * t.stride[2];
    };
    weight[i] = exp<kLanes>(splat(G))[0];
    G += at(record.g)[head];
    d[i] = at(record.d) + head * V;
    load_floats(DType::f32, at(record.k) + key_head * K, K, keys + i * K_padded, K_padded);
  }
  const F decay = exp<kLanes>(splat(G));
  const auto state_row = [&](int64_t of_slot, int64_t v) {
    return element_at(args.ssm_pool,
                      layer * args.ssm_pool.stride[0] + of_slot * args.ssm_pool.stride[1] + (head * V + v) * K);
  };
  for (int64_t v = 0; v < V; ++v) {
    load_floats(args.ssm_pool.dtype, state_row(slot, v), K, row, K_padded);
    for (int64_t c = 0; c < K_padded; c += kLanes) {
      F sum = decay * load(row + c);
      for (int64_t i = path.length - 1; i >= 0; --i)
        sum = fma(splat(weight[i] * d[i][v]), load(keys + i * K_padded + c), sum);
      store(row + c, sum);
    }
    store_floats(args.ssm_pool.dtype, state_row(target, v), row, K);
  }
}

void fold_windows(const GdnFoldArgs& args, int64_t layer, int64_t n, int64_t first, int64_t slot, int64_t target,
                  const Path& path) {
  const TensorRef &pool = args.conv_pool, &x = args.record.x;
  const int64_t size = element_size(pool.dtype), window = pool.shape[3];
  const int64_t layer_at = layer * pool.stride[0];
  for (int64_t c = first; c < min(first + kChannels, pool.shape[2]); ++c) {
    const char* const from = element_at(pool, layer_at + slot * pool.stride[1] + c * window);
    char* const to = element_at(pool, layer_at + target * pool.stride[1] + c * window);
    const int64_t kept = max(window - path.length, 0);
    for (int64_t j = 0; j < kept; ++j) copy_bytes(to + j * size, from + (path.length + j) * size, size);
    for (int64_t j = kept; j < window; ++j) {
      const int64_t token = path.tokens[window - 1 - j];
      copy_bytes(to + j * size,
                 element_at(x, layer * x.stride[0] + n * x.stride[1] + token * x.stride[2] + c * x.stride[3]), size);
    }
  }
}

}  // namespace

void gdn_fold(const GdnFoldArgs& args) {
  const int64_t layers = args.ssm_pool.shape[0], rows = args.cache_indices.shape[0];
  const int64_t heads = args.ssm_pool.shape[2], channels = args.conv_pool.shape[2];
  const int64_t tasks_per_row = heads + (channels + kChannels - 1) / kChannels;
  const int64_t slots = min(args.ssm_pool.shape[1], args.conv_pool.shape[1]);
  parallel_for(layers * rows * tasks_per_row, [&](int64_t task) {
    const int64_t part = task % tasks_per_row, n = task / tasks_per_row % rows, layer = task / tasks_per_row / rows;
    const int64_t slot = slot_at(args.cache_indices, n, slots);
    if (slot < 0) return;
    const auto fold = [&](int64_t target, const TensorRef& steps) {
      const Path path(args, steps, n);
      if (target < 0 || path.length == 0) return;
      if (part < heads) {
        fold_head(args, layer, n, part, slot, target, path);
      } else {
        fold_windows(args, layer, n, (part - heads) * kChannels, slot, target, path);
      }
    };
    if (args.track_slots) fold(slot_at(args.track_slots, n, slots), args.track_steps);
    fold(slot, args.last_steps);
  });
}

}  // namespace gdn::cpu::GDN_CPU_ISA
