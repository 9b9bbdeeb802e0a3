// Gates, l2norm and delta rule for one or a few tokens a row: S = e^g S; d = beta (v - S k); S = S + d k^T; o = S q.
//
// Tiles: one task takes one row and key head with its value heads; S is walked in blocks of 8 rows of K floats (4 KiB),
// and all draft tokens of the row pass over a block before the next one, so drafts after the first find it in L1.
// Memory: one pass. S k and S q are both reduced from the old state, o = e^g S q + (k q) d, so every state byte is read
// once and written once (2 x 64 KiB a value head at K = V = 128 in float32), which bounds the time.
// Accuracy: float32 inside, each stored state rounded once to the dtype of the pool; the next draft token continues
// from the rounded state, so T_d tokens in one call equal T_d calls bit for bit. With a record nothing but the record
// is stored, and states between tokens stay float32. Synchronisation: none, tasks own their heads' states and outputs.
#include "cpu/fused_sigmoid_gating_delta_rule_update.hpp"

#include "cpu/gdn_gating.hpp"
#include "cpu/isa_kernels.hpp"

namespace gdn::cpu::GDN_CPU_ISA {
namespace {

constexpr int kGroup = 4;
constexpr int64_t kBlockRows = 8;

template <class Element, int L>
void step_rows(const void* src, void* dst, int64_t rows, int64_t K, const DeltaToken& token, const float* v, float* o,
               float* d_out) {
  const auto* from = static_cast<const typename Element::Storage*>(src);
  auto* to = static_cast<typename Element::Storage*>(dst);
  for (int64_t row = 0; row < rows; row += kGroup, from += kGroup * K, to += kGroup * K) {
    VecF<L> s_k[kGroup] = {}, s_q[kGroup] = {};
    for (int64_t i = 0; i < K; i += L) {
      const VecF<L> k = load<L>(token.k + i), q = load<L>(token.q + i);
      for (int r = 0; r < kGroup; ++r) {
        const VecF<L> s = Element::template load<L>(from + r * K + i);
        s_k[r] = fma(s, k, s_k[r]);
        s_q[r] = fma(s, q, s_q[r]);
      }
    }
    VecF<L> d[kGroup];
    for (int r = 0; r < kGroup; ++r) {
      const float written = token.beta * (v[row + r] - token.decay * sum(s_k[r]));
      o[row + r] = token.decay * sum(s_q[r]) + token.k_dot_q * written;
      d_out[row + r] = written;
      d[r] = splat<L>(written);
    }
    for (int64_t i = 0; i < K; i += L) {
      const VecF<L> k = load<L>(token.k + i);
      for (int r = 0; r < kGroup; ++r) {
        const VecF<L> s = Element::template load<L>(from + r * K + i);
        Element::template store<L>(to + r * K + i, fma(d[r], k, token.decay * s));
      }
    }
  }
}

struct Heads {
  explicit Heads(const FusedSigmoidGatingDeltaRuleUpdateArgs& args)
      : tokens(args.q.shape[1]),
        H(args.q.shape[2]),
        HV(args.v.shape[2]),
        K(args.q.shape[3]),
        V(args.v.shape[3]),
        K_padded(round_up(K, kLanes)),
        V_padded(round_up(V, kLanes)) {}

  int64_t tokens, H, HV, K, V, K_padded, V_padded;
};

GDN_INLINE int64_t token_offset(const TensorRef& t, int64_t n, int64_t token, int64_t head) {
  return n * t.stride[0] + token * t.stride[1] + head * t.stride[2];
}

// Where the state of each draft token of one value head of one row lives.
class DraftStates {
 public:
  DraftStates(const FusedSigmoidGatingDeltaRuleUpdateArgs& args, int64_t n, int64_t slot, bool rounded, void* scratch)
      : args_(args),
        n_(n),
        slot_(slot),
        stored_row_(args.intermediate_ssm ? slot_at(args.intermediate_state_indices, n, args.intermediate_ssm.shape[0])
                                          : -1),
        dtype_(rounded ? args.ssm_pool.dtype : DType::f32),
        element_(element_size(dtype_)),
        scratch_(static_cast<char*>(scratch)) {}

  // `state_offset` counts elements from the start of the [HV, V, K] state; blocks are kBlockRows * K elements.
  char* committed(int64_t state_offset) const {
    return element_at(args_.ssm_pool, slot_ * args_.ssm_pool.stride[0] + state_offset);
  }
  char* after(int64_t token, int64_t state_offset, int64_t block_elements) const {
    if (stored_row_ >= 0) {
      const TensorRef& stored = args_.intermediate_ssm;
      return element_at(stored, stored_row_ * stored.stride[0] + token * stored.stride[1] + state_offset);
    }
    if (!args_.disable_state_update) return committed(state_offset);
    return scratch_ + token * block_elements * element_;
  }
  char* before(int64_t token, int64_t state_offset, int64_t block_elements) const {
    const int64_t parent = parent_of(token);
    if (parent >= 0) return after(parent, state_offset, block_elements);
    if (dtype_ == args_.ssm_pool.dtype) return committed(state_offset);
    char* const widened = after(token, state_offset, block_elements);
    load_floats(args_.ssm_pool.dtype, committed(state_offset), block_elements, reinterpret_cast<float*>(widened),
                block_elements);
    return widened;
  }
  DType dtype() const { return dtype_; }
  bool commit_by_copy() const { return stored_row_ >= 0 && !args_.disable_state_update; }

 private:
  int64_t parent_of(int64_t token) const {
    if (!args_.parent_tokens) return token - 1;
    const int64_t parent = index_at(args_.parent_tokens, n_, token);
    return parent >= 0 && parent < token ? parent : -1;
  }

  const FusedSigmoidGatingDeltaRuleUpdateArgs& args_;
  int64_t n_, slot_, stored_row_;
  DType dtype_;
  int64_t element_;
  char* scratch_;
};

void update_value_head(const FusedSigmoidGatingDeltaRuleUpdateArgs& args, const Heads& heads, const DraftStates& states,
                       int64_t n, int64_t head, DeltaToken* tokens, float* v, float* o, float* d,
                       const DraftRecord* record) {
  const F A_log = splat(float_at(args.A_log, head * args.A_log.stride[0]));
  const F dt_bias = splat(float_at(args.dt_bias, head * args.dt_bias.stride[0]));
  for (int64_t t = 0; t < heads.tokens; ++t) {
    const F a = splat(float_at(args.a, token_offset(args.a, n, t, head)));
    const F g = log_gate(A_log, a, dt_bias);
    if (record != nullptr) record->g.as<float>()[n * record->g.stride[0] + t * record->g.stride[1] + head] = g[0];
    tokens[t].decay = exp<kLanes>(g)[0];
    tokens[t].beta = sigmoid<kLanes>(splat(float_at(args.b, token_offset(args.b, n, t, head))))[0];
    load_floats(args.v.dtype, element_at(args.v, token_offset(args.v, n, t, head)), heads.V, v + t * heads.V_padded,
                heads.V_padded);
  }
  const int64_t block_elements = kBlockRows * heads.K;
  for (int64_t row = 0; row < heads.V; row += kBlockRows) {
    const int64_t offset = (head * heads.V + row) * heads.K;
    for (int64_t t = 0; t < heads.tokens; ++t) {
      const int64_t at = t * heads.V_padded + row;
      delta_rule_step(states.dtype(), states.before(t, offset, block_elements), states.after(t, offset, block_elements),
                      kBlockRows, heads.K, tokens[t], v + at, o + at, d + at);
    }
    if (states.commit_by_copy()) {
      copy_bytes(states.committed(offset), states.after(heads.tokens - 1, offset, block_elements),
                 block_elements * element_size(args.ssm_pool.dtype));
    }
  }
  for (int64_t t = 0; t < heads.tokens; ++t) {
    store_floats(args.out.dtype, element_at(args.out, token_offset(args.out, n, t, head)), o + t * heads.V_padded,
                 heads.V);
    if (record != nullptr)
      copy_bytes(element_at(record->d, token_offset(record->d, n, t, head)), d + t * heads.V_padded, heads.V * 4);
  }
}

}  // namespace

void delta_rule_step(DType dtype, const void* src, void* dst, int64_t rows, int64_t K, const DeltaToken& token,
                     const float* v, float* o, float* d) {
  with_element(dtype, [&](auto element) {
    using E = decltype(element);
    if (K % kLanes == 0) {
      step_rows<E, kLanes>(src, dst, rows, K, token, v, o, d);
    } else {
      step_rows<E, kTileLanes>(src, dst, rows, K, token, v, o, d);
    }
  });
}

void delta_rule_update_heads(const FusedSigmoidGatingDeltaRuleUpdateArgs& args, int64_t row, int64_t key_head,
                             const DraftRecord* record) {
  const Heads heads(args);
  const int64_t ratio = heads.HV / heads.H, first_head = key_head * ratio;
  const int64_t slot = slot_at(args.cache_indices, row, args.ssm_pool.shape[0]);
  if (slot < 0) {
    for (int64_t t = 0; t < heads.tokens; ++t)
      for (int64_t head = first_head; head < first_head + ratio; ++head)
        fill_zero(element_at(args.out, token_offset(args.out, row, t, head)), heads.V * element_size(args.out.dtype));
    return;
  }
  ScratchCutter sizes(nullptr);
  const auto cut_all = [&](ScratchCutter& cut, auto use) {
    float* const k = cut.floats(heads.tokens * heads.K_padded);
    float* const q = cut.floats(heads.tokens * heads.K_padded);
    float* const v = cut.floats(heads.tokens * heads.V_padded);
    float* const o = cut.floats(heads.tokens * heads.V_padded);
    float* const d = cut.floats(heads.tokens * heads.V_padded);
    void* const tokens = cut.bytes(heads.tokens * static_cast<int64_t>(sizeof(DeltaToken)));
    void* const states = cut.bytes(heads.tokens * kBlockRows * heads.K * 4);
    use(k, q, v, o, d, static_cast<DeltaToken*>(tokens), states);
  };
  cut_all(sizes, [](float*, float*, float*, float*, float*, DeltaToken*, void*) {});
  ScratchCutter cut(thread_scratch(static_cast<size_t>(sizes.used())));
  cut_all(cut, [&](float* k, float* q, float* v, float* o, float* d, DeltaToken* tokens, void* scratch_states) {
    for (int64_t t = 0; t < heads.tokens; ++t) {
      float* const k_row = k + t * heads.K_padded;
      float* const q_row = q + t * heads.K_padded;
      load_head_row(args.k, token_offset(args.k, row, t, key_head), heads.K, args.qk_l2norm, 1.0f, k_row,
                    heads.K_padded);
      load_head_row(args.q, token_offset(args.q, row, t, key_head), heads.K, args.qk_l2norm, args.scale, q_row,
                    heads.K_padded);
      tokens[t].k = k_row;
      tokens[t].q = q_row;
      tokens[t].k_dot_q = dot(k_row, q_row, heads.K_padded);
      if (record != nullptr)
        copy_bytes(element_at(record->k, token_offset(record->k, row, t, key_head)), k_row, heads.K * 4);
    }
    const DraftStates states(args, row, slot, record == nullptr, scratch_states);
    for (int64_t head = first_head; head < first_head + ratio; ++head)
      update_value_head(args, heads, states, row, head, tokens, v, o, d, record);
  });
}

void fused_sigmoid_gating_delta_rule_update(const FusedSigmoidGatingDeltaRuleUpdateArgs& args) {
  const int64_t key_heads = args.q.shape[2];
  parallel_for(args.q.shape[0] * key_heads,
               [&](int64_t task) { delta_rule_update_heads(args, task / key_heads, task % key_heads); });
}

}  // namespace gdn::cpu::GDN_CPU_ISA
