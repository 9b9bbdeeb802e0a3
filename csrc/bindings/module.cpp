#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#ifdef SGLANG_GDN_WITH_ASCEND
#include "ascend/chunk_stages.hpp"
#endif
#include "bindings/torch_tensor.hpp"
#include "core/dispatch.hpp"
#include "cpu/isa.hpp"
#include "cpu/threads.hpp"

namespace nb = nanobind;
using namespace gdn;

namespace {

// Launches without the interpreter lock.
template <class Args>
void dispatch(const Args& args, int64_t work, uintptr_t stream) {
  gdn::dispatch(args, work, [&](const Kernel<Args>& kernel) {
    nb::gil_scoped_release unlocked;
    kernel.launch(args, Stream{reinterpret_cast<void*>(stream)});
  });
}

#define READ(args, field) \
  args.field = TorchTensorReader::read(field, std::remove_reference_t<decltype(args)>::kOp, #field)
#define READ_WEIGHT(args, field) \
  args.weights.field = TorchTensorReader::read(field, std::remove_reference_t<decltype(args)>::kOp, #field)
#define READ_RECORD(args)                                                 \
  args.record = {TorchTensorReader::read(record_x, args.kOp, "record.x"), \
                 TorchTensorReader::read(record_k, args.kOp, "record.k"), \
                 TorchTensorReader::read(record_d, args.kOp, "record.d"), \
                 TorchTensorReader::read(record_g, args.kOp, "record.g")}

// [1, T, ...] -> [T, ...].
TensorRef without_batch_dim(const TensorRef& t) {
  if (t.ndim != 4 || t.shape[0] != 1) return t;
  TensorRef view = t;
  view.ndim = 3;
  for (int i = 0; i < 3; ++i) {
    view.shape[i] = t.shape[i + 1];
    view.stride[i] = t.stride[i + 1];
  }
  return view;
}

int64_t dim(const TensorRef& tensor, int i) { return i < tensor.ndim ? tensor.shape[i] : 0; }

void causal_conv1d(uintptr_t stream, PyTensor x, PyTensor weight, PyTensor bias, PyTensor conv_pool,
                   PyTensor query_start_loc, PyTensor cache_indices, PyTensor has_initial_state, PyTensor track_slots,
                   PyTensor track_lens, PyTensor out, bool silu) {
  CausalConv1dArgs args;
  READ(args, x);
  READ(args, weight);
  READ(args, bias);
  READ(args, conv_pool);
  READ(args, query_start_loc);
  READ(args, cache_indices);
  READ(args, has_initial_state);
  READ(args, track_slots);
  READ(args, track_lens);
  READ(args, out);
  args.silu = silu;
  dispatch(args, args.x.numel(), stream);
}

void causal_conv1d_update(uintptr_t stream, PyTensor x, PyTensor weight, PyTensor bias, PyTensor conv_pool,
                          PyTensor cache_indices, PyTensor parent_tokens, PyTensor intermediate_conv_window,
                          PyTensor intermediate_state_indices, PyTensor out, bool silu, bool disable_state_update) {
  CausalConv1dUpdateArgs args;
  READ(args, x);
  READ(args, weight);
  READ(args, bias);
  READ(args, conv_pool);
  READ(args, cache_indices);
  READ(args, parent_tokens);
  READ(args, intermediate_conv_window);
  READ(args, intermediate_state_indices);
  READ(args, out);
  args.silu = silu;
  args.disable_state_update = disable_state_update;
  dispatch(args, args.x.numel(), stream);
}

void gdn_gating(uintptr_t stream, PyTensor A_log, PyTensor a, PyTensor b, PyTensor dt_bias, PyTensor g, PyTensor beta) {
  GdnGatingArgs args;
  READ(args, A_log);
  READ(args, a);
  READ(args, b);
  READ(args, dt_bias);
  READ(args, g);
  READ(args, beta);
  dispatch(args, args.a.numel(), stream);
}

void chunk_gated_delta_rule(uintptr_t stream, PyTensor q, PyTensor k, PyTensor v, PyTensor g, PyTensor beta,
                            PyTensor ssm_pool, PyTensor query_start_loc, PyTensor cache_indices,
                            PyTensor has_initial_state, PyTensor track_state, PyTensor track_chunk_idx, PyTensor h,
                            PyTensor segment_states, int64_t segment_chunks, PyTensor out, PyTensor workspace,
                            float scale, bool qk_l2norm, bool update_state) {
  ChunkGatedDeltaRuleArgs args;
  READ(args, q);
  READ(args, k);
  READ(args, v);
  READ(args, g);
  READ(args, beta);
  READ(args, ssm_pool);
  args.query_start_loc = TorchTensorReader::read(query_start_loc, args.kOp, "cu_seqlens");
  READ(args, cache_indices);
  READ(args, has_initial_state);
  READ(args, track_state);
  READ(args, track_chunk_idx);
  READ(args, h);
  READ(args, segment_states);
  args.segment_chunks = segment_chunks;
  READ(args, out);
  READ(args, workspace);
  args.scale = scale;
  args.qk_l2norm = qk_l2norm;
  args.update_state = update_state;
  dispatch(args, args.v.numel(), stream);
}

void fused_sigmoid_gating_delta_rule_update(uintptr_t stream, PyTensor q, PyTensor k, PyTensor v, PyTensor a,
                                            PyTensor b, PyTensor A_log, PyTensor dt_bias, PyTensor ssm_pool,
                                            PyTensor cache_indices, PyTensor parent_tokens, PyTensor intermediate_ssm,
                                            PyTensor intermediate_state_indices, PyTensor out, float scale,
                                            bool qk_l2norm, bool disable_state_update) {
  FusedSigmoidGatingDeltaRuleUpdateArgs args;
  READ(args, q);
  READ(args, k);
  READ(args, v);
  READ(args, a);
  READ(args, b);
  READ(args, A_log);
  READ(args, dt_bias);
  READ(args, ssm_pool);
  READ(args, cache_indices);
  READ(args, parent_tokens);
  READ(args, intermediate_ssm);
  READ(args, intermediate_state_indices);
  READ(args, out);
  args.scale = scale;
  args.qk_l2norm = qk_l2norm;
  args.disable_state_update = disable_state_update;
  dispatch(args, args.v.numel(), stream);
}

void gdn_frontend(uintptr_t stream, int64_t num_k_heads, int64_t num_v_heads, int64_t head_k_dim, int64_t head_v_dim,
                  PyTensor conv_weight, PyTensor conv_bias, PyTensor A_log, PyTensor dt_bias, PyTensor mixed_qkv,
                  PyTensor a, PyTensor b, PyTensor conv_pool, PyTensor query_start_loc, PyTensor cache_indices,
                  PyTensor has_initial_state, PyTensor track_slots, PyTensor track_lens, PyTensor qkv, PyTensor g,
                  PyTensor beta, bool qk_l2norm, bool silu) {
  GdnFrontendArgs args;
  args.heads = {num_k_heads, num_v_heads, head_k_dim, head_v_dim};
  READ_WEIGHT(args, conv_weight);
  READ_WEIGHT(args, conv_bias);
  READ_WEIGHT(args, A_log);
  READ_WEIGHT(args, dt_bias);
  READ(args, mixed_qkv);
  READ(args, a);
  READ(args, b);
  READ(args, conv_pool);
  READ(args, query_start_loc);
  READ(args, cache_indices);
  READ(args, has_initial_state);
  READ(args, track_slots);
  READ(args, track_lens);
  args.qkv = TorchTensorReader::read(qkv, args.kOp, "out");
  READ(args, g);
  READ(args, beta);
  args.qk_l2norm = qk_l2norm;
  args.silu = silu;
  dispatch(args, args.mixed_qkv.numel(), stream);
}

void gdn_prefill(uintptr_t stream, int64_t num_k_heads, int64_t num_v_heads, int64_t head_k_dim, int64_t head_v_dim,
                 PyTensor conv_weight, PyTensor conv_bias, PyTensor A_log, PyTensor dt_bias, PyTensor mixed_qkv,
                 PyTensor a, PyTensor b, PyTensor conv_pool, PyTensor ssm_pool, PyTensor query_start_loc,
                 PyTensor cache_indices, PyTensor has_initial_state, PyTensor track_slots, PyTensor track_lens,
                 PyTensor track_state, PyTensor track_chunk_idx, PyTensor h, PyTensor qkv_scratch, PyTensor g_scratch,
                 PyTensor beta_scratch, PyTensor segment_states, int64_t segment_chunks, PyTensor out, float scale,
                 bool silu) {
  GdnPrefillArgs args;
  args.heads = {num_k_heads, num_v_heads, head_k_dim, head_v_dim};
  READ_WEIGHT(args, conv_weight);
  READ_WEIGHT(args, conv_bias);
  READ_WEIGHT(args, A_log);
  READ_WEIGHT(args, dt_bias);
  READ(args, mixed_qkv);
  READ(args, a);
  READ(args, b);
  READ(args, conv_pool);
  READ(args, ssm_pool);
  READ(args, query_start_loc);
  READ(args, cache_indices);
  READ(args, has_initial_state);
  READ(args, track_slots);
  READ(args, track_lens);
  READ(args, track_state);
  READ(args, track_chunk_idx);
  READ(args, h);
  READ(args, qkv_scratch);
  READ(args, g_scratch);
  READ(args, beta_scratch);
  READ(args, segment_states);
  args.segment_chunks = segment_chunks;
  READ(args, out);
  args.scale = scale;
  args.silu = silu;
  dispatch(args, args.mixed_qkv.numel(), stream);
}

void gdn_decode(uintptr_t stream, PyNumber num_k_heads, PyNumber num_v_heads, PyNumber head_k_dim, PyNumber head_v_dim,
                PyTensor conv_weight, PyTensor conv_bias, PyTensor A_log, PyTensor dt_bias, PyTensor mixed_qkv,
                PyTensor a, PyTensor b, PyTensor z, PyTensor qkvz, PyTensor ba, PyTensor conv_pool, PyTensor ssm_pool,
                PyTensor cache_indices, PyTensor track_slots, PyTensor norm_weight, PyTensor out, int layout,
                PyNumber scale, PyNumber norm_eps, bool silu, bool norm_silu) {
  const ArgumentReader read(GdnDecodeArgs::kOp);
  GdnDecodeArgs args;
  args.heads = {read.integer("num_k_heads", num_k_heads), read.integer("num_v_heads", num_v_heads),
                read.integer("head_k_dim", head_k_dim), read.integer("head_v_dim", head_v_dim)};
  args.layout = static_cast<ProjectionLayout>(layout);
  args.weights.conv_weight = read.tensor("conv_weight", conv_weight);
  args.weights.conv_bias = read.tensor("conv_bias", conv_bias);
  args.weights.A_log = read.tensor("A_log", A_log);
  args.weights.dt_bias = read.tensor("dt_bias", dt_bias);
  args.mixed_qkv = read.tensor("mixed_qkv", mixed_qkv);
  args.a = read.tensor("a", a);
  args.b = read.tensor("b", b);
  args.z = read.tensor("z", z);
  args.qkvz = read.tensor("qkvz", qkvz);
  args.ba = read.tensor("ba", ba);
  args.conv_pool = read.tensor("conv_pool", conv_pool);
  args.ssm_pool = read.tensor("ssm_pool", ssm_pool);
  args.cache_indices = read.tensor("cache_indices", cache_indices);
  args.track_slots = read.tensor("track_slots", track_slots);
  args.norm_weight = read.tensor("norm_weight", norm_weight);
  args.out = without_batch_dim(read.tensor("out", out));
  args.scale =
      static_cast<float>(scale.object.is_none() ? std::pow(args.heads.head_k_dim, -0.5) : read.real("scale", scale));
  args.norm_eps = static_cast<float>(read.real("norm_eps", norm_eps));
  args.silu = silu;
  args.norm_silu = norm_silu;
  dispatch(args, args.projection().numel(), stream);
}

void gdn_verify(uintptr_t stream, int64_t num_k_heads, int64_t num_v_heads, int64_t head_k_dim, int64_t head_v_dim,
                PyTensor conv_weight, PyTensor conv_bias, PyTensor A_log, PyTensor dt_bias, PyTensor mixed_qkv,
                PyTensor a, PyTensor b, PyTensor conv_pool, PyTensor ssm_pool, PyTensor cache_indices,
                PyTensor parent_tokens, PyTensor intermediate_ssm, PyTensor intermediate_conv_window,
                PyTensor intermediate_state_indices, PyTensor record_x, PyTensor record_k, PyTensor record_d,
                PyTensor record_g, PyTensor qkv_scratch, PyTensor out, float scale, bool silu) {
  GdnVerifyArgs args;
  args.heads = {num_k_heads, num_v_heads, head_k_dim, head_v_dim};
  READ_WEIGHT(args, conv_weight);
  READ_WEIGHT(args, conv_bias);
  READ_WEIGHT(args, A_log);
  READ_WEIGHT(args, dt_bias);
  READ(args, mixed_qkv);
  READ(args, a);
  READ(args, b);
  READ(args, conv_pool);
  READ(args, ssm_pool);
  READ(args, cache_indices);
  READ(args, parent_tokens);
  READ(args, intermediate_ssm);
  READ(args, intermediate_conv_window);
  READ(args, intermediate_state_indices);
  READ_RECORD(args);
  READ(args, qkv_scratch);
  READ(args, out);
  args.scale = scale;
  args.silu = silu;
  dispatch(args, args.mixed_qkv.numel(), stream);
}

void gdn_commit(uintptr_t stream, PyTensor conv_pool, PyTensor ssm_pool, PyTensor cache_indices,
                PyTensor intermediate_ssm, PyTensor intermediate_conv_window, PyTensor intermediate_state_indices,
                PyTensor last_steps) {
  GdnCommitArgs args;
  READ(args, conv_pool);
  READ(args, ssm_pool);
  READ(args, cache_indices);
  READ(args, intermediate_ssm);
  READ(args, intermediate_conv_window);
  READ(args, intermediate_state_indices);
  READ(args, last_steps);
  dispatch(args, dim(args.cache_indices, 0), stream);
}

void gdn_fold(uintptr_t stream, PyTensor conv_pool, PyTensor ssm_pool, PyTensor cache_indices, PyTensor record_x,
              PyTensor record_k, PyTensor record_d, PyTensor record_g, PyTensor last_steps, PyTensor parent_tokens,
              PyTensor track_slots, PyTensor track_steps) {
  GdnFoldArgs args;
  READ(args, conv_pool);
  READ(args, ssm_pool);
  READ(args, cache_indices);
  READ_RECORD(args);
  READ(args, last_steps);
  READ(args, parent_tokens);
  READ(args, track_slots);
  READ(args, track_steps);
  dispatch(args, dim(args.ssm_pool, 0) * dim(args.cache_indices, 0), stream);
}

#undef READ
#undef READ_RECORD
#undef READ_WEIGHT

template <class Visitor>
void for_each_registry(Visitor&& visit) {
  visit(CausalConv1dArgs::kOp, KernelRegistry<CausalConv1dArgs>::instance());
  visit(CausalConv1dUpdateArgs::kOp, KernelRegistry<CausalConv1dUpdateArgs>::instance());
  visit(GdnGatingArgs::kOp, KernelRegistry<GdnGatingArgs>::instance());
  visit(ChunkGatedDeltaRuleArgs::kOp, KernelRegistry<ChunkGatedDeltaRuleArgs>::instance());
  visit(FusedSigmoidGatingDeltaRuleUpdateArgs::kOp, KernelRegistry<FusedSigmoidGatingDeltaRuleUpdateArgs>::instance());
  visit(GdnFrontendArgs::kOp, KernelRegistry<GdnFrontendArgs>::instance());
  visit(GdnPrefillArgs::kOp, KernelRegistry<GdnPrefillArgs>::instance());
  visit(GdnDecodeArgs::kOp, KernelRegistry<GdnDecodeArgs>::instance());
  visit(GdnVerifyArgs::kOp, KernelRegistry<GdnVerifyArgs>::instance());
  visit(GdnCommitArgs::kOp, KernelRegistry<GdnCommitArgs>::instance());
  visit(GdnFoldArgs::kOp, KernelRegistry<GdnFoldArgs>::instance());
}

std::vector<std::string> kernels() {
  std::vector<std::string> lines;
  for_each_registry([&](const char* op, const auto& registry) {
    for (const auto& kernel : registry.kernels())
      lines.push_back(std::string(op) + "/" + to_string(kernel.device) + " " + kernel.name +
                      kernel.support.to_string());
  });
  return lines;
}

DType dtype_from_text(const std::string& text) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (text == to_string(dtype)) return dtype;
  throw nb::value_error(("dtype must be float32, bfloat16 or float16; got " + text).c_str());
}

Device device_from_text(const std::string& text) {
  for (Device device : {Device::cpu, Device::cuda, Device::npu})
    if (text == to_string(device)) return device;
  throw nb::value_error(("device must be cpu, cuda or npu; got " + text).c_str());
}

std::pair<std::optional<std::string>, std::string> explain(
    const std::string& op, const std::string& device, const std::optional<std::string>& act,
    const std::optional<std::string>& state, const std::optional<std::string>& conv, std::optional<int64_t> head_k_dim,
    std::optional<int64_t> head_v_dim, std::optional<int64_t> ratio, std::optional<int64_t> conv_width,
    std::optional<int64_t> draft_tokens, std::optional<bool> record) {
  Specialization wanted;
  wanted.op = op;
  wanted.device = device_from_text(device);
  if (act) wanted.act = dtype_from_text(*act);
  if (state) wanted.state = dtype_from_text(*state);
  if (conv) wanted.conv = dtype_from_text(*conv);
  wanted.head_k_dim = head_k_dim;
  wanted.head_v_dim = head_v_dim;
  wanted.ratio = ratio;
  wanted.conv_width = conv_width;
  wanted.draft_tokens = draft_tokens;
  wanted.record = record;
  std::optional<std::pair<std::optional<std::string>, std::string>> answer;
  for_each_registry([&](const char* name, const auto& registry) {
    if (op != name) return;
    const auto* kernel = registry.find(wanted);
    answer.emplace(kernel ? std::optional(kernel->name) : std::nullopt, wanted.to_string() + registry.explain(wanted));
  });
  if (!answer) throw nb::value_error(("op must be an operator of sglang_gdn.ops; got " + op).c_str());
  return *answer;
}

nb::dict build_info() {
  nb::dict info;
#ifdef SGLANG_GDN_WITH_CUDA
  info["cuda"] = true;
#else
  info["cuda"] = false;
#endif
#ifdef SGLANG_GDN_WITH_ASCEND
  info["ascend"] = true;
#else
  info["ascend"] = false;
#endif
  info["compiler"] = __VERSION__;
  nb::list isas;
  for (const std::string& isa : cpu::built_isas()) isas.append(isa);
  info["cpu_isas"] = isas;
  return info;
}

void raise_in_python(const ArgumentError& error, bool no_kernel) {
  const char* type = no_kernel                              ? "GdnNoKernelError"
                     : error.kind == ErrorKind::type        ? "GdnTypeError"
                     : error.kind == ErrorKind::unsupported ? "GdnUnsupportedError"
                                                            : "GdnValueError";
  const nb::object cls = nb::module_::import_("sglang_gdn.errors").attr(type);
  const nb::object instance = cls(error.what(), error.op, error.argument);
  PyErr_SetObject(cls.ptr(), instance.ptr());
}

}  // namespace

NB_MODULE(_C, m) {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const NoKernelError& error) {
      raise_in_python(error, true);
    } catch (const ArgumentError& error) {
      raise_in_python(error, false);
    }
  });

  register_cpu_kernels();
#ifdef SGLANG_GDN_WITH_CUDA
  register_sm90_kernels();
#endif
#ifdef SGLANG_GDN_WITH_ASCEND
  register_ascend_kernels();
  m.def("npu_chunk_workspace_elements", &ascend::chunk_workspace_elements, nb::arg("device"));
#endif

  m.def("causal_conv1d", &causal_conv1d);
  m.def("causal_conv1d_update", &causal_conv1d_update);
  m.def("gdn_gating", &gdn_gating);
  m.def("chunk_gated_delta_rule", &chunk_gated_delta_rule);
  m.def("fused_sigmoid_gating_delta_rule_update", &fused_sigmoid_gating_delta_rule_update);
  m.def("gdn_frontend", &gdn_frontend);
  m.def("gdn_prefill", &gdn_prefill);
  m.def("gdn_decode", &gdn_decode);
  m.def("gdn_verify", &gdn_verify);
  m.def("gdn_commit", &gdn_commit);
  m.def("gdn_fold", &gdn_fold);
  m.def(
      "set_checks_only", [](bool value) { checks_only = value; }, nb::arg("value"),
      "While set, operators called by this thread refuse what they would, and launch nothing.");
  m.def("kernels", &kernels, "One line per built kernel.");
  m.def("explain", &explain, nb::arg("op"), nb::arg("device"), nb::arg("act").none(), nb::arg("state").none(),
        nb::arg("conv").none(), nb::arg("head_k_dim").none(), nb::arg("head_v_dim").none(), nb::arg("ratio").none(),
        nb::arg("conv_width").none(), nb::arg("draft_tokens").none(), nb::arg("record").none(),
        "Name of the kernel that would serve, or None, and one line per kernel saying why.");
  m.def("build_info", &build_info);
  m.def("cpu_isa", &cpu::chosen_isa, "Instruction set the CPU kernels run with.");
  m.def("get_num_threads", &cpu::get_num_threads);
  m.def("set_num_threads", &cpu::set_num_threads, nb::arg("num_threads"));
}
