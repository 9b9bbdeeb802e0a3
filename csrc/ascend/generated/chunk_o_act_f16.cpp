// Generated from python/gdn_aot/kernels/ascend/chunk_o.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void chunk_o_act_f16( GM_ADDR q_handle,  GM_ADDR k_handle,  GM_ADDR head_gates_handle,  GM_ADDR h_handle,  GM_ADDR v_new_handle,  GM_ADDR query_start_loc_handle,  GM_ADDR cache_indices_handle,  GM_ADDR out_handle,  GM_ADDR score_space_handle,  GM_ADDR query_space_handle,  GM_ADDR weight_space_handle, int32_t blocks, int32_t rows, int32_t start_pitch, int32_t index_pitch, int32_t q_head_pitch, int32_t k_head_pitch, int32_t ratio, float scale, int64_t tokens, int64_t q_pitch, int64_t k_pitch, int64_t chunks, int64_t heads, int64_t starts, int64_t indices, int64_t buffers, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<half> q;
  q.SetGlobalBuffer((__gm__ half*)q_handle);
  AscendC::GlobalTensor<half> k;
  k.SetGlobalBuffer((__gm__ half*)k_handle);
  AscendC::GlobalTensor<float> head_gates;
  head_gates.SetGlobalBuffer((__gm__ float*)head_gates_handle);
  AscendC::GlobalTensor<half> h;
  h.SetGlobalBuffer((__gm__ half*)h_handle);
  AscendC::GlobalTensor<half> v_new;
  v_new.SetGlobalBuffer((__gm__ half*)v_new_handle);
  AscendC::GlobalTensor<int> query_start_loc;
  query_start_loc.SetGlobalBuffer((__gm__ int*)query_start_loc_handle);
  AscendC::GlobalTensor<int> cache_indices;
  cache_indices.SetGlobalBuffer((__gm__ int*)cache_indices_handle);
  AscendC::GlobalTensor<half> out;
  out.SetGlobalBuffer((__gm__ half*)out_handle);
  AscendC::GlobalTensor<float> score_space;
  score_space.SetGlobalBuffer((__gm__ float*)score_space_handle);
  AscendC::GlobalTensor<half> query_space;
  query_space.SetGlobalBuffer((__gm__ half*)query_space_handle);
  AscendC::GlobalTensor<half> weight_space;
  weight_space.SetGlobalBuffer((__gm__ half*)weight_space_handle);

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
  auto q_l1 = ascend_l1.GetWithOffset<half>(8192, 0);
  auto k_l1 = ascend_l1.GetWithOffset<half>(8192, 16384);
  auto scores_l0 = ascend_l0c.GetWithOffset<float>(4096, 0);
  auto state_l1 = ascend_l1.GetWithOffset<half>(16384, 32768);
  auto new_l1 = ascend_l1.GetWithOffset<half>(8192, 65536);
  auto query_l1 = ascend_l1.GetWithOffset<half>(8192, 81920);
  auto weight_l1 = ascend_l1.GetWithOffset<half>(4096, 98304);
  auto sums = ascend_l0c.GetWithOffset<float>(8192, 16384);
  auto scores = ascend_ub.GetWithOffset<float>(4096, 0);
  auto mask = ascend_ub.GetWithOffset<float>(4096, 16384);
  auto pairs = ascend_ub.GetWithOffset<int>(128, 32768);
  auto zeros = ascend_ub.GetWithOffset<half>(8192, 33280);
  auto gates = ascend_ub.GetWithOffset<float>(64, 49664);
  auto queries_raw = ascend_ub.GetWithOffset<half>(8192, 49920);
  auto minus_gates = ascend_ub.GetWithOffset<float>(64, 66304);
  auto queries = ascend_ub.GetWithOffset<float>(8192, 66560);
  auto factors = ascend_ub.GetWithOffset<float>(64, 99328);
  auto factors_twice = ascend_ub.GetWithOffset<float>(128, 99584);
  auto space = ascend_ub.GetWithOffset<float>(1024, 100096);
  auto decay = ascend_ub.GetWithOffset<float>(4096, 104192);
  auto queries_out = ascend_ub.GetWithOffset<half>(8192, 120576);
  auto weights_out = ascend_ub.GetWithOffset<half>(4096, 136960);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIC {
    for (int32_t n = 0; n < rows; ++n) {
      int32_t begin = query_start_loc.GetValue((((int64_t)n) * ((int64_t)start_pitch)));
      int32_t length = (query_start_loc.GetValue(((((int64_t)n) + (int64_t)1) * ((int64_t)start_pitch))) - begin);
      int32_t slot = cache_indices.GetValue((((int64_t)n) * ((int64_t)index_pitch)));
      if (0 <= slot) {
        for (int32_t i = 0; i < ((((((((length + 63) / 64) * heads) + blocks) - (((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks)) - 1) / blocks) + 1); ++i) {
          if (i < (((((((length + 63) / 64) * heads) + blocks) - (((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks)) - 1) / blocks)) {
            tl::ascend::copy_gm_to_l1<half, 64, 128>(q_l1[0], q[(((((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads) * 64) + begin) * q_pitch) + (((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) % heads) / ratio) * q_head_pitch))], q_pitch, ((1 <= ((length / 64) - (((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads))) ? 64 : (length - ((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads) * 64))), 0, true);
            tl::ascend::copy_gm_to_l1<half, 64, 128>(k_l1[0], k[(((((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads) * 64) + begin) * k_pitch) + (((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) % heads) / ratio) * k_head_pitch))], k_pitch, ((1 <= ((length / 64) - (((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads))) ? 64 : (length - ((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads) * 64))), 0, true);
            tl::ascend::gemm_v0<half, float, 64, 64, 128, false, true>(q_l1[0], k_l1[0], scores_l0[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(score_space[((cid * 8192) + (((task + i) % 2) * 4096))], scores_l0[0], 64, 0, 0);
            AscendC::CrossCoreSetFlag<0x2, PIPE_FIX>(1);
          }
          if (0 < i) {
            int32_t side = ((cid * 2) + (((task + i) + 1) % 2));
            tl::ascend::copy_gm_to_l1<half, 128, 128>(state_l1[0], h[((((((begin / 64) + n) * heads) * 16384) + ((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) * 16384)) + (((i - 1) * blocks) * 16384))], 128, 0, 0, true);
            tl::ascend::copy_gm_to_l1<half, 64, 128>(new_l1[0], v_new[((((((begin / 64) + n) * heads) * 8192) + ((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) * 8192)) + (((i - 1) * blocks) * 8192))], 128, 0, 0, true);
            AscendC::CrossCoreWaitFlag(2);
            tl::ascend::copy_gm_to_l1<half, 64, 128>(query_l1[0], query_space[(side * 8192)], 128, 0, 0, true);
            tl::ascend::copy_gm_to_l1<half, 64, 64>(weight_l1[0], weight_space[(side * 4096)], 64, 0, 0, true);
            tl::ascend::gemm_v0<half, float, 64, 128, 128, false, true>(query_l1[0], state_l1[0], sums[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::gemm_v0<half, float, 64, 128, 64, false, false>(weight_l1[0], new_l1[0], sums[0], ascend_l0a, ascend_l0b, (bool)0);
            tl::ascend::copy_l0c_to_gm<float, half, layout::RowMajor, 64, 128>(out[((((((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) / heads) * 64) + begin) * heads) * 128) + ((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) % heads) * 128))], sums[0], (heads * 128), ((1 <= ((length / 64) - (((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) / heads))) ? 64 : (length - ((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) / heads) * 64))), 0);
          }
        }
        task = (task + (((((((length + 63) / 64) * heads) + blocks) - (((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks)) - 1) / blocks));
      }
    }
  }
  if ASCEND_IS_AIV {
    tl::ascend::Fill<float>(scores[0], 0.000000e+00f, 4096);
    tl::ascend::Fill<float>(mask[0], -1.000000e+30f, 4096);
    AscendC::PipeBarrier<PIPE_V>();
    for (int32_t i_1 = 0; i_1 < 64; ++i_1) {
      tl::ascend::Fill<float>(mask[(i_1 * 64)], 0.000000e+00f, (i_1 + 1));
    }
    AscendC::CreateVecIndex<int>(pairs[0], 0, 128);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftRight(pairs[0], pairs[0], 1, 128);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(pairs[0], pairs[0], 4, 128);
    }
    tl::ascend::copy_ub_to_ub<half, float, 4096>(zeros[0], scores[0], 1, 4096, 4096, 1, 4096, 4096);
    tl::ascend::copy_ub_to_ub<half, float, 4096>(zeros[4096], scores[0], 1, 4096, 4096, 1, 4096, 4096);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(2);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(2);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
    for (int32_t n_1 = 0; n_1 < rows; ++n_1) {
      int32_t begin_1 = query_start_loc.GetValue((((int64_t)n_1) * ((int64_t)start_pitch)));
      int32_t length_1 = (query_start_loc.GetValue(((((int64_t)n_1) + (int64_t)1) * ((int64_t)start_pitch))) - begin_1);
      int32_t slot_1 = cache_indices.GetValue((((int64_t)n_1) * ((int64_t)index_pitch)));
      if (0 <= slot_1) {
        for (int32_t i_2 = 0; i_2 < (((((((length_1 + 63) / 64) * heads) + blocks) - (((cid + blocks) - ((((begin_1 / 64) + n_1) * heads) % blocks)) % blocks)) - 1) / blocks); ++i_2) {
          AscendC::CrossCoreWaitFlag(1);
          if (((task + vid) % 2) == 0) {
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
            tl::ascend::copy_gm_to_ub<float, 4096, 1>(scores[0], score_space[((cid * 8192) + ((task % 2) * 4096))], 4096, 1, 4096, 0.000000e+00f);
            tl::ascend::copy_gm_to_ub<float, 64, 1>(gates[0], head_gates[((((((begin_1 / 64) + n_1) * heads) * 64) + ((((cid + blocks) - ((((begin_1 / 64) + n_1) * heads) % blocks)) % blocks) * 64)) + ((i_2 * blocks) * 64))], 64, 1, 64, 0.000000e+00f);
            tl::ascend::copy_gm_to_ub<half, 128, 64>(queries_raw[0], q[(((((((((cid + blocks) - ((((begin_1 / 64) + n_1) * heads) % blocks)) % blocks) + (i_2 * blocks)) / heads) * 64) + begin_1) * q_pitch) + (((((((cid + blocks) - ((((begin_1 / 64) + n_1) * heads) % blocks)) % blocks) + (i_2 * blocks)) % heads) / ratio) * q_head_pitch))], q_pitch, ((1 <= ((length_1 / 64) - (((((cid + blocks) - ((((begin_1 / 64) + n_1) * heads) % blocks)) % blocks) + (i_2 * blocks)) / heads))) ? 64 : (length_1 - ((((((cid + blocks) - ((((begin_1 / 64) + n_1) * heads) % blocks)) % blocks) + (i_2 * blocks)) / heads) * 64))), 128, half(0.000000e+00f));
            AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
            AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
            {
            AscendC::Muls(minus_gates[0], gates[0], -1.000000e+00f, 64);
            }
            tl::ascend::copy_ub_to_ub<float, half, 8192>(queries[0], queries_raw[0], 1, 8192, 8192, 1, 8192, 8192);
            AscendC::Exp(factors[0], gates[0], 64);
            AscendC::PipeBarrier<PIPE_V>();
            {
            AscendC::Muls(factors[0], factors[0], scale, 64);
            }
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Gather(factors_twice[0], factors[0], pairs[0], 0, 128);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::brcb<float>(space[0], factors_twice[0], 16, 1, 8);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::mul_mask<float>(queries[0], queries[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 128, 1, 1, 0, 8, 8, 1);
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
            AscendC::Mul(decay[0], decay[0], scores[0], 4096);
            AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
            AscendC::PipeBarrier<PIPE_V>();
            {
            AscendC::Muls(decay[0], decay[0], scale, 4096);
            }
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<half, float, 8192>(queries_out[0], queries[0], 1, 8192, 8192, 1, 8192, 8192);
            tl::ascend::copy_ub_to_ub<half, float, 4096>(weights_out[0], decay[0], 1, 4096, 4096, 1, 4096, 4096);
            AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
            int32_t side_1 = ((cid * 2) + (task % 2));
            tl::ascend::copy_ub_to_gm<half, 8192, 1>(query_space[(side_1 * 8192)], queries_out[0], 8192, 1, 8192);
            tl::ascend::copy_ub_to_gm<half, 4096, 1>(weight_space[(side_1 * 4096)], weights_out[0], 4096, 1, 4096);
          }
          AscendC::CrossCoreSetFlag<0x2, PIPE_MTE3>(2);
          task = (task + 1);
        }
      } else {
        for (int32_t t = 0; t < ((((((blocks * 2) + length_1) - vid) - (cid * 2)) - 1) / (blocks * 2)); ++t) {
          tl::ascend::copy_ub_to_gm<half, 8192, 1>(out[((((((cid * 2) + ((t * blocks) * 2)) + begin_1) + vid) * heads) * 128)], zeros[0], 8192, 1, (heads * 128));
        }
      }
    }
    int32_t end = query_start_loc.GetValue((((int64_t)rows) * ((int64_t)start_pitch)));
    for (int32_t t_1 = 0; t_1 < (((((((blocks * 2) + tokens) - end) - vid) - (cid * 2)) - 1) / (blocks * 2)); ++t_1) {
      tl::ascend::copy_ub_to_gm<half, 8192, 1>(out[((((((cid * 2) + ((t_1 * blocks) * 2)) + end) + vid) * heads) * 128)], zeros[0], 8192, 1, (heads * 128));
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
  }
}

#include "ascend/generated/chunk_o.hpp"
#include <gdn_ascend_launch.hpp>

void gdn::ascend::launch_chunk_o_act_f16(const ChunkOArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(chunk_o_act_f16, a.blocks, stream, a.q.data, a.k.data, a.head_gates.data, a.h.data, a.v_new.data, a.query_start_loc.data, a.cache_indices.data, a.out.data, a.score_space.data, a.query_space.data, a.weight_space.data, a.blocks, a.rows, a.start_pitch, a.index_pitch, a.q_head_pitch, a.k_head_pitch, a.ratio, a.scale, a.tokens, a.q_pitch, a.k_pitch, a.chunks, a.heads, a.starts, a.indices, a.buffers);
}
