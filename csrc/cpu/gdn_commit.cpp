// Makes the states after one verified draft token the committed states: pool[cache_indices[n]] =
// intermediate[intermediate_state_indices[n], last_steps[n]] for the convolution window and the SSM state.
//
// Tiles: one task copies the [V, K] states of one value head, or the windows of 256 channels, of one row.
// Memory: each stored byte is read once and written once; nothing is converted, the copy is exact.
// Synchronisation: none, live rows name different slots.
#include "cpu/isa_kernels.hpp"
#include "cpu/rows.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

void gdn_commit(const GdnCommitArgs& args) {
  constexpr int64_t kChannels = 256;
  const TensorRef &windows = args.intermediate_conv_window, &states = args.intermediate_ssm;
  const int64_t rows = args.cache_indices.shape[0], draft_tokens = states.shape[1];
  const int64_t heads = args.ssm_pool.shape[1], head_elements = args.ssm_pool.shape[2] * args.ssm_pool.shape[3];
  const int64_t channels = args.conv_pool.shape[1], window = args.conv_pool.shape[2];
  const int64_t blocks = (channels + kChannels - 1) / kChannels, tasks_per_row = heads + blocks;
  const int64_t slots = min(args.ssm_pool.shape[0], args.conv_pool.shape[0]);
  const int64_t stored_rows = min(states.shape[0], windows.shape[0]);
  parallel_for(rows * tasks_per_row, [&](int64_t task) {
    const int64_t n = task / tasks_per_row, part = task % tasks_per_row;
    const int64_t slot = slot_at(args.cache_indices, n, slots);
    const int64_t stored = slot_at(args.intermediate_state_indices, n, stored_rows);
    const int64_t step = slot_at(args.last_steps, n, draft_tokens);
    if (slot < 0 || stored < 0 || step < 0) return;
    if (part < heads) {
      copy_bytes(element_at(args.ssm_pool, slot * args.ssm_pool.stride[0] + part * head_elements),
                 element_at(states, stored * states.stride[0] + step * states.stride[1] + part * head_elements),
                 head_elements * element_size(args.ssm_pool.dtype));
    } else {
      const int64_t first = (part - heads) * kChannels, bytes = window * element_size(args.conv_pool.dtype);
      char* const to = element_at(args.conv_pool, slot * args.conv_pool.stride[0]);
      const char* const from = element_at(windows, stored * windows.stride[0] + step * windows.stride[1]);
      for (int64_t c = first; c < min(first + kChannels, channels); ++c)
        copy_bytes(to + c * bytes, from + c * windows.stride[2] * element_size(windows.dtype), bytes);
    }
  });
}

}  // namespace gdn::cpu::GDN_CPU_ISA
