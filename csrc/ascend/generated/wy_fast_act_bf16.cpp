// Generated from python/gdn_aot/kernels/ascend/wy_fast.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void wy_fast_act_bf16( GM_ADDR k_handle,  GM_ADDR erase_handle,  GM_ADDR query_start_loc_handle,  GM_ADDR w_handle, int32_t blocks, int32_t rows, int32_t start_pitch, int32_t k_head_pitch, int32_t ratio, int64_t tokens, int64_t k_pitch, int64_t chunks, int64_t heads, int64_t starts, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<bfloat16_t> k;
  k.SetGlobalBuffer((__gm__ bfloat16_t*)k_handle);
  AscendC::GlobalTensor<bfloat16_t> erase;
  erase.SetGlobalBuffer((__gm__ bfloat16_t*)erase_handle);
  AscendC::GlobalTensor<int> query_start_loc;
  query_start_loc.SetGlobalBuffer((__gm__ int*)query_start_loc_handle);
  AscendC::GlobalTensor<bfloat16_t> w;
  w.SetGlobalBuffer((__gm__ bfloat16_t*)w_handle);

  AscendC::TBuf<AscendC::TPosition::A2> ascend_l0a;
  pipe.InitBuffer(ascend_l0a, 65536);
  AscendC::TBuf<AscendC::TPosition::B2> ascend_l0b;
  pipe.InitBuffer(ascend_l0b, 65536);
  AscendC::TBuf<AscendC::TPosition::A1> ascend_l1; pipe.InitBuffer(ascend_l1, 524032);
  AscendC::TBuf<AscendC::TPosition::CO1> ascend_l0c; pipe.InitBuffer(ascend_l0c, 131072);
  AscendC::TBuf<AscendC::TPosition::VECCALC> ascend_ub; pipe.InitBuffer(ascend_ub, 196352);
  pipe.Destroy();
  auto cid = AscendC::GetBlockIdx();
  if ASCEND_IS_AIV {
    cid = cid / 2;
  }
  auto keys = ascend_l1.GetWithOffset<bfloat16_t>(8192, 0);
  auto inverse = ascend_l1.GetWithOffset<bfloat16_t>(8192, 16384);
  auto sums = ascend_l0c.GetWithOffset<float>(8192, 0);
  if ASCEND_IS_AIC {
    for (int32_t n = 0; n < rows; ++n) {
      int32_t begin = query_start_loc.GetValue((((int64_t)n) * ((int64_t)start_pitch)));
      int32_t length = (query_start_loc.GetValue(((((int64_t)n) + (int64_t)1) * ((int64_t)start_pitch))) - begin);
      for (int32_t i = 0; i < (((((((length + 63) / 64) * heads) + blocks) - (((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks)) - 1) / blocks); ++i) {
        tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 128>(keys[0], k[(((((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads) * 64) + begin) * k_pitch) + (((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) % heads) / ratio) * k_head_pitch))], k_pitch, ((1 <= ((length / 64) - (((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads))) ? 64 : (length - ((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads) * 64))), 0, true);
        tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(inverse[0], erase[((((((begin / 64) + n) * heads) * 8192) + ((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) * 8192)) + ((i * blocks) * 8192))], 64, 0, 0, true);
        tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(inverse[4096], erase[(((((((begin / 64) + n) * heads) * 8192) + ((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) * 8192)) + ((i * blocks) * 8192)) + 4096)], 64, 0, 0, false);
        tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(inverse[0], keys[0], sums[0], ascend_l0a, ascend_l0b, (bool)1);
        tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(inverse[4096], keys[0], sums[0], ascend_l0a, ascend_l0b, (bool)0);
        tl::ascend::copy_l0c_to_gm<float, bfloat16_t, layout::RowMajor, 64, 128>(w[((((((begin / 64) + n) * heads) * 8192) + ((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) * 8192)) + ((i * blocks) * 8192))], sums[0], 128, 0, 0);
      }
    }
  }
}

#include "ascend/generated/wy_fast.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_wy_fast_act_bf16(const gdn::ascend::WyFastArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(wy_fast_act_bf16, a.blocks, stream, a.k.data, a.erase.data, a.query_start_loc.data, a.w.data, a.blocks, a.rows, a.start_pitch, a.k_head_pitch, a.ratio, a.tokens, a.k_pitch, a.chunks, a.heads, a.starts);
}
