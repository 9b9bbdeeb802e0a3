// Generated from python/gdn_aot/kernels/ascend/chunk_h.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include <gdn_ascend_tile.hpp>
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void chunk_h_act_f16( GM_ADDR k_handle,  GM_ADDR v_handle,  GM_ADDR head_gates_handle,  GM_ADDR write_handle,  GM_ADDR w_handle,  GM_ADDR ssm_pool_handle,  GM_ADDR query_start_loc_handle,  GM_ADDR cache_indices_handle,  GM_ADDR has_initial_state_handle,  GM_ADDR h_handle,  GM_ADDR v_new_handle,  GM_ADDR diagonal_space_handle,  GM_ADDR state_space_handle,  GM_ADDR identity_space_handle, int32_t blocks, int32_t rows, int32_t start_pitch, int32_t index_pitch, int32_t k_head_pitch, int32_t v_head_pitch, int32_t ratio, int32_t all_initial, int32_t update_state, int64_t tokens, int64_t k_pitch, int64_t v_pitch, int64_t chunks, int64_t heads, int64_t slots, int64_t pool_pitch, int64_t starts, int64_t indices, int64_t flags, int64_t buffers, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<half> k;
  k.SetGlobalBuffer((__gm__ half*)k_handle);
  AscendC::GlobalTensor<half> v;
  v.SetGlobalBuffer((__gm__ half*)v_handle);
  AscendC::GlobalTensor<float> head_gates;
  head_gates.SetGlobalBuffer((__gm__ float*)head_gates_handle);
  AscendC::GlobalTensor<half> write;
  write.SetGlobalBuffer((__gm__ half*)write_handle);
  AscendC::GlobalTensor<half> w;
  w.SetGlobalBuffer((__gm__ half*)w_handle);
  AscendC::GlobalTensor<float> ssm_pool;
  ssm_pool.SetGlobalBuffer((__gm__ float*)ssm_pool_handle);
  AscendC::GlobalTensor<int> query_start_loc;
  query_start_loc.SetGlobalBuffer((__gm__ int*)query_start_loc_handle);
  AscendC::GlobalTensor<int> cache_indices;
  cache_indices.SetGlobalBuffer((__gm__ int*)cache_indices_handle);
  AscendC::GlobalTensor<uint8_t> has_initial_state;
  has_initial_state.SetGlobalBuffer((__gm__ uint8_t*)has_initial_state_handle);
  AscendC::GlobalTensor<half> h;
  h.SetGlobalBuffer((__gm__ half*)h_handle);
  AscendC::GlobalTensor<half> v_new;
  v_new.SetGlobalBuffer((__gm__ half*)v_new_handle);
  AscendC::GlobalTensor<half> diagonal_space;
  diagonal_space.SetGlobalBuffer((__gm__ half*)diagonal_space_handle);
  AscendC::GlobalTensor<float> state_space;
  state_space.SetGlobalBuffer((__gm__ float*)state_space_handle);
  AscendC::GlobalTensor<half> identity_space;
  identity_space.SetGlobalBuffer((__gm__ half*)identity_space_handle);

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
  auto negative_identity = ascend_l1.GetWithOffset<half>(4096, 0);
  auto matrices_l1 = ascend_l1.GetWithOffset<half>(16640, 8192);
  auto state_l1 = ascend_l1.GetWithOffset<half>(16384, 41472);
  auto k_l1 = ascend_l1.GetWithOffset<half>(8192, 74240);
  auto tokens_l0 = ascend_l0c.GetWithOffset<float>(8192, 0);
  auto key_l1 = ascend_l1.GetWithOffset<half>(16384, 90624);
  auto values_l1 = ascend_l1.GetWithOffset<half>(8192, 123392);
  auto w_l1 = ascend_l1.GetWithOffset<half>(8192, 139776);
  auto new_l1 = ascend_l1.GetWithOffset<half>(16384, 156160);
  auto state_l0 = ascend_l0c.GetWithOffset<float>(16384, 32768);
  auto identity = ascend_ub.GetWithOffset<float>(4096, 0);
  auto writes = ascend_ub.GetWithOffset<float>(8192, 16384);
  auto state_raw = ascend_ub.GetWithOffset<half>(8192, 49152);
  auto pattern = ascend_ub.GetWithOffset<float>(1024, 65536);
  auto factor_offsets = ascend_ub.GetWithOffset<int>(1024, 69632);
  auto state = ascend_ub.GetWithOffset<float>(8192, 73728);
  auto gates = ascend_ub.GetWithOffset<float>(64, 106496);
  auto factors = ascend_ub.GetWithOffset<float>(64, 106752);
  auto space = ascend_ub.GetWithOffset<float>(2048, 107008);
  auto diagonals = ascend_ub.GetWithOffset<half>(2048, 115200);
  auto decay = ascend_ub.GetWithOffset<float>(64, 119296);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIC {
    AscendC::CrossCoreWaitFlag(3);
    tl::ascend::copy_gm_to_l1<half, 64, 64>(negative_identity[0], identity_space[(cid * 4096)], 64, 0, 0, true);
    tl::ascend::copy_gm_to_l1<half, 1040, 16>(matrices_l1[0], identity_space[(cid * 4096)], 16, 1, 0, true);
    for (int32_t t = 0; t < (((((rows * heads) + blocks) - cid) - 1) / blocks); ++t) {
      int32_t begin = query_start_loc.GetValue((((((int64_t)cid) + (((int64_t)t) * ((int64_t)blocks))) / ((int64_t)heads)) * ((int64_t)start_pitch)));
      int32_t length = (query_start_loc.GetValue(((((((int64_t)cid) + (((int64_t)t) * ((int64_t)blocks))) / ((int64_t)heads)) + (int64_t)1) * ((int64_t)start_pitch))) - begin);
      int32_t slot = cache_indices.GetValue((((((int64_t)cid) + (((int64_t)t) * ((int64_t)blocks))) / ((int64_t)heads)) * ((int64_t)index_pitch)));
      if ((0 <= slot) && (slot < slots)) {
        for (int32_t c = 0; c < (((length + 63) / 64) + 1); ++c) {
          if (0 < c) {
            AscendC::CrossCoreWaitFlag(1);
            tl::ascend::copy_gm_to_l1<half, 128, 128>(state_l1[0], h[(((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) * 16384) + (((cid + (t * blocks)) % heads) * 16384))], 128, 0, 0, true);
            tl::ascend::copy_gm_to_l1<half, 64, 16>(matrices_l1[8448], diagonal_space[((cid * 4096) + (((c + 1) % 2) * 2048))], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<half, 64, 16>(matrices_l1[9728], diagonal_space[(((cid * 4096) + (((c + 1) % 2) * 2048)) + 256)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<half, 64, 16>(matrices_l1[11008], diagonal_space[(((cid * 4096) + (((c + 1) % 2) * 2048)) + 512)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<half, 64, 16>(matrices_l1[12288], diagonal_space[(((cid * 4096) + (((c + 1) % 2) * 2048)) + 768)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<half, 64, 16>(matrices_l1[12544], diagonal_space[(((cid * 4096) + (((c + 1) % 2) * 2048)) + 1024)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<half, 64, 16>(matrices_l1[13824], diagonal_space[(((cid * 4096) + (((c + 1) % 2) * 2048)) + 1280)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<half, 64, 16>(matrices_l1[15104], diagonal_space[(((cid * 4096) + (((c + 1) % 2) * 2048)) + 1536)], 16, 16, 16, false);
            tl::ascend::copy_gm_to_l1<half, 64, 16>(matrices_l1[16384], diagonal_space[(((cid * 4096) + (((c + 1) % 2) * 2048)) + 1792)], 16, 16, 16, false);
            tl::ascend::gemm_v0<half, float, 64, 128, 64, false, false>(matrices_l1[8448], k_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::gemm_v0<half, float, 64, 128, 64, false, false>(matrices_l1[12544], k_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ half>(key_l1[0], tokens_l0[0], 64, 64, 128);
            tl::ascend::gemm_v0<half, float, 64, 128, 64, false, false>(negative_identity[0], key_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ half>(key_l1[8192], tokens_l0[0], 64, 64, 128);
            tl::ascend::gemm_v0<half, float, 64, 128, 64, false, false>(matrices_l1[256], values_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::gemm_v0<half, float, 64, 128, 64, false, false>(matrices_l1[4352], values_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            tl::ascend::gemm_v0<half, float, 64, 128, 128, false, true>(w_l1[0], state_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ half>(new_l1[0], tokens_l0[0], 64, 64, 128);
            tl::ascend::copy_l0c_to_gm<float, half, layout::RowMajor, 64, 128>(v_new[(((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) * 16384) + (((cid + (t * blocks)) % heads) * 16384))], tokens_l0[0], 128, 0, 0);
            tl::ascend::gemm_v0<half, float, 64, 128, 64, false, false>(negative_identity[0], new_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ half>(new_l1[8192], tokens_l0[0], 64, 64, 128);
            tl::ascend::copy_l0c_to_gm<float, half, layout::RowMajor, 64, 128>(v_new[((((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) * 16384) + (((cid + (t * blocks)) % heads) * 16384)) + 8192)], tokens_l0[0], 128, 0, 0);
            tl::ascend::gemm_v0<half, float, 128, 128, 64, true, false>(new_l1[0], key_l1[0], state_l0[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::gemm_v0<half, float, 128, 128, 64, true, false>(new_l1[0], key_l1[8192], state_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            tl::ascend::gemm_v0<half, float, 128, 128, 64, true, false>(new_l1[8192], key_l1[0], state_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 128, 128>(state_space[(cid * 16384)], state_l0[0], 128, 0, 0);
            AscendC::CrossCoreSetFlag<0x2, PIPE_FIX>(2);
          }
          if ((c * 64) < length) {
            tl::ascend::copy_gm_to_l1<half, 64, 32>(matrices_l1[256], write[((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) * heads) * 8192) + (((cid + (t * blocks)) % heads) * 8192))], 64, 32, 32, false);
            tl::ascend::copy_gm_to_l1<half, 64, 64>(matrices_l1[768], write[(((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) * heads) * 8192) + (((cid + (t * blocks)) % heads) * 8192)) + 2048)], 64, 32, 64, false);
            tl::ascend::copy_gm_to_l1<half, 64, 32>(matrices_l1[4352], write[(((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) * heads) * 8192) + (((cid + (t * blocks)) % heads) * 8192)) + 4096)], 64, 32, 32, false);
            tl::ascend::copy_gm_to_l1<half, 64, 64>(matrices_l1[4864], write[(((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) * heads) * 8192) + (((cid + (t * blocks)) % heads) * 8192)) + 6144)], 64, 32, 64, false);
            tl::ascend::copy_gm_to_l1<half, 64, 128>(k_l1[0], k[((((c * 64) + begin) * k_pitch) + ((((cid + (t * blocks)) % heads) / ratio) * k_head_pitch))], k_pitch, ((1 <= ((length / 64) - c)) ? 64 : (length - (c * 64))), 0, true);
            tl::ascend::copy_gm_to_l1<half, 64, 128>(w_l1[0], w[((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) * heads) * 8192) + (((cid + (t * blocks)) % heads) * 8192))], 128, 0, 0, true);
            tl::ascend::copy_gm_to_l1<half, 64, 128>(values_l1[0], v[((((c * 64) + begin) * v_pitch) + (((cid + (t * blocks)) % heads) * v_head_pitch))], v_pitch, ((1 <= ((length / 64) - c)) ? 64 : (length - (c * 64))), 0, true);
          }
        }
      }
    }
  }
  if ASCEND_IS_AIV {
    tl::ascend::Fill<float>(identity[0], 0.000000e+00f, 4096);
    tl::ascend::Fill<float>(writes[0], 0.000000e+00f, 4096);
    AscendC::PipeBarrier<PIPE_V>();
    for (int32_t i = 0; i < 64; ++i) {
      tl::ascend::Fill<float>(identity[(i * 64)], 1.000000e+00f, (i + 1));
    }
    for (int32_t i_1 = 0; i_1 < 63; ++i_1) {
      tl::ascend::Fill<float>(writes[((i_1 * 64) + 64)], 1.000000e+00f, (i_1 + 1));
    }
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sub(identity[0], identity[0], writes[0], 4096);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(writes[0], identity[0], -1.000000e+00f, 4096);
    }
    AscendC::PipeBarrier<PIPE_V>();
    tl::ascend::copy_ub_to_ub<half, float, 4096>(state_raw[0], writes[0], 1, 4096, 4096, 1, 4096, 4096);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
    tl::ascend::copy_ub_to_gm<half, 2048, 1>(identity_space[((cid * 4096) + (vid * 2048))], state_raw[(vid * 2048)], 2048, 1, 2048);
    AscendC::CrossCoreSetFlag<0x2, PIPE_MTE3>(3);
    for (int32_t i_2 = 0; i_2 < 64; ++i_2) {
      tl::ascend::copy_ub_to_ub<float, float, 16>(pattern[(i_2 * 16)], identity[((i_2 % 16) * 64)], 1, 16, 16, 1, 16, 16);
    }
    AscendC::CreateVecIndex<int>(factor_offsets[0], 0, 1024);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftRight(factor_offsets[0], factor_offsets[0], 4, 1024);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(factor_offsets[0], factor_offsets[0], 4, 1024);
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t t_1 = 0; t_1 < (((((rows * heads) + blocks) - cid) - 1) / blocks); ++t_1) {
      int32_t begin_1 = query_start_loc.GetValue((((((int64_t)cid) + (((int64_t)t_1) * ((int64_t)blocks))) / ((int64_t)heads)) * ((int64_t)start_pitch)));
      int32_t length_1 = (query_start_loc.GetValue(((((((int64_t)cid) + (((int64_t)t_1) * ((int64_t)blocks))) / ((int64_t)heads)) + (int64_t)1) * ((int64_t)start_pitch))) - begin_1);
      int32_t slot_1 = cache_indices.GetValue((((((int64_t)cid) + (((int64_t)t_1) * ((int64_t)blocks))) / ((int64_t)heads)) * ((int64_t)index_pitch)));
      uchar resumes = has_initial_state.GetValue(((((int64_t)cid) + (((int64_t)t_1) * ((int64_t)blocks))) / ((int64_t)heads)));
      if ((0 <= slot_1) && (slot_1 < slots)) {
        AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
        if ((all_initial + ((int32_t)resumes)) != 0) {
          AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
          AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
          tl::ascend::copy_gm_to_ub<float, 8192, 1>(state[0], ssm_pool[(((((cid + (t_1 * blocks)) % heads) * 16384) + (vid * 8192)) + (slot_1 * pool_pitch))], 8192, 1, 8192, 0.000000e+00f);
          AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
          AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
        } else {
          tl::ascend::Fill<float>(state[0], 0.000000e+00f, 8192);
        }
        for (int32_t c_1 = 0; c_1 < (((length_1 + 63) / 64) + 1); ++c_1) {
          if (((c_1 * 64) < length_1) && (((c_1 + vid) % 2) == 0)) {
            tl::ascend::copy_gm_to_ub<float, 64, 1>(gates[0], head_gates[((((((begin_1 / 64) + ((cid + (t_1 * blocks)) / heads)) + c_1) * heads) * 64) + (((cid + (t_1 * blocks)) % heads) * 64))], 64, 1, 64, 0.000000e+00f);
            AscendC::SetFlag<AscendC::HardEvent::MTE2_S>(1);
            AscendC::WaitFlag<AscendC::HardEvent::MTE2_S>(1);
            {
            AscendC::Muls(factors[0], gates[0], -1.000000e+00f, 64);
            }
            AscendC::PipeBarrier<PIPE_V>();
            {
            AscendC::Adds(factors[0], factors[0], gates.GetValue(63), 64);
            }
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Exp(factors[0], factors[0], 64);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Gather(space[0], factors[0], factor_offsets[0], 0, 1024);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mul(space[0], space[0], pattern[0], 1024);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<half, float, 1024>(diagonals[0], space[0], 1, 1024, 1024, 1, 1024, 1024);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<float, half, 1024>(space[1024], diagonals[0], 1, 1024, 1024, 1, 1024, 1024);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Sub(space[0], space[0], space[1024], 1024);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<half, float, 1024>(diagonals[1024], space[0], 1, 1024, 1024, 1, 1024, 1024);
            AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
            tl::ascend::copy_ub_to_gm<half, 2048, 1>(diagonal_space[((cid * 4096) + ((c_1 % 2) * 2048))], diagonals[0], 2048, 1, 2048);
          }
          if (0 < c_1) {
            tl::ascend::copy_gm_to_ub<float, 64, 1>(decay[0], head_gates[(((((((begin_1 / 64) + ((cid + (t_1 * blocks)) / heads)) + c_1) - 1) * heads) * 64) + (((cid + (t_1 * blocks)) % heads) * 64))], 64, 1, 64, 0.000000e+00f);
            AscendC::CrossCoreWaitFlag(2);
            tl::ascend::copy_gm_to_ub<float, 8192, 1>(writes[0], state_space[((cid * 16384) + (vid * 8192))], 8192, 1, 8192, 0.000000e+00f);
            AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
            AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
            AscendC::Exp(decay[0], decay[0], 64);
            AscendC::SetFlag<AscendC::HardEvent::V_S>(1);
            AscendC::WaitFlag<AscendC::HardEvent::V_S>(1);
            {
            AscendC::Muls(state[0], state[0], decay.GetValue(63), 8192);
            }
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(state[0], state[0], writes[0], 8192);
          }
          if ((c_1 * 64) < length_1) {
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<half, float, 8192>(state_raw[0], state[0], 1, 8192, 8192, 1, 8192, 8192);
            AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(2);
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(2);
            tl::ascend::copy_ub_to_gm<half, 8192, 1>(h[(((((((begin_1 / 64) + ((cid + (t_1 * blocks)) / heads)) + c_1) * heads) * 16384) + (((cid + (t_1 * blocks)) % heads) * 16384)) + (vid * 8192))], state_raw[0], 8192, 1, 8192);
            AscendC::CrossCoreSetFlag<0x2, PIPE_MTE3>(1);
          }
        }
        if (update_state != 0) {
          AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(2);
          AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(2);
          tl::ascend::copy_ub_to_gm<float, 8192, 1>(ssm_pool[(((((cid + (t_1 * blocks)) % heads) * 16384) + (vid * 8192)) + (slot_1 * pool_pitch))], state[0], 8192, 1, 8192);
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
      }
    }
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
  }
}

#include "ascend/generated/chunk_h.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_chunk_h_act_f16(const gdn::ascend::ChunkHArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(chunk_h_act_f16, a.blocks, stream, a.k.data, a.v.data, a.head_gates.data, a.write.data, a.w.data, a.ssm_pool.data, a.query_start_loc.data, a.cache_indices.data, a.has_initial_state.data, a.h.data, a.v_new.data, a.diagonal_space.data, a.state_space.data, a.identity_space.data, a.blocks, a.rows, a.start_pitch, a.index_pitch, a.k_head_pitch, a.v_head_pitch, a.ratio, a.all_initial, a.update_state, a.tokens, a.k_pitch, a.v_pitch, a.chunks, a.heads, a.slots, a.pool_pitch, a.starts, a.indices, a.flags, a.buffers);
}
