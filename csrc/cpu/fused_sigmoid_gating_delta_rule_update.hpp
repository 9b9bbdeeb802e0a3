#pragma once

#include "cpu/rows.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

// One token of one value head.
struct DeltaToken {
  const float* k = nullptr;  // zero beyond K, up to a multiple of kLanes
  const float* q = nullptr;  // the same; scaled
  float k_dot_q = 0;
  float decay = 0;  // exp(g)
  float beta = 0;
};

// S' = decay S + d k^T, d = beta (v - decay S k), o = S' q for `rows` rows of S (a multiple of 4). Reads S from src and
// stores S', rounded to `dtype`, to dst, which may be src; stores o, and d, which may be v.
void delta_rule_step(DType dtype, const void* src, void* dst, int64_t rows, int64_t K, const DeltaToken& token,
                     const float* v, float* o, float* d);

// fused_sigmoid_gating_delta_rule_update for the value heads of one key head of one row. With a record, which goes with
// disable_state_update, the states between tokens are not rounded, and k, d and g of the record are filled.
void delta_rule_update_heads(const FusedSigmoidGatingDeltaRuleUpdateArgs& args, int64_t row, int64_t key_head,
                             const DraftRecord* record = nullptr);

}  // namespace gdn::cpu::GDN_CPU_ISA
