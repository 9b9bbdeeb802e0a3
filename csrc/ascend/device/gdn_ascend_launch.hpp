#pragma once

#include <runtime/rt_ffts.h>

#include "acl/acl.h"

// Starts a device function. The last argument is the address that flags between cores go through.
#define GDN_ASCEND_LAUNCH(function, blocks, stream, ...)                                     \
  do {                                                                                       \
    uint32_t sync_bytes = 0;                                                                 \
    uint64_t sync_address = 0;                                                               \
    rtGetC2cCtrlAddr(&sync_address, &sync_bytes);                                            \
    function<<<static_cast<uint32_t>(blocks), nullptr, stream>>>(__VA_ARGS__, sync_address); \
  } while (false)
