#include "cpu/isa_kernels.hpp"

#define GDN_TEXT_OF(name) #name
#define GDN_TEXT(name) GDN_TEXT_OF(name)

namespace gdn::cpu::GDN_CPU_ISA {

const IsaKernels kernels = {
    GDN_TEXT(GDN_CPU_ISA),
    causal_conv1d,
    causal_conv1d_update,
    gdn_gating,
    chunk_gated_delta_rule,
    fused_sigmoid_gating_delta_rule_update,
    gdn_frontend,
    gdn_prefill,
    gdn_decode,
    gdn_verify,
    gdn_commit,
    gdn_fold,
};

}  // namespace gdn::cpu::GDN_CPU_ISA
