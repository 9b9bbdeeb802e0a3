// Generated from python/gdn_aot/kernels/ascend/chunk_transpose.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void chunk_transpose_gates_f32( GM_ADDR gates_handle,  GM_ADDR beta_handle,  GM_ADDR query_start_loc_handle,  GM_ADDR head_gates_handle,  GM_ADDR head_beta_handle, int32_t blocks, int32_t rows, int32_t start_pitch, int64_t chunks, int64_t heads, int64_t tokens, int64_t beta_pitch, int64_t starts, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<float> gates;
  gates.SetGlobalBuffer((__gm__ float*)gates_handle);
  AscendC::GlobalTensor<float> beta;
  beta.SetGlobalBuffer((__gm__ float*)beta_handle);
  AscendC::GlobalTensor<int> query_start_loc;
  query_start_loc.SetGlobalBuffer((__gm__ int*)query_start_loc_handle);
  AscendC::GlobalTensor<float> head_gates;
  head_gates.SetGlobalBuffer((__gm__ float*)head_gates_handle);
  AscendC::GlobalTensor<float> head_beta;
  head_beta.SetGlobalBuffer((__gm__ float*)head_beta_handle);

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
  auto offsets = ascend_ub.GetWithOffset<int>(4096, 0);
  auto head_numbers = ascend_ub.GetWithOffset<int>(4096, 16384);
  auto by_token = ascend_ub.GetWithOffset<float>(8192, 32768);
  auto by_head = ascend_ub.GetWithOffset<float>(8192, 65536);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIV {
    AscendC::CreateVecIndex<int>(offsets[0], 0, 4096);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftRight(head_numbers[0], offsets[0], 6, 4096);
    {
    AscendC::Muls(offsets[0], offsets[0], 256, 4096);
    }
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(head_numbers[0], head_numbers[0], -16380, 4096);
    }
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Add(offsets[0], offsets[0], head_numbers[0], 4096);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t n = 0; n < rows; ++n) {
      int32_t begin = query_start_loc.GetValue((((int64_t)n) * ((int64_t)start_pitch)));
      int32_t length = (query_start_loc.GetValue(((((int64_t)n) + (int64_t)1) * ((int64_t)start_pitch))) - begin);
      for (int32_t i = 0; i < (((((blocks * 2) + ((length + 63) / 64)) - (((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2))) - 1) / (blocks * 2)); ++i) {
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
        tl::ascend::copy_gm_to_ub<float, 64, 64>(by_token[0], gates[((((((i * blocks) * 128) + ((begin / 64) * 64)) + (n * 64)) + ((((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2)) * 64)) * heads)], heads, 64, heads, 0.000000e+00f);
        tl::ascend::copy_gm_to_ub<float, 64, 64>(by_token[4096], beta[(((((i * blocks) * 128) + ((((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2)) * 64)) + begin) * beta_pitch)], beta_pitch, ((1 <= (((length / 64) - (((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2))) - ((i * blocks) * 2))) ? 64 : ((length - ((((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2)) * 64)) - ((i * blocks) * 128))), heads, 0.000000e+00f);
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
        AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
        AscendC::Gather(by_head[0], by_token[0], offsets[0], 0, 4096);
        AscendC::Gather(by_head[4096], by_token[0], offsets[0], 16384, 4096);
        AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
        AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
        tl::ascend::copy_ub_to_gm<float, 4096, 1>(head_gates[(((((((i * blocks) * 2) + (begin / 64)) + n) + (((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2))) * heads) * 64)], by_head[0], 4096, 1, (heads * 64));
        tl::ascend::copy_ub_to_gm<float, 4096, 1>(head_beta[(((((((i * blocks) * 2) + (begin / 64)) + n) + (((((cid * 2) + (blocks * 2)) + vid) - (((begin / 64) + n) % (blocks * 2))) % (blocks * 2))) * heads) * 64)], by_head[4096], 4096, 1, (heads * 64));
        AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
      }
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
  }
}

#include "ascend/generated/chunk_transpose.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_chunk_transpose_gates_f32(const gdn::ascend::ChunkTransposeArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(chunk_transpose_gates_f32, a.blocks, stream, a.gates.data, a.beta.data, a.query_start_loc.data, a.head_gates.data, a.head_beta.data, a.blocks, a.rows, a.start_pitch, a.chunks, a.heads, a.tokens, a.beta_pitch, a.starts);
}
