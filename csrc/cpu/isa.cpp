#include "cpu/isa.hpp"

#include <cstdlib>
#include <string>

#include "core/registry.hpp"
#include "cpu/isa_kernels.hpp"

namespace gdn {
namespace cpu {

#ifdef GDN_CPU_X86_BUILDS
namespace avx2 {
extern const IsaKernels kernels;
}
namespace avx512 {
extern const IsaKernels kernels;
}
#endif

namespace {

struct Build {
  const IsaKernels* kernels;
  bool runs_here;
};

// Widest first.
std::vector<Build> builds() {
  return {
#ifdef GDN_CPU_X86_BUILDS
      {&avx512::kernels, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma")},
      {&avx2::kernels, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")},
#endif
      {&baseline::kernels, true},
  };
}

const IsaKernels& select() {
  const char* const wanted = std::getenv("SGLANG_GDN_CPU_ISA");
  std::string names;
  for (const Build& build : builds()) {
    if (!build.runs_here) continue;
    if (wanted == nullptr || *wanted == '\0' || std::string(wanted) == build.kernels->name) return *build.kernels;
    names += (names.empty() ? "" : ", ") + std::string(build.kernels->name);
  }
  throw ArgumentError(ErrorKind::unsupported, "cpu", "SGLANG_GDN_CPU_ISA",
                      "must be one of " + names + " on this machine; got " + wanted);
}

const IsaKernels& selected() {
  static const IsaKernels& kernels = select();
  return kernels;
}

template <class Args>
using Launch = void (*IsaKernels::*)(const Args&);

template <class Args, Launch<Args> kernel>
void launch(const Args& args, Stream) {
  (selected().*kernel)(args);
}

template <class Args, Launch<Args> kernel>
void add(Support support) {
  KernelRegistry<Args>::instance().add(
      {std::string("cpu_") + Args::kOp, Device::cpu, std::move(support), launch<Args, kernel>});
}

}  // namespace

std::vector<std::string> built_isas() {
  std::vector<std::string> names;
  for (const Build& build : builds()) names.emplace_back(build.kernels->name);
  return names;
}

std::string chosen_isa() { return selected().name; }

}  // namespace cpu

void register_cpu_kernels() {
  using cpu::IsaKernels;
  const std::vector<DType> floats = {DType::f32, DType::bf16, DType::f16};
  Support gating;
  gating.act = floats;
  Support conv;
  conv.act = conv.conv = floats;
  conv.conv_widths = {2, 3, 4};
  Support delta;
  delta.act = delta.state = floats;
  delta.head_dim_multiple = 8;
  delta.max_head_dim = 256;
  Support layer = delta;
  layer.conv = conv.conv;
  layer.conv_widths = conv.conv_widths;
  Support decode = layer;
  decode.decode_extras = true;

  cpu::add<CausalConv1dArgs, &IsaKernels::causal_conv1d>(conv);
  cpu::add<CausalConv1dUpdateArgs, &IsaKernels::causal_conv1d_update>(conv);
  cpu::add<GdnGatingArgs, &IsaKernels::gdn_gating>(gating);
  cpu::add<ChunkGatedDeltaRuleArgs, &IsaKernels::chunk_gated_delta_rule>(delta);
  cpu::add<FusedSigmoidGatingDeltaRuleUpdateArgs, &IsaKernels::fused_sigmoid_gating_delta_rule_update>(delta);
  cpu::add<GdnFrontendArgs, &IsaKernels::gdn_frontend>(layer);
  cpu::add<GdnPrefillArgs, &IsaKernels::gdn_prefill>(layer);
  cpu::add<GdnDecodeArgs, &IsaKernels::gdn_decode>(decode);
  cpu::add<GdnVerifyArgs, &IsaKernels::gdn_verify>(layer);
  cpu::add<GdnCommitArgs, &IsaKernels::gdn_commit>({});
  cpu::add<GdnFoldArgs, &IsaKernels::gdn_fold>({});
}

}  // namespace gdn
