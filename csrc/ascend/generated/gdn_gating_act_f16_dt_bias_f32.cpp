// Generated from python/gdn_aot/kernels/ascend/gdn_gating.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void gdn_gating_act_f16_dt_bias_f32( GM_ADDR A_log_handle,  GM_ADDR a_handle,  GM_ADDR b_handle,  GM_ADDR dt_bias_weight_handle,  GM_ADDR g_handle,  GM_ADDR beta_handle, int32_t blocks, int64_t heads, int64_t tokens, int64_t a_pitch, int64_t b_pitch, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<float> A_log;
  A_log.SetGlobalBuffer((__gm__ float*)A_log_handle);
  AscendC::GlobalTensor<half> a;
  a.SetGlobalBuffer((__gm__ half*)a_handle);
  AscendC::GlobalTensor<half> b;
  b.SetGlobalBuffer((__gm__ half*)b_handle);
  AscendC::GlobalTensor<float> dt_bias_weight;
  dt_bias_weight.SetGlobalBuffer((__gm__ float*)dt_bias_weight_handle);
  AscendC::GlobalTensor<float> g;
  g.SetGlobalBuffer((__gm__ float*)g_handle);
  AscendC::GlobalTensor<float> beta;
  beta.SetGlobalBuffer((__gm__ float*)beta_handle);

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
  auto minus_rate = ascend_ub.GetWithOffset<float>(64, 0);
  auto bias_raw = ascend_ub.GetWithOffset<float>(64, 256);
  auto bias = ascend_ub.GetWithOffset<float>(64, 512);
  auto a_raw = ascend_ub.GetWithOffset<half>(1024, 768);
  auto b_raw = ascend_ub.GetWithOffset<half>(1024, 2816);
  auto log_decay = ascend_ub.GetWithOffset<float>(1024, 4864);
  auto strength = ascend_ub.GetWithOffset<float>(1024, 8960);
  auto y = ascend_ub.GetWithOffset<float>(1024, 13056);
  auto z = ascend_ub.GetWithOffset<float>(1024, 17152);
  auto series = ascend_ub.GetWithOffset<float>(1024, 21248);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIV {
    tl::ascend::copy_gm_to_ub<float, 64, 1>(minus_rate[0], A_log[0], 64, 1, heads, 0.000000e+00f);
    tl::ascend::copy_gm_to_ub<float, 64, 1>(bias_raw[0], dt_bias_weight[0], 64, 1, heads, 0.000000e+00f);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
    AscendC::Exp(minus_rate[0], minus_rate[0], 64);
    tl::ascend::copy_ub_to_ub<float, float, 64>(bias[0], bias_raw[0], 1, 64, 64, 1, 64, 64);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(minus_rate[0], minus_rate[0], -1.000000e+00f, 64);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t i = 0; i < ((((((blocks * 2) + ((tokens + 15) / 16)) - vid) - (cid * 2)) - 1) / (blocks * 2)); ++i) {
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
      tl::ascend::copy_gm_to_ub<half, 64, 16>(a_raw[0], a[(((((i * blocks) * 32) + (cid * 32)) + (vid * 16)) * a_pitch)], a_pitch, ((1 <= ((((tokens / 16) - vid) - ((i * blocks) * 2)) - (cid * 2))) ? 16 : (((tokens - (vid * 16)) - ((i * blocks) * 32)) - (cid * 32))), heads, half(0.000000e+00f));
      tl::ascend::copy_gm_to_ub<half, 64, 16>(b_raw[0], b[(((((i * blocks) * 32) + (cid * 32)) + (vid * 16)) * b_pitch)], b_pitch, ((1 <= ((((tokens / 16) - vid) - ((i * blocks) * 2)) - (cid * 2))) ? 16 : (((tokens - (vid * 16)) - ((i * blocks) * 32)) - (cid * 32))), heads, half(0.000000e+00f));
      AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(2);
      AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(2);
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
      tl::ascend::copy_ub_to_ub<float, half, 1024>(log_decay[0], a_raw[0], 1, 1024, 1024, 1, 1024, 1024);
      tl::ascend::copy_ub_to_ub<float, half, 1024>(strength[0], b_raw[0], 1, 1024, 1024, 1, 1024, 1024);
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
      AscendC::PipeBarrier<PIPE_V>();
      for (int32_t t = 0; t < 16; ++t) {
        AscendC::Add(log_decay[(t * 64)], log_decay[(t * 64)], bias[0], 64);
      }
      {
      AscendC::Muls(strength[0], strength[0], -1.000000e+00f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Abs(y[0], log_decay[0], 1024);
      AscendC::Exp(strength[0], strength[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Muls(y[0], y[0], -1.000000e+00f, 1024);
      }
      {
      AscendC::Maxs(log_decay[0], log_decay[0], 0.000000e+00f, 1024);
      }
      {
      AscendC::Adds(strength[0], strength[0], 1.000000e+00f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Exp(y[0], y[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Adds(z[0], y[0], 2.000000e+00f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Div(z[0], y[0], z[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(y[0], z[0], z[0], 1024);
      tl::ascend::Fill<float>(series[0], 5.882353e-02f, 1024);
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(series[0], series[0], y[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Adds(series[0], series[0], 6.666667e-02f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(series[0], series[0], y[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Adds(series[0], series[0], 7.692308e-02f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(series[0], series[0], y[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Adds(series[0], series[0], 9.090909e-02f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(series[0], series[0], y[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Adds(series[0], series[0], 1.111111e-01f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(series[0], series[0], y[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Adds(series[0], series[0], 1.428571e-01f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(series[0], series[0], y[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Adds(series[0], series[0], 2.000000e-01f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(series[0], series[0], y[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Adds(series[0], series[0], 3.333333e-01f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(series[0], series[0], y[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Adds(series[0], series[0], 1.000000e+00f, 1024);
      }
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(series[0], series[0], z[0], 1024);
      tl::ascend::Fill<float>(y[0], 1.000000e+00f, 1024);
      AscendC::PipeBarrier<PIPE_V>();
      {
      AscendC::Muls(series[0], series[0], 2.000000e+00f, 1024);
      }
      AscendC::Div(strength[0], y[0], strength[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Add(log_decay[0], log_decay[0], series[0], 1024);
      AscendC::PipeBarrier<PIPE_V>();
      for (int32_t t_1 = 0; t_1 < 16; ++t_1) {
        AscendC::Mul(log_decay[(t_1 * 64)], log_decay[(t_1 * 64)], minus_rate[0], 64);
      }
      AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
      tl::ascend::copy_ub_to_gm<float, 64, 16>(g[(((((i * blocks) * 32) + (cid * 32)) + (vid * 16)) * heads)], log_decay[0], heads, ((1 <= ((((tokens / 16) - vid) - ((i * blocks) * 2)) - (cid * 2))) ? 16 : (((tokens - (vid * 16)) - ((i * blocks) * 32)) - (cid * 32))), heads);
      tl::ascend::copy_ub_to_gm<float, 64, 16>(beta[(((((i * blocks) * 32) + (cid * 32)) + (vid * 16)) * heads)], strength[0], heads, ((1 <= ((((tokens / 16) - vid) - ((i * blocks) * 2)) - (cid * 2))) ? 16 : (((tokens - (vid * 16)) - ((i * blocks) * 32)) - (cid * 32))), heads);
      AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
  }
}

#include "ascend/generated/gdn_gating.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_gdn_gating_act_f16_dt_bias_f32(const gdn::ascend::GdnGatingArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(gdn_gating_act_f16_dt_bias_f32, a.blocks, stream, a.A_log.data, a.a.data, a.b.data, a.dt_bias_weight.data, a.g.data, a.beta.data, a.blocks, a.heads, a.tokens, a.a_pitch, a.b_pitch);
}
