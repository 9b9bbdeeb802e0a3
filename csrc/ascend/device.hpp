#pragma once

#include <cstdint>

namespace gdn::ascend {

// Cube cores of an NPU; each has two vector cores. Asked of CANN once a device.
int32_t cube_cores(int32_t device);

// Blocks for `tasks` independent tasks of vector cores: no more than there are cores, at least one.
inline int32_t vector_blocks(int64_t tasks, int32_t device) {
  const int64_t cores = cube_cores(device);
  const int64_t wanted = (tasks + 1) / 2;
  return static_cast<int32_t>(wanted < 1 ? 1 : wanted < cores ? wanted : cores);
}

// The same for tasks of a whole block.
inline int32_t cube_blocks(int64_t tasks, int32_t device) { return vector_blocks(2 * tasks, device); }

}  // namespace gdn::ascend
