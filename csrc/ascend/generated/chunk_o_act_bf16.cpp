// Generated from python/gdn_aot/kernels/ascend/chunk_o.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include <gdn_ascend_tile.hpp>
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void chunk_o_act_bf16( GM_ADDR q_handle,  GM_ADDR k_handle,  GM_ADDR head_gates_handle,  GM_ADDR h_handle,  GM_ADDR v_new_handle,  GM_ADDR query_start_loc_handle,  GM_ADDR cache_indices_handle,  GM_ADDR out_handle,  GM_ADDR score_space_handle,  GM_ADDR diagonal_space_handle,  GM_ADDR weight_space_handle, int32_t blocks, int32_t rows, int32_t start_pitch, int32_t index_pitch, int32_t q_head_pitch, int32_t k_head_pitch, int32_t ratio, int32_t slots, float scale, int64_t tokens, int64_t q_pitch, int64_t k_pitch, int64_t chunks, int64_t heads, int64_t starts, int64_t indices, int64_t buffers, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<bfloat16_t> q;
  q.SetGlobalBuffer((__gm__ bfloat16_t*)q_handle);
  AscendC::GlobalTensor<bfloat16_t> k;
  k.SetGlobalBuffer((__gm__ bfloat16_t*)k_handle);
  AscendC::GlobalTensor<float> head_gates;
  head_gates.SetGlobalBuffer((__gm__ float*)head_gates_handle);
  AscendC::GlobalTensor<bfloat16_t> h;
  h.SetGlobalBuffer((__gm__ bfloat16_t*)h_handle);
  AscendC::GlobalTensor<bfloat16_t> v_new;
  v_new.SetGlobalBuffer((__gm__ bfloat16_t*)v_new_handle);
  AscendC::GlobalTensor<int> query_start_loc;
  query_start_loc.SetGlobalBuffer((__gm__ int*)query_start_loc_handle);
  AscendC::GlobalTensor<int> cache_indices;
  cache_indices.SetGlobalBuffer((__gm__ int*)cache_indices_handle);
  AscendC::GlobalTensor<bfloat16_t> out;
  out.SetGlobalBuffer((__gm__ bfloat16_t*)out_handle);
  AscendC::GlobalTensor<float> score_space;
  score_space.SetGlobalBuffer((__gm__ float*)score_space_handle);
  AscendC::GlobalTensor<bfloat16_t> diagonal_space;
  diagonal_space.SetGlobalBuffer((__gm__ bfloat16_t*)diagonal_space_handle);
  AscendC::GlobalTensor<bfloat16_t> weight_space;
  weight_space.SetGlobalBuffer((__gm__ bfloat16_t*)weight_space_handle);

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
  auto matrices_l1 = ascend_l1.GetWithOffset<bfloat16_t>(16640, 0);
  int task = 0;
  auto q_l1 = ascend_l1.GetWithOffset<bfloat16_t>(8192, 33280);
  auto k_l1 = ascend_l1.GetWithOffset<bfloat16_t>(8192, 49664);
  auto scores_l0 = ascend_l0c.GetWithOffset<float>(4096, 0);
  auto state_l1 = ascend_l1.GetWithOffset<bfloat16_t>(16384, 66048);
  auto new_l1 = ascend_l1.GetWithOffset<bfloat16_t>(16384, 98816);
  auto sums = ascend_l0c.GetWithOffset<float>(8192, 16384);
  auto query_l1 = ascend_l1.GetWithOffset<bfloat16_t>(8192, 131584);
  auto identity = ascend_ub.GetWithOffset<float>(4096, 0);
  auto scores = ascend_ub.GetWithOffset<float>(4096, 16384);
  auto pattern = ascend_ub.GetWithOffset<float>(1024, 32768);
  auto factor_offsets = ascend_ub.GetWithOffset<int>(1024, 36864);
  auto mask = ascend_ub.GetWithOffset<float>(4096, 40960);
  auto zeros = ascend_ub.GetWithOffset<bfloat16_t>(8192, 57344);
  auto gates = ascend_ub.GetWithOffset<float>(64, 73728);
  auto minus_gates = ascend_ub.GetWithOffset<float>(64, 73984);
  auto factors = ascend_ub.GetWithOffset<float>(64, 74240);
  auto rest = ascend_ub.GetWithOffset<float>(4096, 74496);
  auto diagonals = ascend_ub.GetWithOffset<bfloat16_t>(2048, 90880);
  auto decay = ascend_ub.GetWithOffset<float>(4096, 94976);
  auto space = ascend_ub.GetWithOffset<float>(512, 111360);
  auto weights = ascend_ub.GetWithOffset<bfloat16_t>(8192, 113408);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIC {
    tl::ascend::copy_gm_to_l1<bfloat16_t, 1040, 16>(matrices_l1[0], q[0], 16, 1, 0, true);
    for (int32_t n = 0; n < rows; ++n) {
      int32_t begin = query_start_loc.GetValue((((int64_t)n) * ((int64_t)start_pitch)));
      int32_t length = (query_start_loc.GetValue(((((int64_t)n) + (int64_t)1) * ((int64_t)start_pitch))) - begin);
      int32_t slot = cache_indices.GetValue((((int64_t)n) * ((int64_t)index_pitch)));
      if ((0 <= slot) && (slot < slots)) {
        for (int32_t i = 0; i < ((((((((length + 63) / 64) * heads) + blocks) - (((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks)) - 1) / blocks) + 1); ++i) {
          if (i < (((((((length + 63) / 64) * heads) + blocks) - (((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks)) - 1) / blocks)) {
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 128>(q_l1[0], q[(((((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads) * 64) + begin) * q_pitch) + (((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) % heads) / ratio) * q_head_pitch))], q_pitch, ((1 <= ((length / 64) - (((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads))) ? 64 : (length - ((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads) * 64))), 0, true);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 128>(k_l1[0], k[(((((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads) * 64) + begin) * k_pitch) + (((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) % heads) / ratio) * k_head_pitch))], k_pitch, ((1 <= ((length / 64) - (((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads))) ? 64 : (length - ((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + (i * blocks)) / heads) * 64))), 0, true);
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 64, 128, false, true>(q_l1[0], k_l1[0], scores_l0[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(score_space[((cid * 8192) + (((task + i) % 2) * 4096))], scores_l0[0], 64, 0, 0);
            AscendC::CrossCoreSetFlag<0x2, PIPE_FIX>(1);
          }
          if (0 < i) {
            int32_t side = ((cid * 2) + (((task + i) + 1) % 2));
            tl::ascend::copy_gm_to_l1<bfloat16_t, 128, 128>(state_l1[0], h[((((((begin / 64) + n) * heads) * 16384) + ((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) * 16384)) + (((i - 1) * blocks) * 16384))], 128, 0, 0, true);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 128>(new_l1[0], v_new[((((((begin / 64) + n) * heads) * 16384) + ((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) * 16384)) + (((i - 1) * blocks) * 16384))], 128, 0, 0, true);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 128>(new_l1[8192], v_new[(((((((begin / 64) + n) * heads) * 16384) + ((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) * 16384)) + (((i - 1) * blocks) * 16384)) + 8192)], 128, 0, 0, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 128>(q_l1[0], q[(((((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) / heads) * 64) + begin) * q_pitch) + (((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) % heads) / ratio) * q_head_pitch))], q_pitch, ((1 <= ((length / 64) - (((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) / heads))) ? 64 : (length - ((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) / heads) * 64))), 0, true);
            AscendC::CrossCoreWaitFlag(2);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[8448], diagonal_space[(side * 2048)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[9728], diagonal_space[((side * 2048) + 256)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[11008], diagonal_space[((side * 2048) + 512)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[12288], diagonal_space[((side * 2048) + 768)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[12544], diagonal_space[((side * 2048) + 1024)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[13824], diagonal_space[((side * 2048) + 1280)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[15104], diagonal_space[((side * 2048) + 1536)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[16384], diagonal_space[((side * 2048) + 1792)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 32>(matrices_l1[256], weight_space[(side * 8192)], 64, 32, 32, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(matrices_l1[768], weight_space[((side * 8192) + 2048)], 64, 32, 64, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 32>(matrices_l1[4352], weight_space[((side * 8192) + 4096)], 64, 32, 32, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(matrices_l1[4864], weight_space[((side * 8192) + 6144)], 64, 32, 64, false);
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[8448], q_l1[0], sums[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[12544], q_l1[0], sums[0], ascend_l0a, ascend_l0b, (bool)0);
            gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ bfloat16_t>(query_l1[0], sums[0], 64, 64, 128);
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 128, false, true>(query_l1[0], state_l1[0], sums[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[256], new_l1[0], sums[0], ascend_l0a, ascend_l0b, (bool)0);
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[4352], new_l1[0], sums[0], ascend_l0a, ascend_l0b, (bool)0);
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[256], new_l1[8192], sums[0], ascend_l0a, ascend_l0b, (bool)0);
            tl::ascend::copy_l0c_to_gm<float, bfloat16_t, layout::RowMajor, 64, 128>(out[((((((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) / heads) * 64) + begin) * heads) * 128) + ((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) % heads) * 128))], sums[0], (heads * 128), ((1 <= ((length / 64) - (((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) / heads))) ? 64 : (length - ((((((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks) + ((i - 1) * blocks)) / heads) * 64))), 0);
          }
        }
        task = (task + (((((((length + 63) / 64) * heads) + blocks) - (((cid + blocks) - ((((begin / 64) + n) * heads) % blocks)) % blocks)) - 1) / blocks));
      }
    }
  }
  if ASCEND_IS_AIV {
    tl::ascend::Fill<float>(identity[0], 0.000000e+00f, 4096);
    tl::ascend::Fill<float>(scores[0], 0.000000e+00f, 4096);
    AscendC::PipeBarrier<PIPE_V>();
    for (int32_t i_1 = 0; i_1 < 64; ++i_1) {
      tl::ascend::Fill<float>(identity[(i_1 * 64)], 1.000000e+00f, (i_1 + 1));
    }
    for (int32_t i_2 = 0; i_2 < 63; ++i_2) {
      tl::ascend::Fill<float>(scores[((i_2 * 64) + 64)], 1.000000e+00f, (i_2 + 1));
    }
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sub(identity[0], identity[0], scores[0], 4096);
    AscendC::PipeBarrier<PIPE_V>();
    for (int32_t i_3 = 0; i_3 < 64; ++i_3) {
      tl::ascend::copy_ub_to_ub<float, float, 16>(pattern[(i_3 * 16)], identity[((i_3 % 16) * 64)], 1, 16, 16, 1, 16, 16);
    }
    AscendC::CreateVecIndex<int>(factor_offsets[0], 0, 1024);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftRight(factor_offsets[0], factor_offsets[0], 4, 1024);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(factor_offsets[0], factor_offsets[0], 4, 1024);
    }
    tl::ascend::Fill<float>(scores[0], 0.000000e+00f, 4096);
    tl::ascend::Fill<float>(mask[0], -1.000000e+30f, 4096);
    AscendC::PipeBarrier<PIPE_V>();
    for (int32_t i_4 = 0; i_4 < 64; ++i_4) {
      tl::ascend::Fill<float>(mask[(i_4 * 64)], 0.000000e+00f, (i_4 + 1));
    }
    tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(zeros[0], scores[0], 1, 4096, 4096, 1, 4096, 4096);
    tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(zeros[4096], scores[0], 1, 4096, 4096, 1, 4096, 4096);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(2);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(2);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
    for (int32_t n_1 = 0; n_1 < rows; ++n_1) {
      int32_t begin_1 = query_start_loc.GetValue((((int64_t)n_1) * ((int64_t)start_pitch)));
      int32_t length_1 = (query_start_loc.GetValue(((((int64_t)n_1) + (int64_t)1) * ((int64_t)start_pitch))) - begin_1);
      int32_t slot_1 = cache_indices.GetValue((((int64_t)n_1) * ((int64_t)index_pitch)));
      if ((0 <= slot_1) && (slot_1 < slots)) {
        for (int32_t i_5 = 0; i_5 < (((((((length_1 + 63) / 64) * heads) + blocks) - (((cid + blocks) - ((((begin_1 / 64) + n_1) * heads) % blocks)) % blocks)) - 1) / blocks); ++i_5) {
          AscendC::CrossCoreWaitFlag(1);
          if (((task + vid) % 2) == 0) {
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
            tl::ascend::copy_gm_to_ub<float, 4096, 1>(scores[0], score_space[((cid * 8192) + ((task % 2) * 4096))], 4096, 1, 4096, 0.000000e+00f);
            tl::ascend::copy_gm_to_ub<float, 64, 1>(gates[0], head_gates[((((((begin_1 / 64) + n_1) * heads) * 64) + ((((cid + blocks) - ((((begin_1 / 64) + n_1) * heads) % blocks)) % blocks) * 64)) + ((i_5 * blocks) * 64))], 64, 1, 64, 0.000000e+00f);
            AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
            AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
            {
            AscendC::Muls(minus_gates[0], gates[0], -1.000000e+00f, 64);
            }
            AscendC::Exp(factors[0], gates[0], 64);
            AscendC::PipeBarrier<PIPE_V>();
            {
            AscendC::Muls(factors[0], factors[0], scale, 64);
            }
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Gather(rest[0], factors[0], factor_offsets[0], 0, 1024);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mul(rest[0], rest[0], pattern[0], 1024);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<bfloat16_t, float, 1024>(diagonals[0], rest[0], 1, 1024, 1024, 1, 1024, 1024);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<float, bfloat16_t, 1024>(rest[1024], diagonals[0], 1, 1024, 1024, 1, 1024, 1024);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Sub(rest[0], rest[0], rest[1024], 1024);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<bfloat16_t, float, 1024>(diagonals[1024], rest[0], 1, 1024, 1024, 1, 1024, 1024);
            for (int32_t i_6 = 0; i_6 < 64; ++i_6) {
              tl::ascend::copy_ub_to_ub<float, float, 64>(decay[(i_6 * 64)], minus_gates[0], 1, 64, 64, 1, 64, 64);
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
            tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(weights[0], decay[0], 1, 4096, 4096, 1, 4096, 4096);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<float, bfloat16_t, 4096>(rest[0], weights[0], 1, 4096, 4096, 1, 4096, 4096);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Sub(decay[0], decay[0], rest[0], 4096);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(weights[4096], decay[0], 1, 4096, 4096, 1, 4096, 4096);
            AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
            int32_t side_1 = ((cid * 2) + (task % 2));
            tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(diagonal_space[(side_1 * 2048)], diagonals[0], 2048, 1, 2048);
            tl::ascend::copy_ub_to_gm<bfloat16_t, 64, 32>(weight_space[(side_1 * 8192)], weights[0], 64, 32, 32);
            tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(weight_space[((side_1 * 8192) + 2048)], weights[2048], 2048, 1, 2048);
            tl::ascend::copy_ub_to_gm<bfloat16_t, 64, 32>(weight_space[((side_1 * 8192) + 4096)], weights[4096], 64, 32, 32);
            tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(weight_space[((side_1 * 8192) + 6144)], weights[6144], 2048, 1, 2048);
          }
          AscendC::CrossCoreSetFlag<0x2, PIPE_MTE3>(2);
          task = (task + 1);
        }
      } else {
        for (int32_t t = 0; t < ((((((blocks * 2) + length_1) - vid) - (cid * 2)) - 1) / (blocks * 2)); ++t) {
          tl::ascend::copy_ub_to_gm<bfloat16_t, 8192, 1>(out[((((((cid * 2) + ((t * blocks) * 2)) + begin_1) + vid) * heads) * 128)], zeros[0], 8192, 1, (heads * 128));
        }
      }
    }
    int32_t end = query_start_loc.GetValue((((int64_t)rows) * ((int64_t)start_pitch)));
    for (int32_t t_1 = 0; t_1 < (((((((blocks * 2) + tokens) - end) - vid) - (cid * 2)) - 1) / (blocks * 2)); ++t_1) {
      tl::ascend::copy_ub_to_gm<bfloat16_t, 8192, 1>(out[((((((cid * 2) + ((t_1 * blocks) * 2)) + end) + vid) * heads) * 128)], zeros[0], 8192, 1, (heads * 128));
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
  }
}

#include "ascend/generated/chunk_o.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_chunk_o_act_bf16(const gdn::ascend::ChunkOArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(chunk_o_act_bf16, a.blocks, stream, a.q.data, a.k.data, a.head_gates.data, a.h.data, a.v_new.data, a.query_start_loc.data, a.cache_indices.data, a.out.data, a.score_space.data, a.diagonal_space.data, a.weight_space.data, a.blocks, a.rows, a.start_pitch, a.index_pitch, a.q_head_pitch, a.k_head_pitch, a.ratio, a.slots, a.scale, a.tokens, a.q_pitch, a.k_pitch, a.chunks, a.heads, a.starts, a.indices, a.buffers);
}
