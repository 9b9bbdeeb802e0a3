#pragma once

#include "cpu/simd.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

// g = -exp(A_log) softplus(a + dt_bias)
GDN_INLINE F log_gate(F A_log, F a, F dt_bias) { return -exp<kLanes>(A_log) * softplus<kLanes>(a + dt_bias); }

}  // namespace gdn::cpu::GDN_CPU_ISA
