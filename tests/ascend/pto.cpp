// One core after another of a kernel that TileLang-Ascend lowered to PTO, on the CPU simulator in its wheel. Flags do
// nothing there. DEVICE_FUNCTION is the lowered device function.
#include <cstdint>
#include <pto/pto-inst.hpp>

#define EVENT_ID1 1
inline void set_ffts_base_addr(uint64_t) {}
inline void ffts_cross_core_sync(int, int) {}
inline void wait_flag_dev(int) {}
inline void set_intra_block(int, int) {}
inline void wait_intra_block(int, int) {}

#define __CCE_AICORE__
#include <tl_templates/pto/common.h>

int64_t block;
#define get_block_idx() block
#define get_subblockid() int64_t{0}

using namespace pto;
#define __DAV_C220_CUBE__
#include DEVICE_FUNCTION
