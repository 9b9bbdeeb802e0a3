#pragma once

#include "cpu/rows.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

// causal_conv1d_update for channels [channel, channel + count) of one row. A call touches only those channels of x,
// out and the windows; the bits of a channel do not depend on the range it is computed in.
void causal_conv1d_update_channels(const CausalConv1dUpdateArgs& args, int64_t row, int64_t channel, int64_t count);

}  // namespace gdn::cpu::GDN_CPU_ISA
