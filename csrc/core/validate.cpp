#include "core/validate.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace gdn {
namespace {

constexpr int64_t kMaxDraftTokens = 16;
constexpr int64_t kChunkTokens = 64;
constexpr int64_t kAny = -1;

using DTypes = std::initializer_list<DType>;
using Shape = std::initializer_list<int64_t>;

constexpr DTypes kFloats = {DType::f32, DType::bf16, DType::f16};
constexpr DTypes kIndices = {DType::i32, DType::i64};
constexpr DTypes kFloat32 = {DType::f32};
constexpr DTypes kBool = {DType::boolean};

// How much of a tensor must be dense: nothing, the last dimension, or the last `n` dimensions.
enum class Dense : int { none = 0, last = 1, last_two = 2, last_three = 3, last_four = 4, all = TensorRef::kMaxDims };

std::string text_of(DTypes dtypes) {
  std::string text;
  for (DType dtype : dtypes) text += (text.empty() ? "" : " or ") + std::string(to_string(dtype));
  return text;
}

std::string text_of(Shape shape, const char* names) {
  std::string text = "[";
  for (int64_t size : shape) text += (text.size() > 1 ? ", " : "") + (size == kAny ? "*" : std::to_string(size));
  return text + "] (" + names + ")";
}

class Checker {
 public:
  // Device of the operator's main argument; every other tensor must be there too.
  Checker(const char* op, const char* name, const TensorRef& main) : op_(op), main_name_(name), main_(main) {
    require_present(name, main);
  }

  [[noreturn]] void fail(ErrorKind kind, const char* name, const std::string& rule, const std::string& got) const {
    throw ArgumentError(kind, op_, name, "must be " + rule + "; got " + got);
  }

  void require_present(const char* name, const TensorRef& tensor) const {
    if (!tensor) fail(ErrorKind::type, name, "a torch.Tensor", "None");
  }

  void absent(const char* name, const TensorRef& tensor, const char* when) const {
    if (tensor) fail(ErrorKind::value, name, std::string("None ") + when, tensor.to_string());
  }

  void together(const char* name, const TensorRef& tensor, const char* other_name, const TensorRef& other) const {
    if (tensor.present == other.present) return;
    const bool missing = !tensor.present;
    fail(ErrorKind::value, missing ? name : other_name,
         std::string("given together with ") + (missing ? other_name : name), "None");
  }

  // `names` spells the shape in the words of the documentation; kAny leaves a size free.
  void tensor(const char* name, const TensorRef& t, DTypes dtypes, Shape shape, const char* names, Dense dense) const {
    require_present(name, t);
    if (t.device != main_.device || t.device_index != main_.device_index)
      fail(ErrorKind::value, name, "on the device of " + std::string(main_name_) + ", " + to_string(main_.device),
           t.to_string());
    bool dtype_served = false;
    for (DType dtype : dtypes) dtype_served |= dtype == t.dtype;
    if (!dtype_served) fail(ErrorKind::type, name, text_of(dtypes), t.to_string());
    bool shape_served = t.ndim == static_cast<int32_t>(shape.size());
    for (int i = 0; shape_served && i < t.ndim; ++i) {
      const int64_t wanted = shape.begin()[i];
      shape_served = wanted == kAny || wanted == t.shape[i];
    }
    if (!shape_served) fail(ErrorKind::value, name, text_of(shape, names), t.to_string());
    check_strides(name, t, static_cast<int>(dense));
  }

  void optional(const char* name, const TensorRef& t, DTypes dtypes, Shape shape, const char* names,
                Dense dense) const {
    if (t) tensor(name, t, dtypes, shape, names, dense);
  }

  // Windows [.., D, W-1]: stored so everywhere but on an NPU, where SGLang keeps [.., W-1, D].
  void windows(const char* name, const TensorRef& t, DTypes dtypes, Shape shape, const char* names,
               Dense elsewhere) const {
    const bool channels_last = t.device == Device::npu;
    tensor(name, t, dtypes, shape, names, channels_last ? Dense::none : elsewhere);
    const int32_t d = t.ndim - 2, w = t.ndim - 1;
    if (channels_last && t.numel() > 0 &&
        ((t.shape[d] > 1 && t.stride[d] != 1) || (t.shape[w] > 1 && t.stride[w] != t.shape[d])))
      fail(ErrorKind::value, name, "a transposed view of windows [.., W-1, D] on npu", t.to_string());
  }

  void slot_pitch(const char* name, const TensorRef& t, int slots_dim = 0) const {
    int64_t slot_size = 1;
    for (int i = slots_dim + 1; i < t.ndim; ++i) slot_size *= t.shape[i];
    if (t.shape[slots_dim] > 1 && t.stride[slots_dim] < slot_size)
      fail(ErrorKind::value, name, "at a slot pitch of at least " + std::to_string(slot_size) + " elements",
           t.to_string());
  }

 private:
  void check_strides(const char* name, const TensorRef& t, int dense_dims) const {
    if (t.numel() == 0) return;
    int64_t expected = 1;
    for (int i = t.ndim - 1; i >= 0; --i) {
      const bool dense = t.ndim - i <= dense_dims;
      if (t.shape[i] != 1 && (dense ? t.stride[i] != expected : t.stride[i] < 1))
        fail(ErrorKind::value, name,
             dense ? "dense in its last " + std::to_string(std::min(dense_dims, t.ndim)) + " dimension(s)"
                   : std::string("at positive strides"),
             t.to_string());
      expected *= t.shape[i];
    }
  }

  const char* op_;
  const char* main_name_;
  const TensorRef& main_;
};

void check_conv_weights(const Checker& check, const char* name, const TensorRef& weight, const char* bias_name,
                        const TensorRef& bias, DType act, int64_t channels) {
  check.tensor(name, weight, {act, DType::f32}, {channels, kAny}, "D, W", Dense::all);
  if (weight.shape[1] < 2 || weight.shape[1] > 4)
    check.fail(ErrorKind::value, name, "[D, W] with W in 2..4", weight.to_string());
  check.optional(bias_name, bias, {act, DType::f32}, {channels}, "D", Dense::all);
}

void check_conv_pool(const Checker& check, const TensorRef& pool, int64_t channels, int64_t window) {
  check.windows("conv_pool", pool, kFloats, {kAny, channels, window}, "slots, D, W-1", Dense::last_two);
  check.slot_pitch("conv_pool", pool);
}

void check_indices(const Checker& check, const char* name, const TensorRef& indices, int64_t rows) {
  check.tensor(name, indices, kIndices, {rows}, "N", Dense::all);
}

int64_t check_query_start_loc(const Checker& check, const TensorRef& query_start_loc,
                              const char* name = "query_start_loc") {
  check.tensor(name, query_start_loc, kIndices, {kAny}, "N+1", Dense::all);
  if (query_start_loc.shape[0] < 1)
    check.fail(ErrorKind::value, name, "[N+1], at least one element", query_start_loc.to_string());
  return query_start_loc.shape[0] - 1;
}

void check_conv_tracking(const Checker& check, const TensorRef& slots, const TensorRef& lens, int64_t rows) {
  check.together("track_slots", slots, "track_lens", lens);
  check.optional("track_slots", slots, kIndices, {rows}, "N", Dense::all);
  check.optional("track_lens", lens, kIndices, {rows}, "N", Dense::all);
}

void check_state_tracking(const Checker& check, const TensorRef& state, const TensorRef& chunk_idx, const TensorRef& h,
                          int64_t rows, int64_t value_heads, int64_t v_dim, int64_t k_dim) {
  check.together("track_state", state, "track_chunk_idx", chunk_idx);
  check.optional("track_state", state, kFloat32, {rows, value_heads, v_dim, k_dim}, "N, HV, V, K", Dense::all);
  check.optional("track_chunk_idx", chunk_idx, kIndices, {rows}, "N", Dense::all);
  check.optional("h", h, kFloats, {kAny, value_heads, v_dim, k_dim}, "chunks, HV, V, K", Dense::all);
}

void check_segments(const Checker& check, const TensorRef& states, int64_t chunks, int64_t tokens, int64_t rows,
                    int64_t value_heads, int64_t v_dim, int64_t k_dim) {
  if (chunks < 0 || (chunks > 0) != states.present)
    check.fail(ErrorKind::value, "segment_chunks", "positive with segment_states, else 0", std::to_string(chunks));
  if (chunks == 0) return;
  check.tensor("segment_states", states, kFloat32,
               {2, tokens / (kChunkTokens * chunks) + rows, value_heads, v_dim, k_dim}, "2, segments, HV, V, K",
               Dense::all);
}

void check_drafts(const Checker& check, const char* name, const TensorRef& x, int64_t drafts) {
  if (drafts < 1 || drafts > kMaxDraftTokens)
    check.fail(ErrorKind::value, name, "of 1 to " + std::to_string(kMaxDraftTokens) + " draft tokens a row (n_draft)",
               x.to_string());
}

void check_tree(const Checker& check, const TensorRef& parents, bool disable_state_update, int64_t rows,
                int64_t drafts) {
  if (!parents) return;
  check.tensor("parent_tokens", parents, kIndices, {rows, drafts}, "N, T_d", Dense::all);
  if (!disable_state_update)
    check.fail(ErrorKind::value, "parent_tokens",
               "None unless disable_state_update is set (a tree has no one last token)", parents.to_string());
}

void check_intermediate_conv(const Checker& check, const TensorRef& window, const TensorRef& indices,
                             const TensorRef& parents, const TensorRef& pool, int64_t rows, int64_t drafts) {
  check.together("intermediate_conv_window", window, "intermediate_state_indices", indices);
  if (!window) return;
  check.windows("intermediate_conv_window", window, {pool.dtype}, {kAny, drafts, pool.shape[1], pool.shape[2]},
                "spec_slots, T_d, D, W-1", Dense::last);
  check_indices(check, "intermediate_state_indices", indices, rows);
  const bool overlapping = drafts > 1 && window.stride[1] < pool.shape[1] * pool.shape[2];
  if (parents && overlapping)
    check.fail(ErrorKind::value, "intermediate_conv_window", "free of overlap when parent_tokens is given",
               window.to_string());
}

void check_intermediate_ssm(const Checker& check, const TensorRef& states, const TensorRef& indices,
                            const TensorRef& pool, int64_t rows, int64_t drafts) {
  check.together("intermediate_ssm", states, "intermediate_state_indices", indices);
  if (!states) return;
  check.tensor("intermediate_ssm", states, {pool.dtype}, {kAny, drafts, pool.shape[1], pool.shape[2], pool.shape[3]},
               "spec_slots, T_d, HV, V, K", Dense::last_three);
  check_indices(check, "intermediate_state_indices", indices, rows);
}

void check_record(const Checker& check, const DraftRecord& record, int64_t rows, int64_t drafts, const TensorRef& pool,
                  int64_t channels, const GdnHeads& heads) {
  check.tensor("record.x", record.x, {pool.dtype}, {kAny, drafts, channels}, "rows, T_d, D", Dense::last);
  check.tensor("record.k", record.k, kFloat32, {kAny, drafts, heads.num_k_heads, heads.head_k_dim}, "rows, T_d, H, K",
               Dense::last_two);
  check.tensor("record.d", record.d, kFloat32, {kAny, drafts, heads.num_v_heads, heads.head_v_dim}, "rows, T_d, HV, V",
               Dense::last_two);
  check.tensor("record.g", record.g, kFloat32, {kAny, drafts, heads.num_v_heads}, "rows, T_d, HV", Dense::last);
  for (const auto& [name, part] : {std::pair{"record.x", &record.x}, std::pair{"record.k", &record.k},
                                   std::pair{"record.d", &record.d}, std::pair{"record.g", &record.g}})
    if (part->shape[0] < rows)
      check.fail(ErrorKind::value, name, "of at least " + std::to_string(rows) + " rows", part->to_string());
}

// One layer of a tensor whose first dimension counts `layers` of them.
TensorRef check_layers(const Checker& check, const char* name, const TensorRef& t, int64_t layers) {
  check.require_present(name, t);
  if (t.ndim < 1 || t.shape[0] != layers)
    check.fail(ErrorKind::value, name, "of " + std::to_string(layers) + " layers in its first dimension",
               t.to_string());
  TensorRef layer = t;
  layer.ndim = t.ndim - 1;
  for (int i = 0; i < layer.ndim; ++i) {
    layer.shape[i] = t.shape[i + 1];
    layer.stride[i] = t.stride[i + 1];
  }
  return layer;
}

// A_log and dt_bias, which every gated operator takes.
void check_gate_weights(const Checker& check, const TensorRef& A_log, const TensorRef& dt_bias, int64_t value_heads) {
  check.tensor("A_log", A_log, kFloats, {value_heads}, "HV", Dense::all);
  check.tensor("dt_bias", dt_bias, kFloats, {value_heads}, "HV", Dense::all);
}

void check_head_ratio(const Checker& check, const char* name, int64_t key_heads, int64_t value_heads) {
  if (key_heads < 1 || value_heads < 1 || value_heads % key_heads != 0)
    check.fail(ErrorKind::value, name, "a positive multiple of the number of key heads",
               std::to_string(value_heads) + " value heads and " + std::to_string(key_heads) + " key heads");
}

void check_heads(const Checker& check, const GdnHeads& heads) {
  if (heads.head_k_dim < 1) check.fail(ErrorKind::value, "head_k_dim", "positive", std::to_string(heads.head_k_dim));
  if (heads.head_v_dim < 1) check.fail(ErrorKind::value, "head_v_dim", "positive", std::to_string(heads.head_v_dim));
  check_head_ratio(check, "num_v_heads", heads.num_k_heads, heads.num_v_heads);
}

void check_layer_weights(const Checker& check, const GdnLayerWeights& weights, const GdnHeads& heads, DType act) {
  check_conv_weights(check, "conv_weight", weights.conv_weight, "conv_bias", weights.conv_bias, act, heads.conv_dim());
  check_gate_weights(check, weights.A_log, weights.dt_bias, heads.num_v_heads);
}

void check_ssm_pool(const Checker& check, const TensorRef& pool, int64_t value_heads, int64_t v_dim, int64_t k_dim) {
  check.tensor("ssm_pool", pool, kFloats, {kAny, value_heads, v_dim, k_dim}, "slots, HV, V, K", Dense::last_three);
  check.slot_pitch("ssm_pool", pool);
}

Specialization specialize(const char* op, const TensorRef& main) {
  Specialization spec;
  spec.op = op;
  spec.device = main.device;
  spec.act = main.dtype;
  return spec;
}

Specialization specialize(const char* op, const TensorRef& main, const GdnHeads& heads, const TensorRef& conv_weight,
                          const TensorRef& conv_pool) {
  Specialization spec = specialize(op, main);
  spec.conv = conv_pool.dtype;
  spec.head_k_dim = heads.head_k_dim;
  spec.head_v_dim = heads.head_v_dim;
  spec.ratio = heads.ratio();
  spec.conv_width = conv_weight.shape[1];
  return spec;
}

Specialization specialize(const char* op, const TensorRef& main, const GdnHeads& heads, const TensorRef& conv_weight,
                          const TensorRef& conv_pool, const TensorRef& ssm_pool) {
  Specialization spec = specialize(op, main, heads, conv_weight, conv_pool);
  spec.state = ssm_pool.dtype;
  return spec;
}

}  // namespace

Specialization validate(const CausalConv1dArgs& args) {
  const Checker check(args.kOp, "x", args.x);
  check.tensor("x", args.x, kFloats, {kAny, kAny}, "T, D", Dense::last);
  const int64_t tokens = args.x.shape[0], channels = args.x.shape[1];
  check_conv_weights(check, "weight", args.weight, "bias", args.bias, args.x.dtype, channels);
  const int64_t rows = check_query_start_loc(check, args.query_start_loc);
  check.together("conv_pool", args.conv_pool, "cache_indices", args.cache_indices);
  if (args.conv_pool) {
    check_conv_pool(check, args.conv_pool, channels, args.weight.shape[1] - 1);
    check_indices(check, "cache_indices", args.cache_indices, rows);
  }
  check.optional("has_initial_state", args.has_initial_state, kBool, {rows}, "N", Dense::all);
  if (args.has_initial_state && !args.conv_pool)
    check.fail(ErrorKind::value, "has_initial_state", "None without conv_pool", args.has_initial_state.to_string());
  check_conv_tracking(check, args.track_slots, args.track_lens, rows);
  if (args.track_slots && !args.conv_pool)
    check.fail(ErrorKind::value, "track_slots", "None without conv_pool", args.track_slots.to_string());
  check.tensor("out", args.out, {args.x.dtype}, {tokens, channels}, "T, D", Dense::all);
  Specialization spec = specialize(args.kOp, args.x);
  if (args.conv_pool) spec.conv = args.conv_pool.dtype;
  spec.conv_width = args.weight.shape[1];
  return spec;
}

Specialization validate(const CausalConv1dUpdateArgs& args) {
  const Checker check(args.kOp, "x", args.x);
  check.tensor("x", args.x, kFloats, {kAny, kAny, kAny}, "N, T_d, D", Dense::last);
  const int64_t rows = args.x.shape[0], drafts = args.x.shape[1], channels = args.x.shape[2];
  check_drafts(check, "x", args.x, drafts);
  check_conv_weights(check, "weight", args.weight, "bias", args.bias, args.x.dtype, channels);
  check_conv_pool(check, args.conv_pool, channels, args.weight.shape[1] - 1);
  check_indices(check, "cache_indices", args.cache_indices, rows);
  check_tree(check, args.parent_tokens, args.disable_state_update, rows, drafts);
  check_intermediate_conv(check, args.intermediate_conv_window, args.intermediate_state_indices, args.parent_tokens,
                          args.conv_pool, rows, drafts);
  check.tensor("out", args.out, {args.x.dtype}, {rows, drafts, channels}, "N, T_d, D", Dense::all);
  Specialization spec = specialize(args.kOp, args.x);
  spec.conv = args.conv_pool.dtype;
  spec.conv_width = args.weight.shape[1];
  spec.draft_tokens = drafts;
  return spec;
}

Specialization validate(const GdnGatingArgs& args) {
  const Checker check(args.kOp, "a", args.a);
  check.tensor("a", args.a, kFloats, {kAny, kAny}, "T, HV", Dense::last);
  const int64_t tokens = args.a.shape[0], value_heads = args.a.shape[1];
  check.tensor("b", args.b, kFloats, {tokens, value_heads}, "T, HV", Dense::last);
  check_gate_weights(check, args.A_log, args.dt_bias, value_heads);
  check.tensor("g", args.g, kFloat32, {tokens, value_heads}, "T, HV", Dense::all);
  check.tensor("beta", args.beta, kFloat32, {tokens, value_heads}, "T, HV", Dense::all);
  return specialize(args.kOp, args.a);
}

Specialization validate(const ChunkGatedDeltaRuleArgs& args) {
  const Checker check(args.kOp, "q", args.q);
  check.tensor("q", args.q, kFloats, {kAny, kAny, kAny}, "T, H, K", Dense::last);
  const int64_t tokens = args.q.shape[0], key_heads = args.q.shape[1], k_dim = args.q.shape[2];
  const DType act = args.q.dtype;
  check.tensor("k", args.k, {act}, {tokens, key_heads, k_dim}, "T, H, K", Dense::last);
  check.tensor("v", args.v, {act}, {tokens, kAny, kAny}, "T, HV, V", Dense::last);
  const int64_t value_heads = args.v.shape[1], v_dim = args.v.shape[2];
  check_head_ratio(check, "v", key_heads, value_heads);
  check.tensor("g", args.g, kFloat32, {tokens, value_heads}, "T, HV", Dense::last);
  check.tensor("beta", args.beta, kFloat32, {tokens, value_heads}, "T, HV", Dense::last);
  check_ssm_pool(check, args.ssm_pool, value_heads, v_dim, k_dim);
  const int64_t rows = check_query_start_loc(check, args.query_start_loc, "cu_seqlens");
  check_indices(check, "cache_indices", args.cache_indices, rows);
  check.optional("has_initial_state", args.has_initial_state, kBool, {rows}, "N", Dense::all);
  check_state_tracking(check, args.track_state, args.track_chunk_idx, args.h, rows, value_heads, v_dim, k_dim);
  check_segments(check, args.segment_states, args.segment_chunks, tokens, rows, value_heads, v_dim, k_dim);
  check.tensor("out", args.out, {act}, {tokens, value_heads, v_dim}, "T, HV, V", Dense::all);
  check.optional("workspace", args.workspace, kFloat32, {kAny}, "elements", Dense::all);
  Specialization spec = specialize(args.kOp, args.q);
  spec.state = args.ssm_pool.dtype;
  spec.head_k_dim = k_dim;
  spec.head_v_dim = v_dim;
  spec.ratio = value_heads / key_heads;
  return spec;
}

Specialization validate(const FusedSigmoidGatingDeltaRuleUpdateArgs& args) {
  const Checker check(args.kOp, "q", args.q);
  check.tensor("q", args.q, kFloats, {kAny, kAny, kAny, kAny}, "N, T_d, H, K", Dense::last);
  const int64_t rows = args.q.shape[0], drafts = args.q.shape[1], key_heads = args.q.shape[2], k_dim = args.q.shape[3];
  const DType act = args.q.dtype;
  check_drafts(check, "q", args.q, drafts);
  check.tensor("k", args.k, {act}, {rows, drafts, key_heads, k_dim}, "N, T_d, H, K", Dense::last);
  check.tensor("v", args.v, {act}, {rows, drafts, kAny, kAny}, "N, T_d, HV, V", Dense::last);
  const int64_t value_heads = args.v.shape[2], v_dim = args.v.shape[3];
  check_head_ratio(check, "v", key_heads, value_heads);
  check.tensor("a", args.a, kFloats, {rows, drafts, value_heads}, "N, T_d, HV", Dense::last);
  check.tensor("b", args.b, kFloats, {rows, drafts, value_heads}, "N, T_d, HV", Dense::last);
  check_gate_weights(check, args.A_log, args.dt_bias, value_heads);
  check_ssm_pool(check, args.ssm_pool, value_heads, v_dim, k_dim);
  check_indices(check, "cache_indices", args.cache_indices, rows);
  check_tree(check, args.parent_tokens, args.disable_state_update, rows, drafts);
  check_intermediate_ssm(check, args.intermediate_ssm, args.intermediate_state_indices, args.ssm_pool, rows, drafts);
  check.tensor("out", args.out, {act}, {rows, drafts, value_heads, v_dim}, "N, T_d, HV, V", Dense::all);
  Specialization spec = specialize(args.kOp, args.q);
  spec.state = args.ssm_pool.dtype;
  spec.head_k_dim = k_dim;
  spec.head_v_dim = v_dim;
  spec.ratio = value_heads / key_heads;
  spec.draft_tokens = drafts;
  return spec;
}

Specialization validate(const GdnFrontendArgs& args) {
  const Checker check(args.kOp, "mixed_qkv", args.mixed_qkv);
  check_heads(check, args.heads);
  const GdnHeads& heads = args.heads;
  check.tensor("mixed_qkv", args.mixed_qkv, kFloats, {kAny, heads.conv_dim()}, "T, D", Dense::last);
  const int64_t tokens = args.mixed_qkv.shape[0];
  const DType act = args.mixed_qkv.dtype;
  check.tensor("a", args.a, kFloats, {tokens, heads.num_v_heads}, "T, HV", Dense::last);
  check.tensor("b", args.b, kFloats, {tokens, heads.num_v_heads}, "T, HV", Dense::last);
  check_layer_weights(check, args.weights, heads, act);
  check_conv_pool(check, args.conv_pool, heads.conv_dim(), args.weights.conv_weight.shape[1] - 1);
  const int64_t rows = check_query_start_loc(check, args.query_start_loc);
  check_indices(check, "cache_indices", args.cache_indices, rows);
  check.optional("has_initial_state", args.has_initial_state, kBool, {rows}, "N", Dense::all);
  check_conv_tracking(check, args.track_slots, args.track_lens, rows);
  check.tensor("out", args.qkv, {act}, {tokens, heads.conv_dim()}, "T, D", Dense::all);
  return specialize(args.kOp, args.mixed_qkv, heads, args.weights.conv_weight, args.conv_pool);
}

Specialization validate(const GdnPrefillArgs& args) {
  const Checker check(args.kOp, "mixed_qkv", args.mixed_qkv);
  check_heads(check, args.heads);
  const GdnHeads& heads = args.heads;
  check.tensor("mixed_qkv", args.mixed_qkv, kFloats, {kAny, heads.conv_dim()}, "T, D", Dense::last);
  const int64_t tokens = args.mixed_qkv.shape[0];
  const DType act = args.mixed_qkv.dtype;
  check.tensor("a", args.a, kFloats, {tokens, heads.num_v_heads}, "T, HV", Dense::last);
  check.tensor("b", args.b, kFloats, {tokens, heads.num_v_heads}, "T, HV", Dense::last);
  check_layer_weights(check, args.weights, heads, act);
  check_conv_pool(check, args.conv_pool, heads.conv_dim(), args.weights.conv_weight.shape[1] - 1);
  check_ssm_pool(check, args.ssm_pool, heads.num_v_heads, heads.head_v_dim, heads.head_k_dim);
  const int64_t rows = check_query_start_loc(check, args.query_start_loc);
  check_indices(check, "cache_indices", args.cache_indices, rows);
  check.optional("has_initial_state", args.has_initial_state, kBool, {rows}, "N", Dense::all);
  check_conv_tracking(check, args.track_slots, args.track_lens, rows);
  check_state_tracking(check, args.track_state, args.track_chunk_idx, args.h, rows, heads.num_v_heads, heads.head_v_dim,
                       heads.head_k_dim);
  check_segments(check, args.segment_states, args.segment_chunks, tokens, rows, heads.num_v_heads, heads.head_v_dim,
                 heads.head_k_dim);
  check.tensor("out", args.out, {act}, {tokens, heads.num_v_heads, heads.head_v_dim}, "T, HV, V", Dense::all);
  return specialize(args.kOp, args.mixed_qkv, heads, args.weights.conv_weight, args.conv_pool, args.ssm_pool);
}

Specialization validate(const GdnDecodeArgs& args) {
  const bool raw = args.layout != ProjectionLayout::separate;
  const TensorRef& x = args.projection();
  const char* const x_name = raw ? "qkvz" : "mixed_qkv";
  const Checker check(args.kOp, x_name, x);
  check_heads(check, args.heads);
  const GdnHeads& heads = args.heads;
  const int64_t value_channels = heads.num_v_heads * heads.head_v_dim;
  check.tensor(x_name, x, kFloats, {kAny, heads.conv_dim() + (raw ? value_channels : 0)}, raw ? "N, D + HV*V" : "N, D",
               Dense::last);
  const int64_t rows = x.shape[0];
  if (raw) {
    check.tensor("ba", args.ba, kFloats, {rows, 2 * heads.num_v_heads}, "N, 2*HV", Dense::last);
    for (const auto& [name, other] : {std::pair{"mixed_qkv", &args.mixed_qkv}, std::pair{"a", &args.a},
                                      std::pair{"b", &args.b}, std::pair{"z", &args.z}})
      check.absent(name, *other, "with qkvz");
  } else {
    check.tensor("a", args.a, kFloats, {rows, heads.num_v_heads}, "N, HV", Dense::last);
    check.tensor("b", args.b, kFloats, {rows, heads.num_v_heads}, "N, HV", Dense::last);
    check.absent("ba", args.ba, "without qkvz");
    check.together("z", args.z, "norm_weight", args.norm_weight);
    check.optional("z", args.z, {x.dtype}, {rows, heads.num_v_heads, heads.head_v_dim}, "N, HV, V", Dense::last);
  }
  check.optional("norm_weight", args.norm_weight, kFloats, {heads.head_v_dim}, "V", Dense::all);
  check_layer_weights(check, args.weights, heads, x.dtype);
  check_conv_pool(check, args.conv_pool, heads.conv_dim(), args.weights.conv_weight.shape[1] - 1);
  check_ssm_pool(check, args.ssm_pool, heads.num_v_heads, heads.head_v_dim, heads.head_k_dim);
  check_indices(check, "cache_indices", args.cache_indices, rows);
  check.optional("track_slots", args.track_slots, kIndices, {rows}, "N", Dense::all);
  check.tensor("out", args.out, {x.dtype}, {rows, heads.num_v_heads, heads.head_v_dim}, "N, HV, V", Dense::all);
  Specialization spec = specialize(args.kOp, x, heads, args.weights.conv_weight, args.conv_pool, args.ssm_pool);
  spec.decode_extras = raw || args.norm_weight || args.track_slots;
  return spec;
}

Specialization validate(const GdnVerifyArgs& args) {
  const Checker check(args.kOp, "mixed_qkv", args.mixed_qkv);
  check_heads(check, args.heads);
  const GdnHeads& heads = args.heads;
  check.tensor("mixed_qkv", args.mixed_qkv, kFloats, {kAny, kAny, heads.conv_dim()}, "N, T_d, D", Dense::last);
  const int64_t rows = args.mixed_qkv.shape[0], drafts = args.mixed_qkv.shape[1];
  const DType act = args.mixed_qkv.dtype;
  check_drafts(check, "mixed_qkv", args.mixed_qkv, drafts);
  check.tensor("a", args.a, kFloats, {rows, drafts, heads.num_v_heads}, "N, T_d, HV", Dense::last);
  check.tensor("b", args.b, kFloats, {rows, drafts, heads.num_v_heads}, "N, T_d, HV", Dense::last);
  check_layer_weights(check, args.weights, heads, act);
  check_conv_pool(check, args.conv_pool, heads.conv_dim(), args.weights.conv_weight.shape[1] - 1);
  check_ssm_pool(check, args.ssm_pool, heads.num_v_heads, heads.head_v_dim, heads.head_k_dim);
  check_indices(check, "cache_indices", args.cache_indices, rows);
  check_tree(check, args.parent_tokens, true, rows, drafts);
  if (args.record) {
    for (const auto& [name, tensor] : {std::pair{"intermediate_ssm", &args.intermediate_ssm},
                                       std::pair{"intermediate_conv_window", &args.intermediate_conv_window},
                                       std::pair{"intermediate_state_indices", &args.intermediate_state_indices}})
      if (*tensor) check.fail(ErrorKind::value, name, "None with a record", tensor->to_string());
    check_record(check, args.record, rows, drafts, args.conv_pool, heads.conv_dim(), heads);
  } else {
    check.require_present("intermediate_ssm", args.intermediate_ssm);
    check.require_present("intermediate_conv_window", args.intermediate_conv_window);
    check_intermediate_ssm(check, args.intermediate_ssm, args.intermediate_state_indices, args.ssm_pool, rows, drafts);
    check_intermediate_conv(check, args.intermediate_conv_window, args.intermediate_state_indices, args.parent_tokens,
                            args.conv_pool, rows, drafts);
  }
  check.tensor("out", args.out, {act}, {rows, drafts, heads.num_v_heads, heads.head_v_dim}, "N, T_d, HV, V",
               Dense::all);
  Specialization spec =
      specialize(args.kOp, args.mixed_qkv, heads, args.weights.conv_weight, args.conv_pool, args.ssm_pool);
  spec.draft_tokens = drafts;
  spec.record = static_cast<bool>(args.record);
  return spec;
}

Specialization validate(const GdnCommitArgs& args) {
  const Checker check(args.kOp, "ssm_pool", args.ssm_pool);
  check_ssm_pool(check, args.ssm_pool, kAny, kAny, kAny);
  check_conv_pool(check, args.conv_pool, kAny, kAny);
  check.tensor("cache_indices", args.cache_indices, kIndices, {kAny}, "N", Dense::all);
  const int64_t rows = args.cache_indices.shape[0];
  check.require_present("intermediate_ssm", args.intermediate_ssm);
  check.require_present("intermediate_conv_window", args.intermediate_conv_window);
  if (args.intermediate_ssm.ndim != 5)
    check.fail(ErrorKind::value, "intermediate_ssm", "[spec_slots, T_d, HV, V, K]", args.intermediate_ssm.to_string());
  const int64_t drafts = args.intermediate_ssm.shape[1];
  check_drafts(check, "intermediate_ssm", args.intermediate_ssm, drafts);
  check_intermediate_ssm(check, args.intermediate_ssm, args.intermediate_state_indices, args.ssm_pool, rows, drafts);
  check_intermediate_conv(check, args.intermediate_conv_window, args.intermediate_state_indices, TensorRef{},
                          args.conv_pool, rows, drafts);
  check_indices(check, "last_steps", args.last_steps, rows);
  Specialization spec;
  spec.op = args.kOp;
  spec.device = args.ssm_pool.device;
  spec.state = args.ssm_pool.dtype;
  spec.conv = args.conv_pool.dtype;
  spec.draft_tokens = drafts;
  return spec;
}

Specialization validate(const GdnFoldArgs& args) {
  const Checker check(args.kOp, "ssm_pool", args.ssm_pool);
  check.tensor("ssm_pool", args.ssm_pool, kFloats, {kAny, kAny, kAny, kAny, kAny}, "layers, slots, HV, V, K",
               Dense::last_three);
  check.slot_pitch("ssm_pool", args.ssm_pool, 1);
  const int64_t layers = args.ssm_pool.shape[0];
  check.windows("conv_pool", args.conv_pool, kFloats, {layers, kAny, kAny, kAny}, "layers, slots, D, W-1",
                Dense::last_two);
  check.slot_pitch("conv_pool", args.conv_pool, 1);
  check.tensor("cache_indices", args.cache_indices, kIndices, {kAny}, "N", Dense::all);
  const int64_t rows = args.cache_indices.shape[0], channels = args.conv_pool.shape[2];
  const DraftRecord record{
      check_layers(check, "record.x", args.record.x, layers), check_layers(check, "record.k", args.record.k, layers),
      check_layers(check, "record.d", args.record.d, layers), check_layers(check, "record.g", args.record.g, layers)};
  if (record.k.ndim != 4)
    check.fail(ErrorKind::value, "record.k", "[layers, rows, T_d, H, K]", args.record.k.to_string());
  const int64_t drafts = record.k.shape[1];
  check_drafts(check, "record.k", args.record.k, drafts);
  const GdnHeads heads{record.k.shape[2], args.ssm_pool.shape[2], args.ssm_pool.shape[4], args.ssm_pool.shape[3]};
  check_head_ratio(check, "record.k", heads.num_k_heads, heads.num_v_heads);
  check_record(check, record, rows, drafts, args.conv_pool, channels, heads);
  check_indices(check, "last_steps", args.last_steps, rows);
  check_tree(check, args.parent_tokens, true, rows, drafts);
  check.together("track_slots", args.track_slots, "track_steps", args.track_steps);
  check.optional("track_slots", args.track_slots, kIndices, {rows}, "N", Dense::all);
  check.optional("track_steps", args.track_steps, kIndices, {rows}, "N", Dense::all);
  Specialization spec;
  spec.op = args.kOp;
  spec.device = args.ssm_pool.device;
  spec.state = args.ssm_pool.dtype;
  spec.conv = args.conv_pool.dtype;
  spec.head_k_dim = heads.head_k_dim;
  spec.head_v_dim = heads.head_v_dim;
  spec.ratio = heads.ratio();
  spec.conv_width = args.conv_pool.shape[3] + 1;
  spec.draft_tokens = drafts;
  return spec;
}

}  // namespace gdn
