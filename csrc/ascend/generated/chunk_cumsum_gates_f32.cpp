// Generated from python/gdn_aot/kernels/ascend/chunk_cumsum.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void chunk_cumsum_gates_f32( GM_ADDR g_handle,  GM_ADDR query_start_loc_handle,  GM_ADDR gates_handle, int32_t blocks, int32_t rows, int32_t start_pitch, int64_t tokens, int64_t g_pitch, int64_t starts, int64_t chunks, int64_t heads, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<float> g;
  g.SetGlobalBuffer((__gm__ float*)g_handle);
  AscendC::GlobalTensor<int> query_start_loc;
  query_start_loc.SetGlobalBuffer((__gm__ int*)query_start_loc_handle);
  AscendC::GlobalTensor<float> gates;
  gates.SetGlobalBuffer((__gm__ float*)gates_handle);

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
  auto sums = ascend_ub.GetWithOffset<float>(8192, 0);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIV {
    AscendC::SetFlag<AscendC::HardEvent::MTE3_MTE2>(1);
    for (int32_t n = 0; n < rows; ++n) {
      int32_t begin = query_start_loc.GetValue((((int64_t)n) * ((int64_t)start_pitch)));
      int32_t length = (query_start_loc.GetValue(((((int64_t)n) + (int64_t)1) * ((int64_t)start_pitch))) - begin);
      for (int32_t i = 0; i < (((((blocks * 2) + ((length + 63) / 64)) - (((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2))) - 1) / (blocks * 2)); ++i) {
        AscendC::WaitFlag<AscendC::HardEvent::MTE3_MTE2>(1);
        tl::ascend::copy_gm_to_ub<float, 64, 64>(sums[0], g[(((((i * blocks) * 128) + ((((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2)) * 64)) + begin) * g_pitch)], g_pitch, ((1 <= (((length / 64) - (((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2))) - ((i * blocks) * 2))) ? 64 : ((length - ((((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2)) * 64)) - ((i * blocks) * 128))), heads, 0.000000e+00f);
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
        {
        AscendC::Maxs(sums[0], sums[0], -1.000000e+02f, 4096);
        }
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<float, float, 4096>(sums[4096], sums[0], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(sums[4160], sums[4160], sums[0], 4032);
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<float, float, 4096>(sums[0], sums[4096], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(sums[128], sums[128], sums[4096], 3968);
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<float, float, 4096>(sums[4096], sums[0], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(sums[4352], sums[4352], sums[0], 3840);
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<float, float, 4096>(sums[0], sums[4096], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(sums[512], sums[512], sums[4096], 3584);
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<float, float, 4096>(sums[4096], sums[0], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(sums[5120], sums[5120], sums[0], 3072);
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<float, float, 4096>(sums[0], sums[4096], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(sums[2048], sums[2048], sums[4096], 2048);
        AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
        tl::ascend::copy_ub_to_gm<float, 64, 64>(gates[((((((i * blocks) * 128) + ((begin / 64) * 64)) + (n * 64)) + ((((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2)) * 64)) * heads)], sums[0], heads, 64, heads);
        AscendC::SetFlag<AscendC::HardEvent::MTE3_MTE2>(1);
      }
    }
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_MTE2>(1);
  }
}

#include "ascend/generated/chunk_cumsum.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_chunk_cumsum_gates_f32(const gdn::ascend::ChunkCumsumArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(chunk_cumsum_gates_f32, a.blocks, stream, a.g.data, a.query_start_loc.data, a.gates.data, a.blocks, a.rows, a.start_pitch, a.tokens, a.g_pitch, a.starts, a.chunks, a.heads);
}
