#include <utility>

#include "core/registry.hpp"
#include "cuda/sm90_causal_conv1d_update.hpp"
#include "cuda/sm90_chunk_gated_delta_rule.hpp"
#include "cuda/sm90_delta_update.hpp"
#include "cuda/sm90_gdn_commit.hpp"
#include "cuda/sm90_gdn_decode.hpp"
#include "cuda/sm90_gdn_fold.hpp"
#include "cuda/sm90_gdn_frontend.hpp"
#include "cuda/sm90_gdn_gating.hpp"
#include "cuda/sm90_gdn_prefill.hpp"
#include "cuda/sm90_gdn_verify.hpp"

namespace gdn {
namespace {

Support heads_of_128() {
  Support support;
  support.head_k_dims = {128};
  support.head_v_dims = {128};
  support.ratios = {1, 2, 3, 4};
  return support;
}

Support decode_of_128() {
  Support support = heads_of_128();
  support.decode_extras = true;
  return support;
}

Support tensor_core_heads() {
  Support support = heads_of_128();
  support.act = {DType::bf16, DType::f16};
  return support;
}

Support heads_up_to_128() {
  Support support;
  support.head_dim_multiple = 8;
  support.max_head_dim = 128;
  return support;
}

Support record_of_128() {
  Support support = heads_of_128();
  support.record = true;
  return support;
}

Support stored_states() {
  Support support = heads_up_to_128();
  support.record = false;
  return support;
}

template <class Args>
void add(const char* name, Support support, void (*launch)(const Args&, Stream)) {
  KernelRegistry<Args>::instance().add({name, Device::cuda, std::move(support), launch});
}

}  // namespace

void register_sm90_kernels() {
  add("sm90_causal_conv1d", {}, sm90::causal_conv1d);
  add("sm90_causal_conv1d_update", {}, sm90::causal_conv1d_update);
  add("sm90_gdn_gating", {}, sm90::gdn_gating);
  add("sm90_gdn_frontend", heads_up_to_128(), sm90::gdn_frontend);
  add("sm90_chunk_gated_delta_rule", tensor_core_heads(), sm90::chunk_gated_delta_rule);
  add("sm90_gdn_prefill", tensor_core_heads(), sm90::gdn_prefill);
  add("sm90_delta_update", heads_up_to_128(), sm90::fused_sigmoid_gating_delta_rule_update);
  add("sm90_gdn_decode", decode_of_128(), sm90::gdn_decode);
  add("sm90_gdn_verify", record_of_128(), sm90::gdn_verify);
  add("sm90_gdn_verify_stored", stored_states(), sm90::gdn_verify_stored);
  add("sm90_gdn_commit", {}, sm90::gdn_commit);
  add("sm90_gdn_fold", heads_of_128(), sm90::gdn_fold);
}

}  // namespace gdn
