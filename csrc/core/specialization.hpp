#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/tensor_ref.hpp"

namespace gdn {

// What a compiled kernel depends on. Fields that an operator does not have stay empty. The text form
// "gdn_decode/cpu act=bfloat16 state=float32 conv=bfloat16 k=128 v=128 ratio=2" is the same in errors, logs,
// benchmarks and manifests.
struct Specialization {
  std::string op;
  Device device = Device::cpu;
  std::optional<DType> act;
  std::optional<DType> state;
  std::optional<DType> conv;
  std::optional<int64_t> head_k_dim;
  std::optional<int64_t> head_v_dim;
  std::optional<int64_t> ratio;
  std::optional<int64_t> conv_width;
  std::optional<int64_t> draft_tokens;
  std::optional<bool> record;  // of draft tokens, instead of the states after each
  bool decode_extras = false;  // gdn_decode with raw projections, a norm of the output or track slots

  std::string to_string() const;
};

// The set of specializations one kernel serves. An empty list accepts everything.
struct Support {
  std::vector<DType> act;
  std::vector<DType> state;
  std::vector<DType> conv;
  std::vector<int64_t> head_k_dims;
  std::vector<int64_t> head_v_dims;
  std::vector<int64_t> ratios;
  std::vector<int64_t> conv_widths;
  int64_t head_dim_multiple = 1;
  int64_t max_head_dim = 0;      // 0 = no limit
  int64_t max_draft_tokens = 0;  // 0 = no limit
  std::optional<bool> record;    // empty = with and without
  bool decode_extras = false;

  // Empty when served; else the first field that is not, with what was asked and what is there.
  std::string refuse(const Specialization& wanted) const;
  std::string to_string() const;
};

}  // namespace gdn
