#pragma once

#include "machine.hpp"

#define GDN_ASCEND_LAUNCH(function, blocks, stream, ...) \
  simulator::launch(static_cast<uint32_t>(blocks), [&] { function(__VA_ARGS__, uint64_t{0}); })
