// Generated from python/gdn_aot/kernels/ascend/causal_conv1d.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void causal_conv1d_act_f16_window_bf16( GM_ADDR x_handle,  GM_ADDR weight_handle,  GM_ADDR bias_handle,  GM_ADDR conv_pool_handle,  GM_ADDR query_start_loc_handle,  GM_ADDR cache_indices_handle,  GM_ADDR has_initial_state_handle,  GM_ADDR track_slots_handle,  GM_ADDR track_lens_handle,  GM_ADDR out_handle, int32_t blocks, int32_t channel_lanes, int32_t row_lanes, int32_t rows, int32_t width, int32_t start_pitch, int32_t index_pitch, int32_t track_pitch, int32_t track_len_pitch, int32_t tracks, int32_t has_bias, int32_t has_pool, int32_t all_initial, int32_t silu, int64_t tokens, int64_t x_pitch, int64_t taps_size, int64_t channels, int64_t slots, int64_t pool_pitch, int64_t starts, int64_t indices, int64_t flags, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<half> x;
  x.SetGlobalBuffer((__gm__ half*)x_handle);
  AscendC::GlobalTensor<half> weight;
  weight.SetGlobalBuffer((__gm__ half*)weight_handle);
  AscendC::GlobalTensor<half> bias;
  bias.SetGlobalBuffer((__gm__ half*)bias_handle);
  AscendC::GlobalTensor<bfloat16_t> conv_pool;
  conv_pool.SetGlobalBuffer((__gm__ bfloat16_t*)conv_pool_handle);
  AscendC::GlobalTensor<int> query_start_loc;
  query_start_loc.SetGlobalBuffer((__gm__ int*)query_start_loc_handle);
  AscendC::GlobalTensor<int> cache_indices;
  cache_indices.SetGlobalBuffer((__gm__ int*)cache_indices_handle);
  AscendC::GlobalTensor<uint8_t> has_initial_state;
  has_initial_state.SetGlobalBuffer((__gm__ uint8_t*)has_initial_state_handle);
  AscendC::GlobalTensor<int> track_slots;
  track_slots.SetGlobalBuffer((__gm__ int*)track_slots_handle);
  AscendC::GlobalTensor<int> track_lens;
  track_lens.SetGlobalBuffer((__gm__ int*)track_lens_handle);
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
  auto order = ascend_ub.GetWithOffset<int>(256, 0);
  auto y = ascend_ub.GetWithOffset<float>(4096, 1024);
  auto zeros = ascend_ub.GetWithOffset<half>(256, 17408);
  auto taps_raw = ascend_ub.GetWithOffset<half>(1024, 17920);
  auto bias_raw = ascend_ub.GetWithOffset<half>(256, 19968);
  auto taps_flat = ascend_ub.GetWithOffset<float>(1024, 20480);
  auto bias_f32 = ascend_ub.GetWithOffset<float>(256, 24576);
  auto taps = ascend_ub.GetWithOffset<float>(1024, 25600);
  auto window_raw = ascend_ub.GetWithOffset<bfloat16_t>(768, 29696);
  auto x_raw = ascend_ub.GetWithOffset<half>(8192, 31232);
  auto history = ascend_ub.GetWithOffset<float>(4864, 47616);
  auto inputs_raw = ascend_ub.GetWithOffset<half>(768, 67072);
  auto inputs = ascend_ub.GetWithOffset<float>(768, 68608);
  auto new_window = ascend_ub.GetWithOffset<bfloat16_t>(768, 71680);
  auto denominator = ascend_ub.GetWithOffset<float>(4096, 73216);
  auto y_raw = ascend_ub.GetWithOffset<half>(8192, 89600);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIV {
    AscendC::CreateVecIndex<int>(order[0], 0, 256);
    tl::ascend::Fill<float>(y[0], 0.000000e+00f, 256);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(order[0], order[0], (width * 4), 256);
    }
    tl::ascend::copy_ub_to_ub<half, float, 256>(zeros[0], y[0], 1, 256, 256, 1, 256, 256);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(2);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(2);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(2);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t buffer = 0; buffer < 2; ++buffer) {
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>((buffer + 3));
      AscendC::SetFlag<AscendC::HardEvent::MTE3_V>((buffer + 3));
    }
    for (int32_t c = 0; c < ((((((channels + 255) / 256) + channel_lanes) - (((cid * 2) + vid) % channel_lanes)) - 1) / channel_lanes); ++c) {
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
      tl::ascend::copy_gm_to_ub<half, 1024, 1>(taps_raw[0], weight[((((((cid * 2) + vid) % channel_lanes) + (c * channel_lanes)) * width) * 256)], 1024, 1, (((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))) * width), half(0.000000e+00f));
      if (has_bias != 0) {
        tl::ascend::copy_gm_to_ub<half, 256, 1>(bias_raw[0], bias[(((((cid * 2) + vid) % channel_lanes) * 256) + ((c * channel_lanes) * 256))], 256, 1, ((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))), half(0.000000e+00f));
      }
      AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
      AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
      AscendC::PipeBarrier<PIPE_V>();
      tl::ascend::copy_ub_to_ub<float, half, 1024>(taps_flat[0], taps_raw[0], 1, 1024, 1024, 1, 1024, 1024);
      if (has_bias != 0) {
        tl::ascend::copy_ub_to_ub<float, half, 256>(bias_f32[0], bias_raw[0], 1, 256, 256, 1, 256, 256);
      } else {
        tl::ascend::Fill<float>(bias_f32[0], 0.000000e+00f, 256);
      }
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
      AscendC::PipeBarrier<PIPE_V>();
      for (int32_t j = 0; j < width; ++j) {
        AscendC::Gather(taps[(j * 256)], taps_flat[0], order[0], (j * 4), 256);
      }
      for (int32_t r = 0; r < (((((((((cid * 2) + vid) / channel_lanes) < row_lanes) ? rows : 0) + row_lanes) - (((cid * 2) + vid) / channel_lanes)) - 1) / row_lanes); ++r) {
        int32_t first = query_start_loc.GetValue((((((((int64_t)cid) * (int64_t)2) + ((int64_t)vid)) / ((int64_t)channel_lanes)) + (((int64_t)r) * ((int64_t)row_lanes))) * ((int64_t)start_pitch)));
        int32_t length = (query_start_loc.GetValue(((((((((int64_t)cid) * (int64_t)2) + ((int64_t)vid)) / ((int64_t)channel_lanes)) + (((int64_t)r) * ((int64_t)row_lanes))) + (int64_t)1) * ((int64_t)start_pitch))) - first);
        int32_t slot = cache_indices.GetValue((((((((int64_t)cid) * (int64_t)2) + ((int64_t)vid)) / ((int64_t)channel_lanes)) + (((int64_t)r) * ((int64_t)row_lanes))) * ((int64_t)index_pitch)));
        uchar resumes = has_initial_state.GetValue(((((((int64_t)cid) * (int64_t)2) + ((int64_t)vid)) / ((int64_t)channel_lanes)) + (((int64_t)r) * ((int64_t)row_lanes))));
        int32_t condval;
        if ((tracks != 0)) {
          condval = track_slots.GetValue((((((((int64_t)cid) * (int64_t)2) + ((int64_t)vid)) / ((int64_t)channel_lanes)) + (((int64_t)r) * ((int64_t)row_lanes))) * ((int64_t)track_pitch)));
        } else {
          condval = -1;
        }
        int32_t destination = condval;
        int32_t taken = track_lens.GetValue((((((((int64_t)cid) * (int64_t)2) + ((int64_t)vid)) / ((int64_t)channel_lanes)) + (((int64_t)r) * ((int64_t)row_lanes))) * ((int64_t)track_len_pitch)));
        if ((0 <= slot) && (slot < slots)) {
          AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(2);
          if ((has_pool != 0) && ((all_initial + ((int32_t)resumes)) != 0)) {
            for (int32_t j_1 = 0; j_1 < (width - 1); ++j_1) {
              tl::ascend::copy_gm_to_ub<bfloat16_t, 256, 1>(window_raw[(j_1 * 256)], conv_pool[(((((((cid * 2) + vid) % channel_lanes) * 256) + ((c * channel_lanes) * 256)) + (slot * pool_pitch)) + (j_1 * channels))], 256, 1, ((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))), bfloat16_t(0.000000e+00f));
            }
          }
          AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(2);
          if (0 < length) {
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(3);
            tl::ascend::copy_gm_to_ub<half, 256, 16>(x_raw[0], x[((((((cid * 2) + vid) % channel_lanes) * 256) + ((c * channel_lanes) * 256)) + (first * x_pitch))], x_pitch, ((16 <= length) ? 16 : length), ((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))), half(0.000000e+00f));
            AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(3);
          }
          AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(2);
          AscendC::PipeBarrier<PIPE_V>();
          if ((has_pool != 0) && ((all_initial + ((int32_t)resumes)) != 0)) {
            for (int32_t j_2 = 0; j_2 < (width - 1); ++j_2) {
              tl::ascend::copy_ub_to_ub<float, bfloat16_t, 256>(history[(j_2 * 256)], window_raw[(j_2 * 256)], 1, 256, 256, 1, 256, 256);
            }
          } else {
            tl::ascend::Fill<float>(history[0], 0.000000e+00f, 768);
          }
          AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(2);
          if ((((0 <= destination) && (destination < slots)) && (0 <= taken)) && (taken <= length)) {
            AscendC::PipeBarrier<PIPE_V>();
            for (int32_t j_3 = 0; j_3 < (width - 1); ++j_3) {
              if (width <= ((taken + j_3) + 1)) {
                tl::ascend::copy_gm_to_ub<half, 256, 1>(inputs_raw[(j_3 * 256)], x[((((((cid * 2) + vid) % channel_lanes) * 256) + ((c * channel_lanes) * 256)) + (((((first + taken) + j_3) + 1) - width) * x_pitch))], 256, 1, ((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))), half(0.000000e+00f));
              }
            }
            AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(5);
            AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(5);
            for (int32_t j_4 = 0; j_4 < (width - 1); ++j_4) {
              if (width <= ((taken + j_4) + 1)) {
                tl::ascend::copy_ub_to_ub<float, half, 256>(inputs[(j_4 * 256)], inputs_raw[(j_4 * 256)], 1, 256, 256, 1, 256, 256);
              } else {
                tl::ascend::copy_ub_to_ub<float, float, 256>(inputs[(j_4 * 256)], history[((taken * 256) + (j_4 * 256))], 1, 256, 256, 1, 256, 256);
              }
            }
            AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<bfloat16_t, float, 768>(new_window[0], inputs[0], 1, 768, 768, 1, 768, 768);
            AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
            for (int32_t j_5 = 0; j_5 < (width - 1); ++j_5) {
              tl::ascend::copy_ub_to_gm<bfloat16_t, 256, 1>(conv_pool[(((((((cid * 2) + vid) % channel_lanes) * 256) + ((c * channel_lanes) * 256)) + (destination * pool_pitch)) + (j_5 * channels))], new_window[(j_5 * 256)], 256, 1, ((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))));
            }
            AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
          }
          for (int32_t s = 0; s < ((length + 15) / 16); ++s) {
            if (16 < (length - (s * 16))) {
              AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>((4 - (s % 2)));
              tl::ascend::copy_gm_to_ub<half, 256, 16>(x_raw[(4096 - ((s % 2) * 4096))], x[((((((cid * 2) + vid) % channel_lanes) * 256) + ((c * channel_lanes) * 256)) + ((((s * 16) + first) + 16) * x_pitch))], x_pitch, ((32 <= (length - (s * 16))) ? 16 : ((length - (s * 16)) - 16)), ((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))), half(0.000000e+00f));
              AscendC::SetFlag<AscendC::HardEvent::MTE2_V>((4 - (s % 2)));
            }
            AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(((s % 2) + 3));
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<float, half, 4096>(history[((width * 256) - 256)], x_raw[((s % 2) * 4096)], 1, 4096, 4096, 1, 4096, 4096);
            AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(((s % 2) + 3));
            for (int32_t t = 0; t < 16; ++t) {
              tl::ascend::copy_ub_to_ub<float, float, 256>(y[(t * 256)], bias_f32[0], 1, 256, 256, 1, 256, 256);
            }
            for (int32_t j_6 = 0; j_6 < width; ++j_6) {
              AscendC::PipeBarrier<PIPE_V>();
              for (int32_t t_1 = 0; t_1 < 16; ++t_1) {
                AscendC::MulAddDst(y[(t_1 * 256)], taps[(j_6 * 256)], history[((t_1 * 256) + (j_6 * 256))], 256);
              }
            }
            AscendC::PipeBarrier<PIPE_V>();
            if (silu != 0) {
              {
              AscendC::Muls(denominator[0], y[0], -1.000000e+00f, 4096);
              }
              AscendC::PipeBarrier<PIPE_V>();
              AscendC::Exp(denominator[0], denominator[0], 4096);
              AscendC::PipeBarrier<PIPE_V>();
              {
              AscendC::Adds(denominator[0], denominator[0], 1.000000e+00f, 4096);
              }
              AscendC::PipeBarrier<PIPE_V>();
              AscendC::Div(y[0], y[0], denominator[0], 4096);
              AscendC::PipeBarrier<PIPE_V>();
            }
            AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(((s % 2) + 3));
            tl::ascend::copy_ub_to_ub<half, float, 4096>(y_raw[((s % 2) * 4096)], y[0], 1, 4096, 4096, 1, 4096, 4096);
            AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(((s % 2) + 3));
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(((s % 2) + 3));
            tl::ascend::copy_ub_to_gm<half, 256, 16>(out[((((((cid * 2) + vid) % channel_lanes) * 256) + ((c * channel_lanes) * 256)) + (((s * 16) + first) * channels))], y_raw[((s % 2) * 4096)], channels, ((1 <= ((length / 16) - s)) ? 16 : (length - (s * 16))), ((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))));
            AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(((s % 2) + 3));
            for (int32_t j_7 = 0; j_7 < (width - 1); ++j_7) {
              AscendC::PipeBarrier<PIPE_V>();
              tl::ascend::copy_ub_to_ub<float, float, 256>(history[(j_7 * 256)], history[((((1 <= ((length / 16) - s)) ? 16 : (length - (s * 16))) * 256) + (j_7 * 256))], 1, 256, 256, 1, 256, 256);
            }
          }
          if (has_pool != 0) {
            AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<bfloat16_t, float, 768>(new_window[0], history[0], 1, 768, 768, 1, 768, 768);
            AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
            for (int32_t j_8 = 0; j_8 < (width - 1); ++j_8) {
              tl::ascend::copy_ub_to_gm<bfloat16_t, 256, 1>(conv_pool[(((((((cid * 2) + vid) % channel_lanes) * 256) + ((c * channel_lanes) * 256)) + (slot * pool_pitch)) + (j_8 * channels))], new_window[(j_8 * 256)], 256, 1, ((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))));
            }
            AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
          }
        } else {
          for (int32_t t_2 = 0; t_2 < length; ++t_2) {
            tl::ascend::copy_ub_to_gm<half, 256, 1>(out[((((((cid * 2) + vid) % channel_lanes) * 256) + ((c * channel_lanes) * 256)) + ((first + t_2) * channels))], zeros[0], 256, 1, ((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))));
          }
        }
      }
      int32_t end = query_start_loc.GetValue((((int64_t)rows) * ((int64_t)start_pitch)));
      for (int32_t t_3 = 0; t_3 < ((((((((((cid * 2) + vid) / channel_lanes) < row_lanes) ? tokens : 0) + row_lanes) - end) - (((cid * 2) + vid) / channel_lanes)) - 1) / row_lanes); ++t_3) {
        tl::ascend::copy_ub_to_gm<half, 256, 1>(out[((((((cid * 2) + vid) % channel_lanes) * 256) + ((c * channel_lanes) * 256)) + (((end + (((cid * 2) + vid) / channel_lanes)) + (t_3 * row_lanes)) * channels))], zeros[0], 256, 1, ((1 <= (((channels / 256) - (((cid * 2) + vid) % channel_lanes)) - (c * channel_lanes))) ? 256 : ((channels - ((((cid * 2) + vid) % channel_lanes) * 256)) - ((c * channel_lanes) * 256))));
      }
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(2);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t buffer_1 = 0; buffer_1 < 2; ++buffer_1) {
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>((buffer_1 + 3));
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>((buffer_1 + 3));
    }
  }
}

#include "ascend/generated/causal_conv1d.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_causal_conv1d_act_f16_window_bf16(const gdn::ascend::CausalConv1dArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(causal_conv1d_act_f16_window_bf16, a.blocks, stream, a.x.data, a.weight.data, a.bias.data, a.conv_pool.data, a.query_start_loc.data, a.cache_indices.data, a.has_initial_state.data, a.track_slots.data, a.track_lens.data, a.out.data, a.blocks, a.channel_lanes, a.row_lanes, a.rows, a.width, a.start_pitch, a.index_pitch, a.track_pitch, a.track_len_pitch, a.tracks, a.has_bias, a.has_pool, a.all_initial, a.silu, a.tokens, a.x_pitch, a.taps_size, a.channels, a.slots, a.pool_pitch, a.starts, a.indices, a.flags);
}
