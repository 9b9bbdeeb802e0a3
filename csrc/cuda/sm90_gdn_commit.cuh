// Copies the state and the conv window after the last accepted draft token of each row to the row's slot.
//
// Tiles: the first blocks of a row copy kStateBytes of state each, 16 bytes a thread and step where both addresses
// allow it; the last ones take one element of the conv window a thread. Memory: one state and one window read, one
// written; nothing for a row that accepted nothing. Bounds: a step outside [0, T_d) and a negative slot or buffer row
// end the block. Synchronisation: none.
#pragma once

#include "cuda/sm90_device.cuh"

namespace gdn::sm90 {

constexpr int kCommitThreads = 256;
constexpr int kStateBytes = 32768;

struct CommitParams {
  char *ssm_pool, *conv_pool;  // bytes, as are all pitches
  const char *intermediate_ssm, *intermediate_conv;
  SlotPtr cache_indices, intermediate_indices;
  IndexPtr last_steps;
  int64_t ssm_pitch, conv_pitch, ssm_row, ssm_token, conv_row, conv_token, conv_channel, state_bytes;
  int32_t rows, drafts, state_blocks, window_elements, window_size, conv_size;
  bool aligned;
};

template <class Unit>
__device__ inline void copy_units(char* target, const char* source, int64_t bytes) {
  for (int64_t i = threadIdx.x; i < bytes / static_cast<int64_t>(sizeof(Unit)); i += kCommitThreads)
    __stcs(reinterpret_cast<Unit*>(target) + i, __ldcs(reinterpret_cast<const Unit*>(source) + i));
}

__global__ void __launch_bounds__(kCommitThreads) sm90_gdn_commit(const __grid_constant__ CommitParams p) {
  const int64_t n = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  if (n >= p.rows) return;
  wait_for_previous_kernel();
  allow_next_kernel();
  const int64_t slot = load_slot(p.cache_indices, n), row = load_slot(p.intermediate_indices, n),
                step = load_index(p.last_steps, n);
  if (slot < 0 || row < 0 || step < 0 || step >= p.drafts) return;
  const int block = blockIdx.x;
  if (block < p.state_blocks) {
    const int64_t first = static_cast<int64_t>(block) * kStateBytes;
    const int64_t bytes = p.state_bytes - first < kStateBytes ? p.state_bytes - first : kStateBytes;
    char* const target = p.ssm_pool + slot * p.ssm_pitch + first;
    const char* const source = p.intermediate_ssm + row * p.ssm_row + step * p.ssm_token + first;
    p.aligned ? copy_units<uint4>(target, source, bytes) : copy_units<uint16_t>(target, source, bytes);
    return;
  }
  const int i = (block - p.state_blocks) * kCommitThreads + threadIdx.x;
  if (i >= p.window_elements) return;
  const int channel = i / p.window_size, column = i % p.window_size;
  char* const target = p.conv_pool + slot * p.conv_pitch + static_cast<int64_t>(i) * p.conv_size;
  const char* const source = p.intermediate_conv + row * p.conv_row + step * p.conv_token + channel * p.conv_channel +
                             static_cast<int64_t>(column) * p.conv_size;
  if (p.conv_size == 4)
    *reinterpret_cast<uint32_t*>(target) = *reinterpret_cast<const uint32_t*>(source);
  else
    *reinterpret_cast<uint16_t*>(target) = *reinterpret_cast<const uint16_t*>(source);
}

}  // namespace gdn::sm90
