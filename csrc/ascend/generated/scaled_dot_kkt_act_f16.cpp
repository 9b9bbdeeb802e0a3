// Generated from python/gdn_aot/kernels/ascend/scaled_dot_kkt.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void scaled_dot_kkt_act_f16( GM_ADDR k_handle,  GM_ADDR head_gates_handle,  GM_ADDR head_beta_handle,  GM_ADDR query_start_loc_handle,  GM_ADDR lower__handle,  GM_ADDR workspace_handle, int32_t blocks, int32_t rows, int32_t start_pitch, int32_t k_head_pitch, int32_t key_heads, int32_t ratio, int64_t tokens, int64_t k_pitch, int64_t chunks, int64_t heads, int64_t starts, int64_t buffers, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<half> k;
  k.SetGlobalBuffer((__gm__ half*)k_handle);
  AscendC::GlobalTensor<float> head_gates;
  head_gates.SetGlobalBuffer((__gm__ float*)head_gates_handle);
  AscendC::GlobalTensor<float> head_beta;
  head_beta.SetGlobalBuffer((__gm__ float*)head_beta_handle);
  AscendC::GlobalTensor<int> query_start_loc;
  query_start_loc.SetGlobalBuffer((__gm__ int*)query_start_loc_handle);
  AscendC::GlobalTensor<float> lower_;
  lower_.SetGlobalBuffer((__gm__ float*)lower__handle);
  AscendC::GlobalTensor<float> workspace;
  workspace.SetGlobalBuffer((__gm__ float*)workspace_handle);

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
  int task = 0;
  auto keys = ascend_l1.GetWithOffset<half>(8192, 0);
  auto sums = ascend_l0c.GetWithOffset<float>(4096, 0);
  auto mask = ascend_ub.GetWithOffset<float>(4096, 0);
  auto products = ascend_ub.GetWithOffset<float>(4096, 16384);
  auto minus_gates = ascend_ub.GetWithOffset<float>(64, 32768);
  auto beta = ascend_ub.GetWithOffset<float>(64, 33024);
  auto decay = ascend_ub.GetWithOffset<float>(4096, 33280);
  auto space = ascend_ub.GetWithOffset<float>(512, 49664);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIC {
    for (int32_t n = 0; n < rows; ++n) {
      int32_t begin = query_start_loc.GetValue((((int64_t)n) * ((int64_t)start_pitch)));
      int32_t length = (query_start_loc.GetValue(((((int64_t)n) + (int64_t)1) * ((int64_t)start_pitch))) - begin);
      for (int32_t i = 0; i < (((((((length + 63) / 64) * key_heads) + blocks) - (((cid + blocks) - ((((begin / 64) + n) * key_heads) % blocks)) % blocks)) - 1) / blocks); ++i) {
        tl::ascend::copy_gm_to_l1<half, 64, 128>(keys[0], k[(((((((((cid + blocks) - ((((begin / 64) + n) * key_heads) % blocks)) % blocks) + (i * blocks)) / key_heads) * 64) + begin) * k_pitch) + ((((((cid + blocks) - ((((begin / 64) + n) * key_heads) % blocks)) % blocks) + (i * blocks)) % key_heads) * k_head_pitch))], k_pitch, ((1 <= ((length / 64) - (((((cid + blocks) - ((((begin / 64) + n) * key_heads) % blocks)) % blocks) + (i * blocks)) / key_heads))) ? 64 : (length - ((((((cid + blocks) - ((((begin / 64) + n) * key_heads) % blocks)) % blocks) + (i * blocks)) / key_heads) * 64))), 0, true);
        tl::ascend::gemm_v0<half, float, 64, 64, 128, false, true>(keys[0], keys[0], sums[0], ascend_l0a, ascend_l0b, (bool)1);
        AscendC::CrossCoreWaitFlag(2);
        tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(workspace[((cid * 8192) + ((task % 2) * 4096))], sums[0], 64, 0, 0);
        AscendC::CrossCoreSetFlag<0x2, PIPE_FIX>(1);
        task = (task + 1);
      }
    }
    for (int32_t __1 = 0; __1 < 2; ++__1) {
      AscendC::CrossCoreWaitFlag(2);
    }
  }
  if ASCEND_IS_AIV {
    tl::ascend::Fill<float>(mask[0], -1.000000e+30f, 4096);
    AscendC::PipeBarrier<PIPE_V>();
    for (int32_t i_1 = 0; i_1 < 63; ++i_1) {
      tl::ascend::Fill<float>(mask[((i_1 * 64) + 64)], 0.000000e+00f, (i_1 + 1));
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t __2 = 0; __2 < 2; ++__2) {
      AscendC::CrossCoreSetFlag<0x2, PIPE_MTE2>(2);
    }
    for (int32_t n_1 = 0; n_1 < rows; ++n_1) {
      int32_t begin_1 = query_start_loc.GetValue((((int64_t)n_1) * ((int64_t)start_pitch)));
      int32_t length_1 = (query_start_loc.GetValue(((((int64_t)n_1) + (int64_t)1) * ((int64_t)start_pitch))) - begin_1);
      for (int32_t i_2 = 0; i_2 < (((((((length_1 + 63) / 64) * key_heads) + blocks) - (((cid + blocks) - ((((begin_1 / 64) + n_1) * key_heads) % blocks)) % blocks)) - 1) / blocks); ++i_2) {
        AscendC::CrossCoreWaitFlag(1);
        int32_t turn = ((vid + (task * ratio)) % 2);
        for (int32_t j = 0; j < (((ratio + 1) - turn) / 2); ++j) {
          AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
          tl::ascend::copy_gm_to_ub<float, 4096, 1>(products[0], workspace[((cid * 8192) + ((task % 2) * 4096))], 4096, 1, 4096, 0.000000e+00f);
          tl::ascend::copy_gm_to_ub<float, 64, 1>(minus_gates[0], head_gates[((((j * 128) + (((((begin_1 / 64) + n_1) + (((((cid + blocks) - ((((begin_1 / 64) + n_1) * key_heads) % blocks)) % blocks) + (i_2 * blocks)) / key_heads)) * heads) * 64)) + (((((((cid + blocks) - ((((begin_1 / 64) + n_1) * key_heads) % blocks)) % blocks) + (i_2 * blocks)) % key_heads) * ratio) * 64)) + (turn * 64))], 64, 1, 64, 0.000000e+00f);
          tl::ascend::copy_gm_to_ub<float, 64, 1>(beta[0], head_beta[((((j * 128) + (((((begin_1 / 64) + n_1) + (((((cid + blocks) - ((((begin_1 / 64) + n_1) * key_heads) % blocks)) % blocks) + (i_2 * blocks)) / key_heads)) * heads) * 64)) + (((((((cid + blocks) - ((((begin_1 / 64) + n_1) * key_heads) % blocks)) % blocks) + (i_2 * blocks)) % key_heads) * ratio) * 64)) + (turn * 64))], 64, 1, 64, 0.000000e+00f);
          AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
          AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
          {
          AscendC::Muls(minus_gates[0], minus_gates[0], -1.000000e+00f, 64);
          }
          AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
          AscendC::PipeBarrier<PIPE_V>();
          for (int32_t i_3 = 0; i_3 < 64; ++i_3) {
            tl::ascend::copy_ub_to_ub<float, float, 64>(decay[(i_3 * 64)], minus_gates[0], 1, 64, 64, 1, 64, 64);
          }
          tl::ascend::brcb<float>(space[0], minus_gates[0], 8, 1, 8);
          AscendC::PipeBarrier<PIPE_V>();
          tl::ascend::sub_mask<float>(decay[0], decay[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 64, 1, 1, 0, 8, 8, 1);
          AscendC::PipeBarrier<PIPE_V>();
          AscendC::Add(decay[0], decay[0], mask[0], 4096);
          AscendC::PipeBarrier<PIPE_V>();
          AscendC::Exp(decay[0], decay[0], 4096);
          AscendC::PipeBarrier<PIPE_V>();
          AscendC::Mul(decay[0], decay[0], products[0], 4096);
          tl::ascend::brcb<float>(space[0], beta[0], 8, 1, 8);
          AscendC::PipeBarrier<PIPE_V>();
          tl::ascend::mul_mask<float>(decay[0], decay[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 64, 1, 1, 0, 8, 8, 1);
          AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
          AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
          AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
          tl::ascend::copy_ub_to_gm<float, 4096, 1>(lower_[((((j * 8192) + (((((begin_1 / 64) + n_1) + (((((cid + blocks) - ((((begin_1 / 64) + n_1) * key_heads) % blocks)) % blocks) + (i_2 * blocks)) / key_heads)) * heads) * 4096)) + (((((((cid + blocks) - ((((begin_1 / 64) + n_1) * key_heads) % blocks)) % blocks) + (i_2 * blocks)) % key_heads) * ratio) * 4096)) + (turn * 4096))], decay[0], 4096, 1, 4096);
          AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
        }
        AscendC::CrossCoreSetFlag<0x2, PIPE_MTE2>(2);
        task = (task + 1);
      }
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
  }
}

#include "ascend/generated/scaled_dot_kkt.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_scaled_dot_kkt_act_f16(const gdn::ascend::ScaledDotKktArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(scaled_dot_kkt_act_f16, a.blocks, stream, a.k.data, a.head_gates.data, a.head_beta.data, a.query_start_loc.data, a.lower_.data, a.workspace.data, a.blocks, a.rows, a.start_pitch, a.k_head_pitch, a.key_heads, a.ratio, a.tokens, a.k_pitch, a.chunks, a.heads, a.starts, a.buffers);
}
