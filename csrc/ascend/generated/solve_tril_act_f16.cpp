// Generated from python/gdn_aot/kernels/ascend/solve_tril.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void solve_tril_act_f16( GM_ADDR lower__handle,  GM_ADDR head_gates_handle,  GM_ADDR head_beta_handle,  GM_ADDR query_start_loc_handle,  GM_ADDR write_handle,  GM_ADDR erase_handle, int32_t blocks, int32_t rows, int32_t start_pitch, int64_t chunks, int64_t heads, int64_t starts, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<float> lower_;
  lower_.SetGlobalBuffer((__gm__ float*)lower__handle);
  AscendC::GlobalTensor<float> head_gates;
  head_gates.SetGlobalBuffer((__gm__ float*)head_gates_handle);
  AscendC::GlobalTensor<float> head_beta;
  head_beta.SetGlobalBuffer((__gm__ float*)head_beta_handle);
  AscendC::GlobalTensor<int> query_start_loc;
  query_start_loc.SetGlobalBuffer((__gm__ int*)query_start_loc_handle);
  AscendC::GlobalTensor<half> write;
  write.SetGlobalBuffer((__gm__ half*)write_handle);
  AscendC::GlobalTensor<half> erase;
  erase.SetGlobalBuffer((__gm__ half*)erase_handle);

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
  auto identity = ascend_ub.GetWithOffset<float>(4096, 0);
  auto products = ascend_ub.GetWithOffset<float>(4096, 16384);
  auto matrix = ascend_ub.GetWithOffset<float>(4096, 32768);
  auto factors = ascend_ub.GetWithOffset<float>(64, 49152);
  auto beta = ascend_ub.GetWithOffset<float>(64, 49408);
  auto inverse = ascend_ub.GetWithOffset<float>(4096, 49664);
  auto space = ascend_ub.GetWithOffset<float>(512, 66048);
  auto write_parts = ascend_ub.GetWithOffset<half>(8192, 68096);
  auto erase_parts = ascend_ub.GetWithOffset<half>(8192, 84480);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIV {
    tl::ascend::Fill<float>(identity[0], 0.000000e+00f, 4096);
    tl::ascend::Fill<float>(products[0], 0.000000e+00f, 4096);
    AscendC::PipeBarrier<PIPE_V>();
    for (int32_t i = 0; i < 64; ++i) {
      tl::ascend::Fill<float>(identity[(i * 64)], 1.000000e+00f, (i + 1));
    }
    for (int32_t i_1 = 0; i_1 < 63; ++i_1) {
      tl::ascend::Fill<float>(products[((i_1 * 64) + 64)], 1.000000e+00f, (i_1 + 1));
    }
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sub(identity[0], identity[0], products[0], 4096);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t n = 0; n < rows; ++n) {
      int32_t begin = query_start_loc.GetValue((((int64_t)n) * ((int64_t)start_pitch)));
      int32_t length = (query_start_loc.GetValue(((((int64_t)n) + (int64_t)1) * ((int64_t)start_pitch))) - begin);
      for (int32_t i_2 = 0; i_2 < (((((blocks * 2) + (((length + 63) / 64) * heads)) - (((((cid * 2) + (blocks * 2)) + vid) - ((((begin / 64) + n) * heads) % (blocks * 2))) % (blocks * 2))) - 1) / (blocks * 2)); ++i_2) {
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
        tl::ascend::copy_gm_to_ub<float, 4096, 1>(matrix[0], lower_[((((i_2 * blocks) * 8192) + ((((begin / 64) + n) * heads) * 4096)) + ((((((cid * 2) + (blocks * 2)) + vid) - ((((begin / 64) + n) * heads) % (blocks * 2))) % (blocks * 2)) * 4096))], 4096, 1, 4096, 0.000000e+00f);
        tl::ascend::copy_gm_to_ub<float, 64, 1>(factors[0], head_gates[((((i_2 * blocks) * 128) + ((((begin / 64) + n) * heads) * 64)) + ((((((cid * 2) + (blocks * 2)) + vid) - ((((begin / 64) + n) * heads) % (blocks * 2))) % (blocks * 2)) * 64))], 64, 1, 64, 0.000000e+00f);
        tl::ascend::copy_gm_to_ub<float, 64, 1>(beta[0], head_beta[((((i_2 * blocks) * 128) + ((((begin / 64) + n) * heads) * 64)) + ((((((cid * 2) + (blocks * 2)) + vid) - ((((begin / 64) + n) * heads) % (blocks * 2))) % (blocks * 2)) * 64))], 64, 1, 64, 0.000000e+00f);
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
        tl::ascend::Fill<float>(inverse[0], 0.000000e+00f, 4096);
        for (int32_t i_3 = 0; i_3 < 16; ++i_3) {
          tl::ascend::brcb<float>(space[0], matrix[(i_3 * 64)], 2, 1, 8);
          AscendC::PipeBarrier<PIPE_V>();
          tl::ascend::mul_mask<float>(products[0], inverse[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 16, 1, 1, 0, 8, 8, 1);
          for (int32_t step = 0; step < 4; ++step) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(products[0], products[0], products[((16 >> (step + 1)) * 64)], ((16 >> (step + 1)) * 64));
          }
          AscendC::PipeBarrier<PIPE_V>();
          AscendC::Sub(inverse[(i_3 * 64)], identity[(i_3 * 64)], products[0], 64);
        }
        for (int32_t i_4 = 0; i_4 < 16; ++i_4) {
          tl::ascend::brcb<float>(space[0], matrix[((i_4 * 64) + 1024)], 4, 1, 8);
          AscendC::PipeBarrier<PIPE_V>();
          tl::ascend::mul_mask<float>(products[0], inverse[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 32, 1, 1, 0, 8, 8, 1);
          for (int32_t step_1 = 0; step_1 < 5; ++step_1) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(products[0], products[0], products[((32 >> (step_1 + 1)) * 64)], ((32 >> (step_1 + 1)) * 64));
          }
          AscendC::PipeBarrier<PIPE_V>();
          AscendC::Sub(inverse[((i_4 * 64) + 1024)], identity[((i_4 * 64) + 1024)], products[0], 64);
        }
        for (int32_t i_5 = 0; i_5 < 32; ++i_5) {
          tl::ascend::brcb<float>(space[0], matrix[((i_5 * 64) + 2048)], 8, 1, 8);
          AscendC::PipeBarrier<PIPE_V>();
          tl::ascend::mul_mask<float>(products[0], inverse[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 64, 1, 1, 0, 8, 8, 1);
          for (int32_t step_2 = 0; step_2 < 6; ++step_2) {
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(products[0], products[0], products[((64 >> (step_2 + 1)) * 64)], ((64 >> (step_2 + 1)) * 64));
          }
          AscendC::PipeBarrier<PIPE_V>();
          AscendC::Sub(inverse[((i_5 * 64) + 2048)], identity[((i_5 * 64) + 2048)], products[0], 64);
        }
        AscendC::Exp(factors[0], factors[0], 64);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(factors[0], factors[0], beta[0], 64);
        for (int32_t i_6 = 0; i_6 < 64; ++i_6) {
          AscendC::Mul(products[(i_6 * 64)], inverse[(i_6 * 64)], beta[0], 64);
        }
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Muls(factors[0], factors[0], -1.000000e+00f, 64);
        }
        AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
        tl::ascend::copy_ub_to_ub<half, float, 4096>(write_parts[0], products[0], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<float, half, 4096>(matrix[0], write_parts[0], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(products[0], products[0], matrix[0], 4096);
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<half, float, 4096>(write_parts[4096], products[0], 1, 4096, 4096, 1, 4096, 4096);
        for (int32_t i_7 = 0; i_7 < 64; ++i_7) {
          AscendC::Mul(inverse[(i_7 * 64)], inverse[(i_7 * 64)], factors[0], 64);
        }
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<half, float, 4096>(erase_parts[0], inverse[0], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<float, half, 4096>(matrix[0], erase_parts[0], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Sub(inverse[0], inverse[0], matrix[0], 4096);
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<half, float, 4096>(erase_parts[4096], inverse[0], 1, 4096, 4096, 1, 4096, 4096);
        AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
        AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
        tl::ascend::copy_ub_to_gm<half, 8192, 1>(write[((((i_2 * blocks) * 16384) + ((((begin / 64) + n) * heads) * 8192)) + ((((((cid * 2) + (blocks * 2)) + vid) - ((((begin / 64) + n) * heads) % (blocks * 2))) % (blocks * 2)) * 8192))], write_parts[0], 8192, 1, 8192);
        tl::ascend::copy_ub_to_gm<half, 8192, 1>(erase[((((i_2 * blocks) * 16384) + ((((begin / 64) + n) * heads) * 8192)) + ((((((cid * 2) + (blocks * 2)) + vid) - ((((begin / 64) + n) * heads) % (blocks * 2))) % (blocks * 2)) * 8192))], erase_parts[0], 8192, 1, 8192);
        AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
      }
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
  }
}

#include "ascend/generated/solve_tril.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_solve_tril_act_f16(const gdn::ascend::SolveTrilArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(solve_tril_act_f16, a.blocks, stream, a.lower_.data, a.head_gates.data, a.head_beta.data, a.query_start_loc.data, a.write.data, a.erase.data, a.blocks, a.rows, a.start_pitch, a.chunks, a.heads, a.starts);
}
