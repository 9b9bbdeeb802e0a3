// The operators as the Python binding calls them, on tensors that are said to be on an NPU: validation, registry,
// wrapper, committed device source. Called through ctypes.

#include <algorithm>
#include <cstring>
#include <string>

#include "ascend/chunk_stages.hpp"
#include "ascend/device.hpp"
#include "core/dispatch.hpp"

namespace {

int32_t simulated_cores = 2;

thread_local std::string error_text;

template <class Args>
void dispatch(const Args& args, int64_t work) {
  gdn::dispatch(args, work, [&](const gdn::Kernel<Args>& kernel) { kernel.launch(args, gdn::Stream{}); });
}

// Empty, or "kind\nop\nargument\nmessage".
template <class Function>
const char* guarded(Function&& function) {
  error_text.clear();
  try {
    function();
  } catch (const gdn::NoKernelError& error) {
    error_text = "no_kernel\n" + error.op + "\n" + error.argument + "\n" + error.what();
  } catch (const gdn::ArgumentError& error) {
    const char* kind = error.kind == gdn::ErrorKind::type    ? "type"
                       : error.kind == gdn::ErrorKind::value ? "value"
                                                             : "unsupported";
    error_text = std::string(kind) + "\n" + error.op + "\n" + error.argument + "\n" + error.what();
  } catch (const std::exception& error) {
    error_text = std::string("fault\n\n\n") + error.what();
  }
  return error_text.c_str();
}

// num_k_heads, num_v_heads, head_k_dim, head_v_dim
gdn::GdnHeads heads_of(const double* numbers) {
  const auto number = [&](int i) { return static_cast<int64_t>(numbers[i]); };
  return {number(0), number(1), number(2), number(3)};
}

}  // namespace

namespace gdn::ascend {

int32_t cube_cores(int32_t) { return simulated_cores; }

}  // namespace gdn::ascend

extern "C" {

void simulated_set_cores(int32_t cores) { simulated_cores = cores; }

void simulated_register_kernels() { gdn::register_ascend_kernels(); }

void simulated_set_checks_only(bool value) { gdn::checks_only = value; }

const char* simulated_causal_conv1d(const gdn::TensorRef* tensors, const double* numbers) {
  gdn::CausalConv1dArgs args;
  gdn::TensorRef* const fields[] = {
      &args.x,
      &args.weight,
      &args.bias,
      &args.conv_pool,
      &args.query_start_loc,
      &args.cache_indices,
      &args.has_initial_state,
      &args.track_slots,
      &args.track_lens,
      &args.out,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  args.silu = numbers[0] != 0;
  return guarded([&] { dispatch(args, args.x.numel()); });
}

const char* simulated_causal_conv1d_update(const gdn::TensorRef* tensors, const double* numbers) {
  gdn::CausalConv1dUpdateArgs args;
  gdn::TensorRef* const fields[] = {
      &args.x,
      &args.weight,
      &args.bias,
      &args.conv_pool,
      &args.cache_indices,
      &args.parent_tokens,
      &args.intermediate_conv_window,
      &args.intermediate_state_indices,
      &args.out,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  args.silu = numbers[0] != 0;
  args.disable_state_update = numbers[1] != 0;
  return guarded([&] { dispatch(args, args.x.numel()); });
}

const char* simulated_gdn_gating(const gdn::TensorRef* tensors, const double*) {
  gdn::GdnGatingArgs args;
  gdn::TensorRef* const fields[] = {&args.A_log, &args.a, &args.b, &args.dt_bias, &args.g, &args.beta};
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  return guarded([&] { dispatch(args, args.a.numel()); });
}

// The arguments of chunk_gated_delta_rule but those it refuses, then the tensors between the stages. One stage, or all
// up to it in one launch.
const char* simulated_chunk_stage(const gdn::TensorRef* tensors, const double* numbers) {
  gdn::ChunkGatedDeltaRuleArgs args;
  gdn::ascend::ChunkIntermediates between;
  gdn::TensorRef* const fields[] = {
      &args.q,
      &args.k,
      &args.v,
      &args.g,
      &args.beta,
      &args.ssm_pool,
      &args.query_start_loc,
      &args.cache_indices,
      &args.has_initial_state,
      &args.out,
      &between.gates,
      &between.head_gates,
      &between.head_beta,
      &between.lower,
      &between.write,
      &between.erase,
      &between.w,
      &between.h,
      &between.v_new,
      &between.workspace,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  args.scale = static_cast<float>(numbers[1]);
  args.update_state = numbers[2] != 0;
  using namespace gdn::ascend;
  constexpr void (*kStages[])(const gdn::ChunkGatedDeltaRuleArgs&, const ChunkIntermediates&, gdn::Stream) = {
      chunk_cumsum, chunk_transpose, scaled_dot_kkt, solve_tril, wy_fast, chunk_h, chunk_o,
  };
  return guarded([&] {
    gdn::validate(args);
    if (numbers[3] != 0)
      run(chunk_pipeline(args, between, static_cast<int>(numbers[0]) + 1), gdn::Stream{});
    else
      kStages[static_cast<int>(numbers[0])](args, between, gdn::Stream{});
  });
}

int64_t simulated_chunk_workspace_elements() { return gdn::ascend::chunk_workspace_elements(0); }

const char* simulated_chunk_gated_delta_rule(const gdn::TensorRef* tensors, const double* numbers) {
  gdn::ChunkGatedDeltaRuleArgs args;
  gdn::TensorRef* const fields[] = {
      &args.q,
      &args.k,
      &args.v,
      &args.g,
      &args.beta,
      &args.ssm_pool,
      &args.query_start_loc,
      &args.cache_indices,
      &args.has_initial_state,
      &args.track_state,
      &args.track_chunk_idx,
      &args.h,
      &args.out,
      &args.workspace,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  args.scale = static_cast<float>(numbers[0]);
  args.qk_l2norm = numbers[1] != 0;
  args.update_state = numbers[2] != 0;
  return guarded([&] { dispatch(args, args.v.numel()); });
}

const char* simulated_fused_sigmoid_gating_delta_rule_update(const gdn::TensorRef* tensors, const double* numbers) {
  gdn::FusedSigmoidGatingDeltaRuleUpdateArgs args;
  gdn::TensorRef* const fields[] = {
      &args.q,
      &args.k,
      &args.v,
      &args.a,
      &args.b,
      &args.A_log,
      &args.dt_bias,
      &args.ssm_pool,
      &args.cache_indices,
      &args.parent_tokens,
      &args.intermediate_ssm,
      &args.intermediate_state_indices,
      &args.out,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  args.scale = static_cast<float>(numbers[0]);
  args.qk_l2norm = numbers[1] != 0;
  args.disable_state_update = numbers[2] != 0;
  return guarded([&] { dispatch(args, args.v.numel()); });
}

// The operators that no Ascend kernel computes: validated, then refused. Numbers that only a launch needs are left out.
const char* simulated_gdn_frontend(const gdn::TensorRef* tensors, const double* numbers) {
  gdn::GdnFrontendArgs args;
  gdn::TensorRef* const fields[] = {
      &args.weights.conv_weight,
      &args.weights.conv_bias,
      &args.weights.A_log,
      &args.weights.dt_bias,
      &args.mixed_qkv,
      &args.a,
      &args.b,
      &args.conv_pool,
      &args.query_start_loc,
      &args.cache_indices,
      &args.has_initial_state,
      &args.track_slots,
      &args.track_lens,
      &args.qkv,
      &args.g,
      &args.beta,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  args.heads = heads_of(numbers);
  return guarded([&] { dispatch(args, args.mixed_qkv.numel()); });
}

const char* simulated_gdn_prefill(const gdn::TensorRef* tensors, const double* numbers) {
  gdn::GdnPrefillArgs args;
  gdn::TensorRef* const fields[] = {
      &args.weights.conv_weight,
      &args.weights.conv_bias,
      &args.weights.A_log,
      &args.weights.dt_bias,
      &args.mixed_qkv,
      &args.a,
      &args.b,
      &args.conv_pool,
      &args.ssm_pool,
      &args.query_start_loc,
      &args.cache_indices,
      &args.has_initial_state,
      &args.track_slots,
      &args.track_lens,
      &args.track_state,
      &args.track_chunk_idx,
      &args.h,
      &args.qkv_scratch,
      &args.g_scratch,
      &args.beta_scratch,
      &args.segment_states,
      &args.out,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  args.heads = heads_of(numbers);
  return guarded([&] { dispatch(args, args.mixed_qkv.numel()); });
}

const char* simulated_gdn_decode(const gdn::TensorRef* tensors, const double* numbers) {
  gdn::GdnDecodeArgs args;
  gdn::TensorRef* const fields[] = {
      &args.weights.conv_weight,
      &args.weights.conv_bias,
      &args.weights.A_log,
      &args.weights.dt_bias,
      &args.mixed_qkv,
      &args.a,
      &args.b,
      &args.z,
      &args.qkvz,
      &args.ba,
      &args.conv_pool,
      &args.ssm_pool,
      &args.cache_indices,
      &args.track_slots,
      &args.norm_weight,
      &args.out,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  args.heads = heads_of(numbers);
  args.layout = static_cast<gdn::ProjectionLayout>(numbers[4]);
  return guarded([&] { dispatch(args, args.projection().numel()); });
}

const char* simulated_gdn_verify(const gdn::TensorRef* tensors, const double* numbers) {
  gdn::GdnVerifyArgs args;
  gdn::TensorRef* const fields[] = {
      &args.weights.conv_weight,
      &args.weights.conv_bias,
      &args.weights.A_log,
      &args.weights.dt_bias,
      &args.mixed_qkv,
      &args.a,
      &args.b,
      &args.conv_pool,
      &args.ssm_pool,
      &args.cache_indices,
      &args.parent_tokens,
      &args.intermediate_ssm,
      &args.intermediate_conv_window,
      &args.intermediate_state_indices,
      &args.record.x,
      &args.record.k,
      &args.record.d,
      &args.record.g,
      &args.qkv_scratch,
      &args.out,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  args.heads = heads_of(numbers);
  return guarded([&] { dispatch(args, args.mixed_qkv.numel()); });
}

const char* simulated_gdn_commit(const gdn::TensorRef* tensors, const double*) {
  gdn::GdnCommitArgs args;
  gdn::TensorRef* const fields[] = {
      &args.conv_pool,
      &args.ssm_pool,
      &args.cache_indices,
      &args.intermediate_ssm,
      &args.intermediate_conv_window,
      &args.intermediate_state_indices,
      &args.last_steps,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  return guarded([&] { dispatch(args, args.cache_indices.numel()); });
}

const char* simulated_gdn_fold(const gdn::TensorRef* tensors, const double*) {
  gdn::GdnFoldArgs args;
  gdn::TensorRef* const fields[] = {
      &args.conv_pool, &args.ssm_pool,   &args.cache_indices, &args.record.x,    &args.record.k,    &args.record.d,
      &args.record.g,  &args.last_steps, &args.parent_tokens, &args.track_slots, &args.track_steps,
  };
  for (gdn::TensorRef* field : fields) *field = *tensors++;
  return guarded([&] { dispatch(args, args.cache_indices.numel()); });
}
}
