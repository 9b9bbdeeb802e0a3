// Generated from python/gdn_aot/kernels/ascend/fused_sigmoid_gating_delta_rule_update.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void fused_sigmoid_gating_delta_rule_update_act_f16_dt_bias_f16( GM_ADDR q_handle,  GM_ADDR k_handle,  GM_ADDR v_handle,  GM_ADDR a_handle,  GM_ADDR b_handle,  GM_ADDR A_log_handle,  GM_ADDR dt_bias_weight_handle,  GM_ADDR ssm_pool_handle,  GM_ADDR cache_indices_handle,  GM_ADDR states_handle,  GM_ADDR state_indices_handle,  GM_ADDR out_handle, int32_t blocks, int32_t tokens, int32_t ratio, int32_t q_token_pitch, int32_t q_head_pitch, int32_t k_token_pitch, int32_t k_head_pitch, int32_t v_token_pitch, int32_t v_head_pitch, int32_t a_token_pitch, int32_t b_token_pitch, int32_t index_pitch, int32_t l2norm, int32_t update_state, int32_t store_states, float scale, int64_t rows, int64_t q_pitch, int64_t k_pitch, int64_t v_pitch, int64_t a_pitch, int64_t b_pitch, int64_t heads, int64_t slots, int64_t pool_pitch, int64_t indices, int64_t spec_slots, int64_t states_pitch, int64_t state_token_pitch, int64_t out_pitch, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<half> q;
  q.SetGlobalBuffer((__gm__ half*)q_handle);
  AscendC::GlobalTensor<half> k;
  k.SetGlobalBuffer((__gm__ half*)k_handle);
  AscendC::GlobalTensor<half> v;
  v.SetGlobalBuffer((__gm__ half*)v_handle);
  AscendC::GlobalTensor<half> a;
  a.SetGlobalBuffer((__gm__ half*)a_handle);
  AscendC::GlobalTensor<half> b;
  b.SetGlobalBuffer((__gm__ half*)b_handle);
  AscendC::GlobalTensor<float> A_log;
  A_log.SetGlobalBuffer((__gm__ float*)A_log_handle);
  AscendC::GlobalTensor<half> dt_bias_weight;
  dt_bias_weight.SetGlobalBuffer((__gm__ half*)dt_bias_weight_handle);
  AscendC::GlobalTensor<float> ssm_pool;
  ssm_pool.SetGlobalBuffer((__gm__ float*)ssm_pool_handle);
  AscendC::GlobalTensor<int> cache_indices;
  cache_indices.SetGlobalBuffer((__gm__ int*)cache_indices_handle);
  AscendC::GlobalTensor<float> states;
  states.SetGlobalBuffer((__gm__ float*)states_handle);
  AscendC::GlobalTensor<int> state_indices;
  state_indices.SetGlobalBuffer((__gm__ int*)state_indices_handle);
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
  auto pairs = ascend_ub.GetWithOffset<int>(128, 0);
  auto minus_rate = ascend_ub.GetWithOffset<float>(64, 512);
  auto bias_raw = ascend_ub.GetWithOffset<half>(64, 768);
  auto bias = ascend_ub.GetWithOffset<float>(64, 896);
  auto q_raw = ascend_ub.GetWithOffset<half>(2048, 1152);
  auto k_raw = ascend_ub.GetWithOffset<half>(2048, 5248);
  auto v_raw = ascend_ub.GetWithOffset<half>(2048, 9344);
  auto gate_raw = ascend_ub.GetWithOffset<half>(1024, 13440);
  auto beta_raw = ascend_ub.GetWithOffset<half>(1024, 15488);
  auto state = ascend_ub.GetWithOffset<float>(16384, 17536);
  auto queries = ascend_ub.GetWithOffset<float>(8192, 83072);
  auto beta = ascend_ub.GetWithOffset<float>(1024, 115840);
  auto gate = ascend_ub.GetWithOffset<float>(1024, 119936);
  auto row = ascend_ub.GetWithOffset<float>(128, 124032);
  auto key = ascend_ub.GetWithOffset<float>(128, 124544);
  auto dots = ascend_ub.GetWithOffset<float>(384, 125056);
  auto o = ascend_ub.GetWithOffset<float>(64, 193408);
  auto o_raw = ascend_ub.GetWithOffset<half>(128, 194176);
  auto value = ascend_ub.GetWithOffset<float>(64, 126592);
  auto keys = ascend_ub.GetWithOffset<float>(8192, 126848);
  auto products = ascend_ub.GetWithOffset<float>(8192, 159616);
  auto old_k = ascend_ub.GetWithOffset<float>(64, 192384);
  auto sums = ascend_ub.GetWithOffset<float>(64, 192640);
  auto old_q = ascend_ub.GetWithOffset<float>(64, 192896);
  auto delta = ascend_ub.GetWithOffset<float>(64, 193152);
  auto delta_twice = ascend_ub.GetWithOffset<float>(128, 193664);
  auto spread = ascend_ub.GetWithOffset<float>(1024, 13440);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIV {
    AscendC::CreateVecIndex<int>(pairs[0], 0, 128);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftRight(pairs[0], pairs[0], 1, 128);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(pairs[0], pairs[0], 4, 128);
    }
    tl::ascend::copy_gm_to_ub<float, 64, 1>(minus_rate[0], A_log[0], 64, 1, heads, 0.000000e+00f);
    tl::ascend::copy_gm_to_ub<half, 64, 1>(bias_raw[0], dt_bias_weight[0], 64, 1, heads, half(0.000000e+00f));
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
    AscendC::Exp(minus_rate[0], minus_rate[0], 64);
    tl::ascend::copy_ub_to_ub<float, half, 64>(bias[0], bias_raw[0], 1, 64, 64, 1, 64, 64);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(minus_rate[0], minus_rate[0], -1.000000e+00f, 64);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t half = 0; half < 2; ++half) {
      AscendC::SetFlag<AscendC::HardEvent::MTE3_MTE2>((half + 1));
    }
    for (int32_t i = 0; i < ((((((blocks * 2) + (rows * heads)) - vid) - (cid * 2)) - 1) / (blocks * 2)); ++i) {
      int32_t slot = cache_indices.GetValue(((((((((int64_t)i) * ((int64_t)blocks)) * (int64_t)2) + (((int64_t)cid) * (int64_t)2)) + ((int64_t)vid)) / ((int64_t)heads)) * ((int64_t)index_pitch)));
      if ((0 <= slot) && (slot < slots)) {
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
        for (int32_t t = 0; t < tokens; ++t) {
          tl::ascend::copy_gm_to_ub<half, 128, 1>(q_raw[(t * 128)], q[((((((((i * blocks) * 2) + (cid * 2)) + vid) / heads) * q_pitch) + (t * q_token_pitch)) + (((((((i * blocks) * 2) + (cid * 2)) + vid) % heads) / ratio) * q_head_pitch))], 128, 1, 128, half(0.000000e+00f));
          tl::ascend::copy_gm_to_ub<half, 128, 1>(k_raw[(t * 128)], k[((((((((i * blocks) * 2) + (cid * 2)) + vid) / heads) * k_pitch) + (t * k_token_pitch)) + (((((((i * blocks) * 2) + (cid * 2)) + vid) % heads) / ratio) * k_head_pitch))], 128, 1, 128, half(0.000000e+00f));
          tl::ascend::copy_gm_to_ub<half, 128, 1>(v_raw[(t * 128)], v[((((((((i * blocks) * 2) + (cid * 2)) + vid) / heads) * v_pitch) + (t * v_token_pitch)) + ((((((i * blocks) * 2) + (cid * 2)) + vid) % heads) * v_head_pitch))], 128, 1, 128, half(0.000000e+00f));
          tl::ascend::copy_gm_to_ub<half, 64, 1>(gate_raw[(t * 64)], a[(((((((i * blocks) * 2) + (cid * 2)) + vid) / heads) * a_pitch) + (t * a_token_pitch))], 64, 1, heads, half(0.000000e+00f));
          tl::ascend::copy_gm_to_ub<half, 64, 1>(beta_raw[(t * 64)], b[(((((((i * blocks) * 2) + (cid * 2)) + vid) / heads) * b_pitch) + (t * b_token_pitch))], 64, 1, heads, half(0.000000e+00f));
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
        for (int32_t half_1 = 0; half_1 < 2; ++half_1) {
          AscendC::WaitFlag<AscendC::HardEvent::MTE3_MTE2>((half_1 + 1));
          tl::ascend::copy_gm_to_ub<float, 8192, 1>(state[(half_1 * 8192)], ssm_pool[((((((((i * blocks) * 2) + (cid * 2)) + vid) % heads) * 16384) + (half_1 * 8192)) + (slot * pool_pitch))], 8192, 1, 8192, 0.000000e+00f);
          AscendC::SetFlag<AscendC::HardEvent::MTE2_V>((half_1 + 2));
        }
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
        tl::ascend::copy_ub_to_ub<float, half, 1024>(queries[4096], gate_raw[0], 1, 1024, 1024, 1, 1024, 1024);
        tl::ascend::copy_ub_to_ub<float, half, 1024>(beta[0], beta_raw[0], 1, 1024, 1024, 1, 1024, 1024);
        AscendC::PipeBarrier<PIPE_V>();
        for (int32_t t_1 = 0; t_1 < tokens; ++t_1) {
          AscendC::Add(queries[((t_1 * 64) + 4096)], queries[((t_1 * 64) + 4096)], bias[0], 64);
        }
        {
        AscendC::Muls(beta[0], beta[0], -1.000000e+00f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Abs(queries[5120], queries[4096], 1024);
        AscendC::Exp(beta[0], beta[0], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Muls(queries[5120], queries[5120], -1.000000e+00f, 1024);
        }
        {
        AscendC::Maxs(queries[4096], queries[4096], 0.000000e+00f, 1024);
        }
        {
        AscendC::Adds(beta[0], beta[0], 1.000000e+00f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Exp(queries[5120], queries[5120], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Adds(queries[6144], queries[5120], 2.000000e+00f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Div(queries[6144], queries[5120], queries[6144], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(queries[5120], queries[6144], queries[6144], 1024);
        tl::ascend::Fill<float>(queries[7168], 5.882353e-02f, 1024);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(queries[7168], queries[7168], queries[5120], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Adds(queries[7168], queries[7168], 6.666667e-02f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(queries[7168], queries[7168], queries[5120], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Adds(queries[7168], queries[7168], 7.692308e-02f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(queries[7168], queries[7168], queries[5120], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Adds(queries[7168], queries[7168], 9.090909e-02f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(queries[7168], queries[7168], queries[5120], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Adds(queries[7168], queries[7168], 1.111111e-01f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(queries[7168], queries[7168], queries[5120], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Adds(queries[7168], queries[7168], 1.428571e-01f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(queries[7168], queries[7168], queries[5120], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Adds(queries[7168], queries[7168], 2.000000e-01f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(queries[7168], queries[7168], queries[5120], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Adds(queries[7168], queries[7168], 3.333333e-01f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(queries[7168], queries[7168], queries[5120], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Adds(queries[7168], queries[7168], 1.000000e+00f, 1024);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Mul(queries[7168], queries[7168], queries[6144], 1024);
        tl::ascend::Fill<float>(queries[5120], 1.000000e+00f, 1024);
        AscendC::PipeBarrier<PIPE_V>();
        {
        AscendC::Muls(queries[7168], queries[7168], 2.000000e+00f, 1024);
        }
        AscendC::Div(beta[0], queries[5120], beta[0], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Add(queries[4096], queries[4096], queries[7168], 1024);
        AscendC::PipeBarrier<PIPE_V>();
        for (int32_t t_2 = 0; t_2 < tokens; ++t_2) {
          AscendC::Mul(queries[((t_2 * 64) + 4096)], queries[((t_2 * 64) + 4096)], minus_rate[0], 64);
        }
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Exp(gate[0], queries[4096], 1024);
        for (int32_t t_3 = 0; t_3 < tokens; ++t_3) {
          tl::ascend::copy_ub_to_ub<float, half, 128>(row[0], q_raw[(t_3 * 128)], 1, 128, 128, 1, 128, 128);
          tl::ascend::copy_ub_to_ub<float, half, 128>(key[0], k_raw[(t_3 * 128)], 1, 128, 128, 1, 128, 128);
          AscendC::PipeBarrier<PIPE_V>();
          AscendC::Mul(queries[0], row[0], row[0], 128);
          AscendC::Mul(queries[128], key[0], key[0], 128);
          AscendC::Mul(queries[256], row[0], key[0], 128);
          AscendC::PipeBarrier<PIPE_V>();
          for (int32_t j = 0; j < 3; ++j) {
            AscendC::Add(queries[(j * 128)], queries[(j * 128)], queries[((j * 128) + 64)], 64);
          }
          AscendC::PipeBarrier<PIPE_V>();
          for (int32_t j_1 = 0; j_1 < 3; ++j_1) {
            AscendC::WholeReduceSum(dots[((j_1 * 128) + (t_3 * 8))], queries[(j_1 * 128)], 64, 1, 1, 1, 16);
          }
        }
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::Fill<float>(queries[5120], 1.000000e+00f, 256);
        if (l2norm != 0) {
          {
          AscendC::Adds(dots[0], dots[0], 1.000000e-06f, 256);
          }
          AscendC::PipeBarrier<PIPE_V>();
          AscendC::Sqrt(dots[0], dots[0], 256);
          AscendC::PipeBarrier<PIPE_V>();
          AscendC::Div(dots[0], queries[5120], dots[0], 256);
        } else {
          AscendC::PipeBarrier<PIPE_V>();
          tl::ascend::copy_ub_to_ub<float, float, 256>(dots[0], queries[5120], 1, 256, 256, 1, 256, 256);
        }
        AscendC::SetFlag<AscendC::HardEvent::V_S>(1);
        AscendC::WaitFlag<AscendC::HardEvent::V_S>(1);
        for (int32_t half_2 = 0; half_2 < 2; ++half_2) {
          AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>((half_2 + 2));
          for (int32_t t_4 = 0; t_4 < tokens; ++t_4) {
            float decay = gate.GetValue(((((int64_t)t_4) * (int64_t)64) + (((((((int64_t)i) * ((int64_t)blocks)) * (int64_t)2) + (((int64_t)cid) * (int64_t)2)) + ((int64_t)vid)) % ((int64_t)heads))));
            float strength = beta.GetValue(((((int64_t)t_4) * (int64_t)64) + (((((((int64_t)i) * ((int64_t)blocks)) * (int64_t)2) + (((int64_t)cid) * (int64_t)2)) + ((int64_t)vid)) % ((int64_t)heads))));
            float q_norm = dots.GetValue((((int64_t)t_4) * (int64_t)8));
            float k_norm = dots.GetValue(((((int64_t)t_4) * (int64_t)8) + (int64_t)128));
            float k_dot_q = dots.GetValue(((((int64_t)t_4) * (int64_t)8) + (int64_t)256));
            tl::ascend::copy_ub_to_ub<float, half, 128>(row[0], q_raw[(t_4 * 128)], 1, 128, 128, 1, 128, 128);
            tl::ascend::copy_ub_to_ub<float, half, 128>(key[0], k_raw[(t_4 * 128)], 1, 128, 128, 1, 128, 128);
            tl::ascend::copy_ub_to_ub<float, half, 64>(value[0], v_raw[((t_4 * 128) + (half_2 * 64))], 1, 64, 64, 1, 64, 64);
            AscendC::PipeBarrier<PIPE_V>();
            {
            AscendC::Muls(queries[0], row[0], q_norm, 128);
            }
            {
            AscendC::Muls(keys[0], key[0], k_norm, 128);
            }
            for (int32_t step = 0; step < 6; ++step) {
              AscendC::PipeBarrier<PIPE_V>();
              for (int32_t copy = 0; copy < (1 << step); ++copy) {
                tl::ascend::copy_ub_to_ub<float, float, 128>(queries[(((1 << step) * 128) + (copy * 128))], queries[(copy * 128)], 1, 128, 128, 1, 128, 128);
                tl::ascend::copy_ub_to_ub<float, float, 128>(keys[(((1 << step) * 128) + (copy * 128))], keys[(copy * 128)], 1, 128, 128, 1, 128, 128);
              }
            }
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Mul(products[0], state[(half_2 * 8192)], keys[0], 8192);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::WholeReduceSum(old_k[0], products[0], 64, 64, 1, 1, 16);
            AscendC::WholeReduceSum(sums[0], products[64], 64, 64, 1, 1, 16);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(old_k[0], old_k[0], sums[0], 64);
            AscendC::Mul(products[0], state[(half_2 * 8192)], queries[0], 8192);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::WholeReduceSum(old_q[0], products[0], 64, 64, 1, 1, 16);
            AscendC::WholeReduceSum(sums[0], products[64], 64, 64, 1, 1, 16);
            {
            AscendC::Muls(delta[0], old_k[0], (decay * -1.000000e+00f), 64);
            }
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(old_q[0], old_q[0], sums[0], 64);
            AscendC::Add(delta[0], delta[0], value[0], 64);
            AscendC::PipeBarrier<PIPE_V>();
            {
            AscendC::Muls(delta[0], delta[0], strength, 64);
            }
            {
            AscendC::Muls(o[0], old_q[0], (decay * scale), 64);
            }
            AscendC::PipeBarrier<PIPE_V>();
            {
            AscendC::Muls(sums[0], delta[0], (((k_dot_q * q_norm) * k_norm) * scale), 64);
            }
            AscendC::Gather(delta_twice[0], delta[0], pairs[0], 0, 128);
            {
            AscendC::Muls(state[(half_2 * 8192)], state[(half_2 * 8192)], decay, 8192);
            }
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(o[0], o[0], sums[0], 64);
            tl::ascend::brcb<float>(spread[0], delta_twice[0], 16, 1, 8);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::mul_mask<float>(products[0], keys[0], spread[0], 0xFFFFFFFFFFFFFFFF, 0, 128, 1, 1, 0, 8, 8, 1);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(state[(half_2 * 8192)], state[(half_2 * 8192)], products[0], 8192);
            AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
            tl::ascend::copy_ub_to_ub<half, float, 64>(o_raw[0], o[0], 1, 64, 64, 1, 64, 64);
            AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
            AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
            tl::ascend::copy_ub_to_gm<half, 64, 1>(out[(((((t_4 * heads) * 128) + ((((((i * blocks) * 2) + (cid * 2)) + vid) % heads) * 128)) + (half_2 * 64)) + ((((((i * blocks) * 2) + (cid * 2)) + vid) / heads) * out_pitch))], o_raw[0], 64, 1, 64);
            AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
            if (store_states != 0) {
              int32_t state_slot = state_indices.GetValue(((((((((int64_t)i) * ((int64_t)blocks)) * (int64_t)2) + (((int64_t)cid) * (int64_t)2)) + ((int64_t)vid)) / ((int64_t)heads)) * ((int64_t)index_pitch)));
              if ((0 <= state_slot) && (state_slot < spec_slots)) {
                tl::ascend::copy_ub_to_gm<float, 8192, 1>(states[(((((((((i * blocks) * 2) + (cid * 2)) + vid) % heads) * 16384) + (half_2 * 8192)) + (state_slot * states_pitch)) + (t_4 * state_token_pitch))], state[(half_2 * 8192)], 8192, 1, 8192);
              }
              AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(2);
              AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(2);
            }
          }
          if (update_state != 0) {
            tl::ascend::copy_ub_to_gm<float, 8192, 1>(ssm_pool[((((((((i * blocks) * 2) + (cid * 2)) + vid) % heads) * 16384) + (half_2 * 8192)) + (slot * pool_pitch))], state[(half_2 * 8192)], 8192, 1, 8192);
          }
          AscendC::SetFlag<AscendC::HardEvent::MTE3_MTE2>((half_2 + 1));
        }
        AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
      } else {
        AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
        tl::ascend::Fill<float>(o[0], 0.000000e+00f, 64);
        AscendC::PipeBarrier<PIPE_V>();
        tl::ascend::copy_ub_to_ub<half, float, 64>(o_raw[0], o[0], 1, 64, 64, 1, 64, 64);
        tl::ascend::copy_ub_to_ub<half, float, 64>(o_raw[64], o[0], 1, 64, 64, 1, 64, 64);
        AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
        for (int32_t t_5 = 0; t_5 < tokens; ++t_5) {
          tl::ascend::copy_ub_to_gm<half, 128, 1>(out[((((t_5 * heads) * 128) + ((((((i * blocks) * 2) + (cid * 2)) + vid) % heads) * 128)) + ((((((i * blocks) * 2) + (cid * 2)) + vid) / heads) * out_pitch))], o_raw[0], 128, 1, 128);
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
      }
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t half_3 = 0; half_3 < 2; ++half_3) {
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_MTE2>((half_3 + 1));
    }
  }
}

#include "ascend/generated/fused_sigmoid_gating_delta_rule_update.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_fused_sigmoid_gating_delta_rule_update_act_f16_dt_bias_f16(const gdn::ascend::FusedSigmoidGatingDeltaRuleUpdateArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(fused_sigmoid_gating_delta_rule_update_act_f16_dt_bias_f16, a.blocks, stream, a.q.data, a.k.data, a.v.data, a.a.data, a.b.data, a.A_log.data, a.dt_bias_weight.data, a.ssm_pool.data, a.cache_indices.data, a.states.data, a.state_indices.data, a.out.data, a.blocks, a.tokens, a.ratio, a.q_token_pitch, a.q_head_pitch, a.k_token_pitch, a.k_head_pitch, a.v_token_pitch, a.v_head_pitch, a.a_token_pitch, a.b_token_pitch, a.index_pitch, a.l2norm, a.update_state, a.store_states, a.scale, a.rows, a.q_pitch, a.k_pitch, a.v_pitch, a.a_pitch, a.b_pitch, a.heads, a.slots, a.pool_pitch, a.indices, a.spec_slots, a.states_pitch, a.state_token_pitch, a.out_pitch);
}
