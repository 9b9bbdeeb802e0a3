#pragma once

#include <string>
#include <vector>

namespace gdn::cpu {

// Instruction sets the kernels are built for, widest first.
std::vector<std::string> built_isas();

// The one in use: SGLANG_GDN_CPU_ISA if set, else the widest that this machine runs. Throws ArgumentError where the
// variable names one that is not built or that this machine lacks.
std::string chosen_isa();

}  // namespace gdn::cpu
