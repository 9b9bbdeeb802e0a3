// Generated from python/gdn_aot/kernels/ascend/causal_conv1d_update.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void causal_conv1d_update_act_f16_window_f16( GM_ADDR x_handle,  GM_ADDR weight_handle,  GM_ADDR bias_handle,  GM_ADDR conv_pool_handle,  GM_ADDR cache_indices_handle,  GM_ADDR windows_handle,  GM_ADDR window_indices_handle,  GM_ADDR out_handle, int32_t blocks, int32_t channel_lanes, int32_t row_lanes, int32_t tokens, int32_t width, int32_t x_token_pitch, int32_t window_token_pitch, int32_t index_pitch, int32_t has_bias, int32_t silu, int32_t update_state, int32_t store_windows, int64_t rows, int64_t x_pitch, int64_t taps_size, int64_t channels, int64_t slots, int64_t pool_pitch, int64_t indices, int64_t spec_slots, int64_t windows_pitch, int64_t out_pitch, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<half> x;
  x.SetGlobalBuffer((__gm__ half*)x_handle);
  AscendC::GlobalTensor<half> weight;
  weight.SetGlobalBuffer((__gm__ half*)weight_handle);
  AscendC::GlobalTensor<half> bias;
  bias.SetGlobalBuffer((__gm__ half*)bias_handle);
  AscendC::GlobalTensor<half> conv_pool;
  conv_pool.SetGlobalBuffer((__gm__ half*)conv_pool_handle);
  AscendC::GlobalTensor<int> cache_indices;
  cache_indices.SetGlobalBuffer((__gm__ int*)cache_indices_handle);
  AscendC::GlobalTensor<half> windows;
  windows.SetGlobalBuffer((__gm__ half*)windows_handle);
  AscendC::GlobalTensor<int> window_indices;
  window_indices.SetGlobalBuffer((__gm__ int*)window_indices_handle);
  AscendC::GlobalTensor<half> out;
  out.SetGlobalBuffer((__gm__ half*)out_handle);

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
  auto order = ascend_ub.GetWithOffset<int>(512, 0);
  auto taps_raw = ascend_ub.GetWithOffset<half>(2048, 2048);
  auto bias_raw = ascend_ub.GetWithOffset<half>(512, 6144);
  auto taps_flat = ascend_ub.GetWithOffset<float>(2048, 7168);
  auto bias_f32 = ascend_ub.GetWithOffset<float>(512, 15360);
  auto taps = ascend_ub.GetWithOffset<float>(2048, 17408);
  auto x_raw = ascend_ub.GetWithOffset<half>(8192, 25600);
  auto window_raw = ascend_ub.GetWithOffset<half>(1536, 41984);
  auto history = ascend_ub.GetWithOffset<float>(9728, 45056);
  auto y = ascend_ub.GetWithOffset<float>(512, 83968);
  auto y_raw = ascend_ub.GetWithOffset<half>(8192, 88064);
  auto history_raw = ascend_ub.GetWithOffset<half>(9728, 104448);
  auto denominator = ascend_ub.GetWithOffset<float>(512, 86016);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIV {
    AscendC::CreateVecIndex<int>(order[0], 0, 512);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(order[0], order[0], (width * 4), 512);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(2);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t c = 0; c < ((((((channels + 511) / 512) + channel_lanes) - (((cid * 2) + vid) % channel_lanes)) - 1) / channel_lanes); ++c) {
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
      tl::ascend::copy_gm_to_ub<half, 2048, 1>(taps_raw[0], weight[((((((cid * 2) + vid) % channel_lanes) + (c * channel_lanes)) * width) * 512)], 2048, 1, (((1 <= (((channels / 512) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 512 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 512)) - ((c * channel_lanes) * 512))) * width), half(0.000000e+00f));
      if (has_bias != 0) {
        tl::ascend::copy_gm_to_ub<half, 512, 1>(bias_raw[0], bias[(((((cid * 2) + vid) % channel_lanes) * 512) + ((c * channel_lanes) * 512))], 512, 1, ((1 <= (((channels / 512) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 512 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 512)) - ((c * channel_lanes) * 512))), half(0.000000e+00f));
      }
      AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
      AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
      tl::ascend::copy_ub_to_ub<float, half, 2048>(taps_flat[0], taps_raw[0], 1, 2048, 2048, 1, 2048, 2048);
      if (has_bias != 0) {
        tl::ascend::copy_ub_to_ub<float, half, 512>(bias_f32[0], bias_raw[0], 1, 512, 512, 1, 512, 512);
      } else {
        tl::ascend::Fill<float>(bias_f32[0], 0.000000e+00f, 512);
      }
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
      AscendC::PipeBarrier<PIPE_V>();
      for (int32_t j = 0; j < width; ++j) {
        AscendC::Gather(taps[(j * 512)], taps_flat[0], order[0], (j * 4), 512);
      }
      for (int32_t r = 0; r < (((((((((cid * 2) + vid) / channel_lanes) < row_lanes) ? rows : 0) + row_lanes) - (((cid * 2) + vid) / channel_lanes)) - 1) / row_lanes); ++r) {
        int32_t slot = cache_indices.GetValue((((((((int64_t)cid) * (int64_t)2) + ((int64_t)vid)) / ((int64_t)channel_lanes)) + (((int64_t)r) * ((int64_t)row_lanes))) * ((int64_t)index_pitch)));
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(2);
        if ((0 <= slot) && (slot < slots)) {
          for (int32_t t = 0; t < tokens; ++t) {
            tl::ascend::copy_gm_to_ub<half, 512, 1>(x_raw[(t * 512)], x[(((((((cid * 2) + vid) % channel_lanes) * 512) + ((c * channel_lanes) * 512)) + (((((cid * 2) + vid) / channel_lanes) + (r * row_lanes)) * x_pitch)) + (t * x_token_pitch))], 512, 1, ((1 <= (((channels / 512) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 512 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 512)) - ((c * channel_lanes) * 512))), half(0.000000e+00f));
          }
          for (int32_t j_1 = 0; j_1 < (width - 1); ++j_1) {
            tl::ascend::copy_gm_to_ub<half, 512, 1>(window_raw[(j_1 * 512)], conv_pool[(((((((cid * 2) + vid) % channel_lanes) * 512) + ((c * channel_lanes) * 512)) + (slot * pool_pitch)) + (j_1 * channels))], 512, 1, ((1 <= (((channels / 512) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 512 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 512)) - ((c * channel_lanes) * 512))), half(0.000000e+00f));
          }
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(2);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(2);
        AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
        if ((0 <= slot) && (slot < slots)) {
          for (int32_t j_2 = 0; j_2 < (width - 1); ++j_2) {
            tl::ascend::copy_ub_to_ub<float, half, 512>(history[(j_2 * 512)], window_raw[(j_2 * 512)], 1, 512, 512, 1, 512, 512);
          }
          for (int32_t t_1 = 0; t_1 < tokens; ++t_1) {
            tl::ascend::copy_ub_to_ub<float, half, 512>(history[(((width * 512) + (t_1 * 512)) - 512)], x_raw[(t_1 * 512)], 1, 512, 512, 1, 512, 512);
          }
          for (int32_t t_2 = 0; t_2 < tokens; ++t_2) {
            tl::ascend::copy_ub_to_ub<float, float, 512>(y[0], bias_f32[0], 1, 512, 512, 1, 512, 512);
            for (int32_t j_3 = 0; j_3 < width; ++j_3) {
              AscendC::PipeBarrier<PIPE_V>();
              AscendC::MulAddDst(y[0], taps[(j_3 * 512)], history[((t_2 * 512) + (j_3 * 512))], 512);
            }
            AscendC::PipeBarrier<PIPE_V>();
            if (silu != 0) {
              {
              AscendC::Muls(denominator[0], y[0], -1.000000e+00f, 512);
              }
              AscendC::PipeBarrier<PIPE_V>();
              AscendC::Exp(denominator[0], denominator[0], 512);
              AscendC::PipeBarrier<PIPE_V>();
              {
              AscendC::Adds(denominator[0], denominator[0], 1.000000e+00f, 512);
              }
              AscendC::PipeBarrier<PIPE_V>();
              AscendC::Div(y[0], y[0], denominator[0], 512);
              AscendC::PipeBarrier<PIPE_V>();
            }
            tl::ascend::copy_ub_to_ub<half, float, 512>(y_raw[(t_2 * 512)], y[0], 1, 512, 512, 1, 512, 512);
            AscendC::PipeBarrier<PIPE_V>();
          }
          for (int32_t j_4 = 0; j_4 < ((width + tokens) - 1); ++j_4) {
            tl::ascend::copy_ub_to_ub<half, float, 512>(history_raw[(j_4 * 512)], history[(j_4 * 512)], 1, 512, 512, 1, 512, 512);
          }
        } else {
          tl::ascend::Fill<float>(y[0], 0.000000e+00f, 512);
          AscendC::PipeBarrier<PIPE_V>();
          for (int32_t t_3 = 0; t_3 < tokens; ++t_3) {
            tl::ascend::copy_ub_to_ub<half, float, 512>(y_raw[(t_3 * 512)], y[0], 1, 512, 512, 1, 512, 512);
          }
        }
        AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(2);
        AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
        for (int32_t t_4 = 0; t_4 < tokens; ++t_4) {
          tl::ascend::copy_ub_to_gm<half, 512, 1>(out[(((((((cid * 2) + vid) % channel_lanes) * 512) + ((c * channel_lanes) * 512)) + (((((cid * 2) + vid) / channel_lanes) + (r * row_lanes)) * out_pitch)) + (t_4 * channels))], y_raw[(t_4 * 512)], 512, 1, ((1 <= (((channels / 512) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 512 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 512)) - ((c * channel_lanes) * 512))));
        }
        if ((0 <= slot) && (slot < slots)) {
          if (update_state != 0) {
            for (int32_t j_5 = 0; j_5 < (width - 1); ++j_5) {
              tl::ascend::copy_ub_to_gm<half, 512, 1>(conv_pool[(((((((cid * 2) + vid) % channel_lanes) * 512) + ((c * channel_lanes) * 512)) + (slot * pool_pitch)) + (j_5 * channels))], history_raw[((tokens * 512) + (j_5 * 512))], 512, 1, ((1 <= (((channels / 512) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 512 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 512)) - ((c * channel_lanes) * 512))));
            }
          }
          if (store_windows != 0) {
            int32_t window_slot = window_indices.GetValue((((((((int64_t)cid) * (int64_t)2) + ((int64_t)vid)) / ((int64_t)channel_lanes)) + (((int64_t)r) * ((int64_t)row_lanes))) * ((int64_t)index_pitch)));
            if ((0 <= window_slot) && (window_slot < spec_slots)) {
              for (int32_t t_5 = 0; t_5 < tokens; ++t_5) {
                for (int32_t j_6 = 0; j_6 < (width - 1); ++j_6) {
                  tl::ascend::copy_ub_to_gm<half, 512, 1>(windows[((((((((cid * 2) + vid) % channel_lanes) * 512) + ((c * channel_lanes) * 512)) + (window_slot * windows_pitch)) + (t_5 * window_token_pitch)) + (j_6 * channels))], history_raw[(((t_5 * 512) + (j_6 * 512)) + 512)], 512, 1, ((1 <= (((channels / 512) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 512 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 512)) - ((c * channel_lanes) * 512))));
                }
              }
            }
          }
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
      }
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(2);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
  }
}

#include "ascend/generated/causal_conv1d_update.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_causal_conv1d_update_act_f16_window_f16(const gdn::ascend::CausalConv1dUpdateArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(causal_conv1d_update_act_f16_window_f16, a.blocks, stream, a.x.data, a.weight.data, a.bias.data, a.conv_pool.data, a.cache_indices.data, a.windows.data, a.window_indices.data, a.out.data, a.blocks, a.channel_lanes, a.row_lanes, a.tokens, a.width, a.x_token_pitch, a.window_token_pitch, a.index_pitch, a.has_bias, a.silu, a.update_state, a.store_windows, a.rows, a.x_pitch, a.taps_size, a.channels, a.slots, a.pool_pitch, a.indices, a.spec_slots, a.windows_pitch, a.out_pitch);
}
