// Generated from python/gdn_aot/kernels/ascend/chunk_gated_delta_rule.py by `python -m gdn_aot compile-kernels`; not to be edited.
#include "tl_templates/ascend/common.h"
#include <gdn_ascend_tile.hpp>
#include "acl/acl.h"
#include <runtime/rt_ffts.h>
using namespace Catlass;
using uint = unsigned int;
using uchar = unsigned char;
using ushort = unsigned short;

extern "C" __global__ __aicore__ void chunk_gated_delta_rule_act_bf16( GM_ADDR q_handle,  GM_ADDR k_handle,  GM_ADDR v_handle,  GM_ADDR g_handle,  GM_ADDR beta_handle,  GM_ADDR ssm_pool_handle,  GM_ADDR query_start_loc_handle,  GM_ADDR cache_indices_handle,  GM_ADDR has_initial_state_handle,  GM_ADDR track_state_handle,  GM_ADDR track_chunk_idx_handle,  GM_ADDR chunk_states_handle,  GM_ADDR out_handle,  GM_ADDR head_gates_handle,  GM_ADDR head_beta_handle,  GM_ADDR lower__handle,  GM_ADDR write_handle,  GM_ADDR erase_handle,  GM_ADDR w_handle,  GM_ADDR h_handle,  GM_ADDR v_new_handle,  GM_ADDR product_space_handle,  GM_ADDR norm_space_handle,  GM_ADDR diagonal_space_handle,  GM_ADDR weight_space_handle,  GM_ADDR state_space_handle,  GM_ADDR identity_space_handle, int32_t blocks, int32_t rows, int32_t start_pitch, int32_t index_pitch, int32_t track_pitch, int32_t q_head_pitch, int32_t k_head_pitch, int32_t v_head_pitch, int32_t ratio, int32_t all_initial, int32_t update_state, int32_t tracks, int32_t keeps, int32_t l2norm, int32_t stop_after, float scale, int64_t tokens, int64_t q_pitch, int64_t k_pitch, int64_t v_pitch, int64_t g_pitch, int64_t beta_pitch, int64_t slots, int64_t pool_pitch, int64_t starts, int64_t indices, int64_t flags, int64_t heads, int64_t places, int64_t buffers, uint64_t fftsAddr) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  AscendC::TPipe pipe;

  AscendC::GlobalTensor<bfloat16_t> q;
  q.SetGlobalBuffer((__gm__ bfloat16_t*)q_handle);
  AscendC::GlobalTensor<bfloat16_t> k;
  k.SetGlobalBuffer((__gm__ bfloat16_t*)k_handle);
  AscendC::GlobalTensor<bfloat16_t> v;
  v.SetGlobalBuffer((__gm__ bfloat16_t*)v_handle);
  AscendC::GlobalTensor<float> g;
  g.SetGlobalBuffer((__gm__ float*)g_handle);
  AscendC::GlobalTensor<float> beta;
  beta.SetGlobalBuffer((__gm__ float*)beta_handle);
  AscendC::GlobalTensor<float> ssm_pool;
  ssm_pool.SetGlobalBuffer((__gm__ float*)ssm_pool_handle);
  AscendC::GlobalTensor<int> query_start_loc;
  query_start_loc.SetGlobalBuffer((__gm__ int*)query_start_loc_handle);
  AscendC::GlobalTensor<int> cache_indices;
  cache_indices.SetGlobalBuffer((__gm__ int*)cache_indices_handle);
  AscendC::GlobalTensor<uint8_t> has_initial_state;
  has_initial_state.SetGlobalBuffer((__gm__ uint8_t*)has_initial_state_handle);
  AscendC::GlobalTensor<float> track_state;
  track_state.SetGlobalBuffer((__gm__ float*)track_state_handle);
  AscendC::GlobalTensor<int> track_chunk_idx;
  track_chunk_idx.SetGlobalBuffer((__gm__ int*)track_chunk_idx_handle);
  AscendC::GlobalTensor<float> chunk_states;
  chunk_states.SetGlobalBuffer((__gm__ float*)chunk_states_handle);
  AscendC::GlobalTensor<bfloat16_t> out;
  out.SetGlobalBuffer((__gm__ bfloat16_t*)out_handle);
  AscendC::GlobalTensor<float> head_gates;
  head_gates.SetGlobalBuffer((__gm__ float*)head_gates_handle);
  AscendC::GlobalTensor<float> head_beta;
  head_beta.SetGlobalBuffer((__gm__ float*)head_beta_handle);
  AscendC::GlobalTensor<float> lower_;
  lower_.SetGlobalBuffer((__gm__ float*)lower__handle);
  AscendC::GlobalTensor<bfloat16_t> write;
  write.SetGlobalBuffer((__gm__ bfloat16_t*)write_handle);
  AscendC::GlobalTensor<bfloat16_t> erase;
  erase.SetGlobalBuffer((__gm__ bfloat16_t*)erase_handle);
  AscendC::GlobalTensor<bfloat16_t> w;
  w.SetGlobalBuffer((__gm__ bfloat16_t*)w_handle);
  AscendC::GlobalTensor<bfloat16_t> h;
  h.SetGlobalBuffer((__gm__ bfloat16_t*)h_handle);
  AscendC::GlobalTensor<bfloat16_t> v_new;
  v_new.SetGlobalBuffer((__gm__ bfloat16_t*)v_new_handle);
  AscendC::GlobalTensor<float> product_space;
  product_space.SetGlobalBuffer((__gm__ float*)product_space_handle);
  AscendC::GlobalTensor<float> norm_space;
  norm_space.SetGlobalBuffer((__gm__ float*)norm_space_handle);
  AscendC::GlobalTensor<bfloat16_t> diagonal_space;
  diagonal_space.SetGlobalBuffer((__gm__ bfloat16_t*)diagonal_space_handle);
  AscendC::GlobalTensor<bfloat16_t> weight_space;
  weight_space.SetGlobalBuffer((__gm__ bfloat16_t*)weight_space_handle);
  AscendC::GlobalTensor<float> state_space;
  state_space.SetGlobalBuffer((__gm__ float*)state_space_handle);
  AscendC::GlobalTensor<bfloat16_t> identity_space;
  identity_space.SetGlobalBuffer((__gm__ bfloat16_t*)identity_space_handle);

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
  auto negative_identity = ascend_l1.GetWithOffset<bfloat16_t>(4096, 0);
  auto matrices_l1 = ascend_l1.GetWithOffset<bfloat16_t>(41216, 8192);
  auto k_l1 = ascend_l1.GetWithOffset<bfloat16_t>(8192, 90624);
  auto tokens_l0 = ascend_l0c.GetWithOffset<float>(8192, 0);
  auto w_l1 = ascend_l1.GetWithOffset<bfloat16_t>(8192, 107008);
  auto key_l1 = ascend_l1.GetWithOffset<bfloat16_t>(16384, 123392);
  auto q_l1 = ascend_l1.GetWithOffset<bfloat16_t>(8192, 156160);
  auto query_l1 = ascend_l1.GetWithOffset<bfloat16_t>(8192, 172544);
  auto products_l0 = ascend_l0c.GetWithOffset<float>(4096, 32768);
  auto v_l1 = ascend_l1.GetWithOffset<bfloat16_t>(8192, 188928);
  auto state_l1 = ascend_l1.GetWithOffset<bfloat16_t>(16384, 205312);
  auto new_l1 = ascend_l1.GetWithOffset<bfloat16_t>(16384, 238080);
  auto state_l0 = ascend_l0c.GetWithOffset<float>(16384, 49152);
  auto identity = ascend_ub.GetWithOffset<float>(4096, 0);
  auto mask = ascend_ub.GetWithOffset<float>(4096, 16384);
  auto values = ascend_ub.GetWithOffset<float>(8192, 32768);
  auto results = ascend_ub.GetWithOffset<bfloat16_t>(8192, 65536);
  auto pattern = ascend_ub.GetWithOffset<float>(1024, 81920);
  auto factor_offsets = ascend_ub.GetWithOffset<int>(1024, 86016);
  auto k_diagonal = ascend_ub.GetWithOffset<int>(64, 90112);
  auto first_of_block = ascend_ub.GetWithOffset<int>(64, 90368);
  auto q_diagonal = ascend_ub.GetWithOffset<int>(64, 90624);
  int base = 0;
  auto state = ascend_ub.GetWithOffset<float>(8192, 90880);
  auto gate_blocks = ascend_ub.GetWithOffset<float>(1024, 123648);
  auto beta_blocks = ascend_ub.GetWithOffset<float>(512, 127744);
  auto gates = ascend_ub.GetWithOffset<float>(128, 129792);
  auto strengths = ascend_ub.GetWithOffset<float>(64, 130304);
  auto matrices = ascend_ub.GetWithOffset<float>(8192, 130560);
  auto k_norms = ascend_ub.GetWithOffset<float>(64, 163328);
  auto minus_gates = ascend_ub.GetWithOffset<float>(64, 163584);
  auto squares = ascend_ub.GetWithOffset<float>(64, 163840);
  auto space = ascend_ub.GetWithOffset<float>(512, 164096);
  auto factors = ascend_ub.GetWithOffset<float>(64, 166144);
  auto inverse = ascend_ub.GetWithOffset<float>(4096, 166400);
  auto diagonals = ascend_ub.GetWithOffset<bfloat16_t>(4096, 182784);
  auto q_norms = ascend_ub.GetWithOffset<float>(64, 190976);
  auto decay_rate = ascend_ub.GetWithOffset<float>(64, 191232);
  auto vid = AscendC::GetSubBlockIdx();
  if ASCEND_IS_AIC {
    AscendC::CrossCoreWaitFlag(5);
    tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(negative_identity[0], identity_space[(cid * 4096)], 64, 0, 0, true);
    tl::ascend::copy_gm_to_l1<bfloat16_t, 2576, 16>(matrices_l1[0], identity_space[(cid * 4096)], 16, 1, 0, true);
    for (int32_t t = 0; t < (((((rows * heads) + blocks) - cid) - 1) / blocks); ++t) {
      int32_t begin = query_start_loc.GetValue((((((int64_t)cid) + (((int64_t)t) * ((int64_t)blocks))) / ((int64_t)heads)) * ((int64_t)start_pitch)));
      int32_t length = (query_start_loc.GetValue(((((((int64_t)cid) + (((int64_t)t) * ((int64_t)blocks))) / ((int64_t)heads)) + (int64_t)1) * ((int64_t)start_pitch))) - begin);
      int32_t slot = cache_indices.GetValue((((((int64_t)cid) + (((int64_t)t) * ((int64_t)blocks))) / ((int64_t)heads)) * ((int64_t)index_pitch)));
      if (((0 <= slot) && (slot < slots)) && (3 <= stop_after)) {
        for (int32_t c = 0; c < (((length + 63) / 64) + 1); ++c) {
          if (0 < c) {
            AscendC::CrossCoreWaitFlag(3);
            if (5 <= stop_after) {
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 32>(matrices_l1[8448], erase[(((stop_after < 7) ? ((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) + ((cid + (t * blocks)) % heads)) : ((cid * 2) + ((c + 1) % 2))) * 8192)], 64, 32, 32, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(matrices_l1[8960], erase[((((stop_after < 7) ? ((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) + ((cid + (t * blocks)) % heads)) : ((cid * 2) + ((c + 1) % 2))) * 8192) + 2048)], 64, 32, 64, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 32>(matrices_l1[12544], erase[((((stop_after < 7) ? ((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) + ((cid + (t * blocks)) % heads)) : ((cid * 2) + ((c + 1) % 2))) * 8192) + 4096)], 64, 32, 32, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(matrices_l1[13056], erase[((((stop_after < 7) ? ((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) + ((cid + (t * blocks)) % heads)) : ((cid * 2) + ((c + 1) % 2))) * 8192) + 6144)], 64, 32, 64, false);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[8448], k_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)1);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[12544], k_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
              gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ bfloat16_t>(w_l1[0], tokens_l0[0], 64, 64, 128);
              if (stop_after < 7) {
                tl::ascend::copy_l0c_to_gm<float, bfloat16_t, layout::RowMajor, 64, 128>(w[(((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) * 8192) + (((cid + (t * blocks)) % heads) * 8192))], tokens_l0[0], 128, 0, 0);
              }
            }
            if (6 <= stop_after) {
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[24832], diagonal_space[((cid * 8192) + (((c + 1) % 2) * 4096))], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[26112], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 256)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[27392], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 512)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[28672], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 768)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[28928], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 1024)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[30208], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 1280)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[31488], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 1536)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[32768], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 1792)], 16, 16, 16, false);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[24832], k_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)1);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[28928], k_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
              gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ bfloat16_t>(key_l1[0], tokens_l0[0], 64, 64, 128);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(negative_identity[0], key_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
              gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ bfloat16_t>(key_l1[8192], tokens_l0[0], 64, 64, 128);
            }
            if (7 <= stop_after) {
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[33024], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 2048)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[34304], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 2304)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[35584], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 2560)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[36864], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 2816)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[37120], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 3072)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[38400], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 3328)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[39680], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 3584)], 16, 16, 16, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(matrices_l1[40960], diagonal_space[(((cid * 8192) + (((c + 1) % 2) * 4096)) + 3840)], 16, 16, 16, false);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[33024], q_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)1);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[37120], q_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
              gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ bfloat16_t>(query_l1[0], tokens_l0[0], 64, 64, 128);
            }
          }
          if ((c * 64) < length) {
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 128>(k_l1[0], k[((((c * 64) + begin) * k_pitch) + ((((cid + (t * blocks)) % heads) / ratio) * k_head_pitch))], k_pitch, ((1 <= ((length / 64) - c)) ? 64 : (length - (c * 64))), 0, true);
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 64, 128, false, true>(k_l1[0], k_l1[0], products_l0[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(product_space[((cid * 16384) + ((c % 2) * 8192))], products_l0[0], 64, 32, 32);
            tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(product_space[(((cid * 16384) + ((c % 2) * 8192)) + 2048)], products_l0[512], 64, 32, 64);
            if (7 <= stop_after) {
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 128>(q_l1[0], q[((((c * 64) + begin) * q_pitch) + ((((cid + (t * blocks)) % heads) / ratio) * q_head_pitch))], q_pitch, ((1 <= ((length / 64) - c)) ? 64 : (length - (c * 64))), 0, true);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 64, 128, false, true>(q_l1[0], k_l1[0], products_l0[0], ascend_l0a, ascend_l0b, (bool)1);
              tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(product_space[(((cid * 16384) + ((c % 2) * 8192)) + 4096)], products_l0[0], 64, 32, 32);
              tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(product_space[(((cid * 16384) + ((c % 2) * 8192)) + 6144)], products_l0[512], 64, 32, 64);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 64, 128, false, true>(q_l1[0], q_l1[0], products_l0[0], ascend_l0a, ascend_l0b, (bool)1);
              tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(norm_space[((cid * 2048) + ((c % 2) * 1024))], products_l0[0], 16, 16, 16);
              tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(norm_space[(((cid * 2048) + ((c % 2) * 1024)) + 256)], products_l0[1280], 16, 16, 16);
              tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(norm_space[(((cid * 2048) + ((c % 2) * 1024)) + 512)], products_l0[2560], 16, 16, 16);
              tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 64, 64>(norm_space[(((cid * 2048) + ((c % 2) * 1024)) + 768)], products_l0[3840], 16, 16, 16);
            }
            AscendC::CrossCoreSetFlag<0x2, PIPE_FIX>(1);
          }
          if ((0 < c) && (6 <= stop_after)) {
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 32>(matrices_l1[256], write[(((stop_after < 7) ? ((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) + ((cid + (t * blocks)) % heads)) : ((cid * 2) + ((c + 1) % 2))) * 8192)], 64, 32, 32, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(matrices_l1[768], write[((((stop_after < 7) ? ((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) + ((cid + (t * blocks)) % heads)) : ((cid * 2) + ((c + 1) % 2))) * 8192) + 2048)], 64, 32, 64, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 32>(matrices_l1[4352], write[((((stop_after < 7) ? ((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) + ((cid + (t * blocks)) % heads)) : ((cid * 2) + ((c + 1) % 2))) * 8192) + 4096)], 64, 32, 32, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(matrices_l1[4864], write[((((stop_after < 7) ? ((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) + ((cid + (t * blocks)) % heads)) : ((cid * 2) + ((c + 1) % 2))) * 8192) + 6144)], 64, 32, 64, false);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 128>(v_l1[0], v[(((((c * 64) + begin) - 64) * v_pitch) + (((cid + (t * blocks)) % heads) * v_head_pitch))], v_pitch, ((0 <= (length - (c * 64))) ? 64 : ((length + 64) - (c * 64))), 0, true);
            if (7 <= stop_after) {
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 32>(matrices_l1[16640], weight_space[((cid * 16384) + (((c + 1) % 2) * 8192))], 64, 32, 32, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(matrices_l1[17152], weight_space[(((cid * 16384) + (((c + 1) % 2) * 8192)) + 2048)], 64, 32, 64, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 32>(matrices_l1[20736], weight_space[(((cid * 16384) + (((c + 1) % 2) * 8192)) + 4096)], 64, 32, 32, false);
              tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 64>(matrices_l1[21248], weight_space[(((cid * 16384) + (((c + 1) % 2) * 8192)) + 6144)], 64, 32, 64, false);
            }
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[256], v_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[4352], v_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            AscendC::CrossCoreWaitFlag(4);
            tl::ascend::copy_gm_to_l1<bfloat16_t, 128, 128>(state_l1[0], h[(((stop_after < 7) ? ((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) + ((cid + (t * blocks)) % heads)) : ((cid * 2) + ((c + 1) % 2))) * 16384)], 128, 0, 0, true);
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 128, false, true>(w_l1[0], state_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ bfloat16_t>(new_l1[0], tokens_l0[0], 64, 64, 128);
            if (stop_after < 7) {
              tl::ascend::copy_l0c_to_gm<float, bfloat16_t, layout::RowMajor, 64, 128>(v_new[(((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) * 16384) + (((cid + (t * blocks)) % heads) * 16384))], tokens_l0[0], 128, 0, 0);
            }
            tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(negative_identity[0], new_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ bfloat16_t>(new_l1[8192], tokens_l0[0], 64, 64, 128);
            if (stop_after < 7) {
              tl::ascend::copy_l0c_to_gm<float, bfloat16_t, layout::RowMajor, 64, 128>(v_new[((((((((begin / 64) + ((cid + (t * blocks)) / heads)) + c) - 1) * heads) * 16384) + (((cid + (t * blocks)) % heads) * 16384)) + 8192)], tokens_l0[0], 128, 0, 0);
            }
            tl::ascend::gemm_v0<bfloat16_t, float, 128, 128, 64, true, false>(new_l1[0], key_l1[0], state_l0[0], ascend_l0a, ascend_l0b, (bool)1);
            tl::ascend::gemm_v0<bfloat16_t, float, 128, 128, 64, true, false>(new_l1[0], key_l1[8192], state_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            tl::ascend::gemm_v0<bfloat16_t, float, 128, 128, 64, true, false>(new_l1[8192], key_l1[0], state_l0[0], ascend_l0a, ascend_l0b, (bool)0);
            tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, 128, 128>(state_space[(cid * 16384)], state_l0[0], 128, 0, 0);
            AscendC::CrossCoreSetFlag<0x2, PIPE_FIX>(2);
            if (7 <= stop_after) {
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 128, false, true>(query_l1[0], state_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)1);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[16640], new_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[20736], new_l1[0], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
              tl::ascend::gemm_v0<bfloat16_t, float, 64, 128, 64, false, false>(matrices_l1[16640], new_l1[8192], tokens_l0[0], ascend_l0a, ascend_l0b, (bool)0);
              tl::ascend::copy_l0c_to_gm<float, bfloat16_t, layout::RowMajor, 64, 128>(out[((((((c * 64) + begin) - 64) * heads) * 128) + (((cid + (t * blocks)) % heads) * 128))], tokens_l0[0], (heads * 128), ((0 <= (length - (c * 64))) ? 64 : ((length + 64) - (c * 64))), 0);
            }
          }
        }
      }
    }
  }
  if ASCEND_IS_AIV {
    tl::ascend::Fill<float>(identity[0], 0.000000e+00f, 4096);
    tl::ascend::Fill<float>(mask[0], 0.000000e+00f, 4096);
    AscendC::PipeBarrier<PIPE_V>();
    for (int32_t i = 0; i < 64; ++i) {
      tl::ascend::Fill<float>(identity[(i * 64)], 1.000000e+00f, (i + 1));
    }
    for (int32_t i_1 = 0; i_1 < 63; ++i_1) {
      tl::ascend::Fill<float>(mask[((i_1 * 64) + 64)], 1.000000e+00f, (i_1 + 1));
    }
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sub(identity[0], identity[0], mask[0], 4096);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(values[0], identity[0], -1.000000e+00f, 4096);
    }
    AscendC::PipeBarrier<PIPE_V>();
    tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(results[0], values[0], 1, 4096, 4096, 1, 4096, 4096);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
    tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(identity_space[((cid * 4096) + (vid * 2048))], results[(vid * 2048)], 2048, 1, 2048);
    AscendC::CrossCoreSetFlag<0x2, PIPE_MTE3>(5);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
    tl::ascend::Fill<float>(mask[0], -1.000000e+30f, 4096);
    AscendC::PipeBarrier<PIPE_V>();
    for (int32_t i_2 = 0; i_2 < 64; ++i_2) {
      tl::ascend::Fill<float>(mask[(i_2 * 64)], 0.000000e+00f, (i_2 + 1));
    }
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
    AscendC::CreateVecIndex<int>(k_diagonal[0], 0, 64);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ShiftRight(first_of_block[0], k_diagonal[0], 4, 64);
    {
    AscendC::Muls(q_diagonal[0], k_diagonal[0], 68, 64);
    }
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(first_of_block[0], first_of_block[0], -64, 64);
    }
    {
    AscendC::Muls(k_diagonal[0], k_diagonal[0], 260, 64);
    }
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Add(q_diagonal[0], q_diagonal[0], first_of_block[0], 64);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::CreateVecIndex<int>(first_of_block[0], 0, 64);
    AscendC::PipeBarrier<PIPE_V>();
    {
    AscendC::Muls(first_of_block[0], first_of_block[0], 32, 64);
    }
    if (7 <= stop_after) {
      tl::ascend::Fill<float>(values[0], 0.000000e+00f, 8192);
      AscendC::PipeBarrier<PIPE_V>();
      tl::ascend::copy_ub_to_ub<bfloat16_t, float, 8192>(results[0], values[0], 1, 8192, 8192, 1, 8192, 8192);
      AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
      for (int32_t n = 0; n < rows; ++n) {
        int32_t begin_1 = query_start_loc.GetValue((((int64_t)n) * ((int64_t)start_pitch)));
        int32_t length_1 = (query_start_loc.GetValue(((((int64_t)n) + (int64_t)1) * ((int64_t)start_pitch))) - begin_1);
        int32_t slot_1 = cache_indices.GetValue((((int64_t)n) * ((int64_t)index_pitch)));
        if ((slot_1 < 0) || (slots <= slot_1)) {
          for (int32_t t_1 = 0; t_1 < ((((((blocks * 2) + length_1) - vid) - (cid * 2)) - 1) / (blocks * 2)); ++t_1) {
            tl::ascend::copy_ub_to_gm<bfloat16_t, 8192, 1>(out[((((((cid * 2) + ((t_1 * blocks) * 2)) + begin_1) + vid) * heads) * 128)], results[0], 8192, 1, (heads * 128));
          }
        }
      }
      int32_t end = query_start_loc.GetValue((((int64_t)rows) * ((int64_t)start_pitch)));
      for (int32_t t_2 = 0; t_2 < (((((((blocks * 2) + tokens) - end) - vid) - (cid * 2)) - 1) / (blocks * 2)); ++t_2) {
        tl::ascend::copy_ub_to_gm<bfloat16_t, 8192, 1>(out[((((((cid * 2) + ((t_2 * blocks) * 2)) + end) + vid) * heads) * 128)], results[0], 8192, 1, (heads * 128));
      }
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    for (int32_t t_3 = 0; t_3 < (((((rows * heads) + blocks) - cid) - 1) / blocks); ++t_3) {
      int32_t begin_2 = query_start_loc.GetValue((((((int64_t)cid) + (((int64_t)t_3) * ((int64_t)blocks))) / ((int64_t)heads)) * ((int64_t)start_pitch)));
      int32_t length_2 = (query_start_loc.GetValue(((((((int64_t)cid) + (((int64_t)t_3) * ((int64_t)blocks))) / ((int64_t)heads)) + (int64_t)1) * ((int64_t)start_pitch))) - begin_2);
      int32_t slot_2 = cache_indices.GetValue((((((int64_t)cid) + (((int64_t)t_3) * ((int64_t)blocks))) / ((int64_t)heads)) * ((int64_t)index_pitch)));
      uchar resumes = has_initial_state.GetValue(((((int64_t)cid) + (((int64_t)t_3) * ((int64_t)blocks))) / ((int64_t)heads)));
      int32_t condval;
      if ((tracks != 0)) {
        condval = track_chunk_idx.GetValue((((((int64_t)cid) + (((int64_t)t_3) * ((int64_t)blocks))) / ((int64_t)heads)) * ((int64_t)track_pitch)));
      } else {
        condval = -1;
      }
      int32_t wanted = condval;
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
      AscendC::PipeBarrier<PIPE_V>();
      base = 0;
      for (int32_t m = 0; m < (((cid + (t_3 * blocks)) / heads) * keeps); ++m) {
        base = ((((query_start_loc.GetValue(((((int64_t)m) + (int64_t)1) * ((int64_t)start_pitch))) + 63) - query_start_loc.GetValue((((int64_t)m) * ((int64_t)start_pitch)))) / 64) + base);
      }
      if ((0 <= slot_2) && (slot_2 < slots)) {
        if ((all_initial + ((int32_t)resumes)) != 0) {
          AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
          AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
          tl::ascend::copy_gm_to_ub<float, 8192, 1>(state[0], ssm_pool[(((((cid + (t_3 * blocks)) % heads) * 16384) + (vid * 8192)) + (slot_2 * pool_pitch))], 8192, 1, 8192, 0.000000e+00f);
          AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
          AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
        } else {
          tl::ascend::Fill<float>(state[0], 0.000000e+00f, 8192);
        }
        for (int32_t c_1 = 0; c_1 < (((length_2 + 63) / 64) + 1); ++c_1) {
          if ((c_1 * 64) < length_2) {
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_gm_to_ub<float, 8, 64>(gate_blocks[0], g[((((c_1 * 64) + begin_2) * g_pitch) + ((cid + (t_3 * blocks)) % heads))], g_pitch, ((1 <= ((length_2 / 64) - c_1)) ? 64 : (length_2 - (c_1 * 64))), 1, 0.000000e+00f);
            tl::ascend::copy_gm_to_ub<float, 8, 64>(beta_blocks[0], beta[((((c_1 * 64) + begin_2) * beta_pitch) + ((cid + (t_3 * blocks)) % heads))], beta_pitch, ((1 <= ((length_2 / 64) - c_1)) ? 64 : (length_2 - (c_1 * 64))), 1, 0.000000e+00f);
            AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
            AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
            {
            AscendC::Maxs(gate_blocks[0], gate_blocks[0], -1.000000e+02f, 512);
            }
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<float, float, 512>(gate_blocks[512], gate_blocks[0], 1, 512, 512, 1, 512, 512);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(gate_blocks[520], gate_blocks[520], gate_blocks[0], 504);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<float, float, 512>(gate_blocks[0], gate_blocks[512], 1, 512, 512, 1, 512, 512);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(gate_blocks[16], gate_blocks[16], gate_blocks[512], 496);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<float, float, 512>(gate_blocks[512], gate_blocks[0], 1, 512, 512, 1, 512, 512);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(gate_blocks[544], gate_blocks[544], gate_blocks[0], 480);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<float, float, 512>(gate_blocks[0], gate_blocks[512], 1, 512, 512, 1, 512, 512);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(gate_blocks[64], gate_blocks[64], gate_blocks[512], 448);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<float, float, 512>(gate_blocks[512], gate_blocks[0], 1, 512, 512, 1, 512, 512);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(gate_blocks[640], gate_blocks[640], gate_blocks[0], 384);
            AscendC::PipeBarrier<PIPE_V>();
            tl::ascend::copy_ub_to_ub<float, float, 512>(gate_blocks[0], gate_blocks[512], 1, 512, 512, 1, 512, 512);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Add(gate_blocks[256], gate_blocks[256], gate_blocks[512], 256);
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::Gather(gates[((c_1 % 2) * 64)], gate_blocks[0], first_of_block[0], 0, 64);
            AscendC::Gather(strengths[0], beta_blocks[0], first_of_block[0], 0, 64);
            if (3 <= stop_after) {
              AscendC::CrossCoreWaitFlag(1);
            }
            if (((c_1 + vid) % 2) == 0) {
              AscendC::SetFlag<AscendC::HardEvent::V_S>(1);
              AscendC::WaitFlag<AscendC::HardEvent::V_S>(1);
              if (stop_after < 7) {
                tl::ascend::copy_ub_to_gm<float, 64, 1>(head_gates[((((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) * 64) + (((cid + (t_3 * blocks)) % heads) * 64))], gates[((c_1 % 2) * 64)], 64, 1, 64);
                tl::ascend::copy_ub_to_gm<float, 64, 1>(head_beta[((((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) * 64) + (((cid + (t_3 * blocks)) % heads) * 64))], strengths[0], 64, 1, 64);
              }
              if (3 <= stop_after) {
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_gm_to_ub<float, 64, 32>(matrices[0], product_space[((cid * 16384) + ((c_1 % 2) * 8192))], 64, 32, 32, 0.000000e+00f);
                tl::ascend::copy_gm_to_ub<float, 2048, 1>(matrices[2048], product_space[(((cid * 16384) + ((c_1 % 2) * 8192)) + 2048)], 2048, 1, 2048, 0.000000e+00f);
                AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
                AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
                tl::ascend::Fill<float>(k_norms[0], 1.000000e+00f, 64);
                {
                AscendC::Muls(minus_gates[0], gates[((c_1 % 2) * 64)], -1.000000e+00f, 64);
                }
                if (l2norm != 0) {
                  AscendC::Gather(squares[0], matrices[0], k_diagonal[0], 0, 64);
                  AscendC::PipeBarrier<PIPE_V>();
                  {
                  AscendC::Adds(squares[0], squares[0], 1.000000e-06f, 64);
                  }
                  AscendC::PipeBarrier<PIPE_V>();
                  AscendC::Sqrt(squares[0], squares[0], 64);
                  AscendC::PipeBarrier<PIPE_V>();
                  AscendC::Div(k_norms[0], k_norms[0], squares[0], 64);
                }
                AscendC::PipeBarrier<PIPE_V>();
                for (int32_t i_4 = 0; i_4 < 64; ++i_4) {
                  tl::ascend::copy_ub_to_ub<float, float, 64>(matrices[((i_4 * 64) + 4096)], minus_gates[0], 1, 64, 64, 1, 64, 64);
                }
                tl::ascend::brcb<float>(space[0], minus_gates[0], 8, 1, 8);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::sub_mask<float>(matrices[4096], matrices[4096], space[0], 0xFFFFFFFFFFFFFFFF, 0, 64, 1, 1, 0, 8, 8, 1);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Add(matrices[4096], matrices[4096], mask[0], 4096);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Exp(matrices[4096], matrices[4096], 4096);
                AscendC::Mul(factors[0], strengths[0], k_norms[0], 64);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Mul(matrices[0], matrices[0], matrices[4096], 4096);
                tl::ascend::brcb<float>(space[0], factors[0], 8, 1, 8);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::mul_mask<float>(matrices[0], matrices[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 64, 1, 1, 0, 8, 8, 1);
                if (l2norm != 0) {
                  AscendC::PipeBarrier<PIPE_V>();
                  for (int32_t i_5 = 0; i_5 < 64; ++i_5) {
                    AscendC::Mul(matrices[(i_5 * 64)], matrices[(i_5 * 64)], k_norms[0], 64);
                  }
                }
                if (stop_after < 7) {
                  AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
                  AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
                  tl::ascend::copy_ub_to_gm<float, 4096, 1>(lower_[((((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) * 4096) + (((cid + (t_3 * blocks)) % heads) * 4096))], matrices[0], 4096, 1, 4096);
                }
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::Fill<float>(inverse[0], 0.000000e+00f, 4096);
                for (int32_t i_6 = 0; i_6 < 16; ++i_6) {
                  tl::ascend::brcb<float>(space[0], matrices[(i_6 * 64)], 2, 1, 8);
                  AscendC::PipeBarrier<PIPE_V>();
                  tl::ascend::mul_mask<float>(values[0], inverse[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 16, 1, 1, 0, 8, 8, 1);
                  for (int32_t step = 0; step < 4; ++step) {
                    AscendC::PipeBarrier<PIPE_V>();
                    AscendC::Add(values[0], values[0], values[((16 >> (step + 1)) * 64)], ((16 >> (step + 1)) * 64));
                  }
                  AscendC::PipeBarrier<PIPE_V>();
                  AscendC::Sub(inverse[(i_6 * 64)], identity[(i_6 * 64)], values[0], 64);
                }
                for (int32_t i_7 = 0; i_7 < 16; ++i_7) {
                  tl::ascend::brcb<float>(space[0], matrices[((i_7 * 64) + 1024)], 4, 1, 8);
                  AscendC::PipeBarrier<PIPE_V>();
                  tl::ascend::mul_mask<float>(values[0], inverse[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 32, 1, 1, 0, 8, 8, 1);
                  for (int32_t step_1 = 0; step_1 < 5; ++step_1) {
                    AscendC::PipeBarrier<PIPE_V>();
                    AscendC::Add(values[0], values[0], values[((32 >> (step_1 + 1)) * 64)], ((32 >> (step_1 + 1)) * 64));
                  }
                  AscendC::PipeBarrier<PIPE_V>();
                  AscendC::Sub(inverse[((i_7 * 64) + 1024)], identity[((i_7 * 64) + 1024)], values[0], 64);
                }
                for (int32_t i_8 = 0; i_8 < 32; ++i_8) {
                  tl::ascend::brcb<float>(space[0], matrices[((i_8 * 64) + 2048)], 8, 1, 8);
                  AscendC::PipeBarrier<PIPE_V>();
                  tl::ascend::mul_mask<float>(values[0], inverse[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 64, 1, 1, 0, 8, 8, 1);
                  for (int32_t step_2 = 0; step_2 < 6; ++step_2) {
                    AscendC::PipeBarrier<PIPE_V>();
                    AscendC::Add(values[0], values[0], values[((64 >> (step_2 + 1)) * 64)], ((64 >> (step_2 + 1)) * 64));
                  }
                  AscendC::PipeBarrier<PIPE_V>();
                  AscendC::Sub(inverse[((i_8 * 64) + 2048)], identity[((i_8 * 64) + 2048)], values[0], 64);
                }
                AscendC::Exp(minus_gates[0], gates[((c_1 % 2) * 64)], 64);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Mul(factors[0], factors[0], minus_gates[0], 64);
                for (int32_t i_9 = 0; i_9 < 64; ++i_9) {
                  AscendC::Mul(values[(i_9 * 64)], inverse[(i_9 * 64)], strengths[0], 64);
                }
                AscendC::PipeBarrier<PIPE_V>();
                {
                AscendC::Muls(factors[0], factors[0], -1.000000e+00f, 64);
                }
                AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
                AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
                tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(results[0], values[0], 1, 4096, 4096, 1, 4096, 4096);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<float, bfloat16_t, 4096>(values[4096], results[0], 1, 4096, 4096, 1, 4096, 4096);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Sub(values[0], values[0], values[4096], 4096);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(results[4096], values[0], 1, 4096, 4096, 1, 4096, 4096);
                AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
                AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 64, 32>(write[(((stop_after < 7) ? (((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) + ((cid + (t_3 * blocks)) % heads)) : ((cid * 2) + (c_1 % 2))) * 8192)], results[0], 64, 32, 32);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(write[((((stop_after < 7) ? (((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) + ((cid + (t_3 * blocks)) % heads)) : ((cid * 2) + (c_1 % 2))) * 8192) + 2048)], results[2048], 2048, 1, 2048);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 64, 32>(write[((((stop_after < 7) ? (((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) + ((cid + (t_3 * blocks)) % heads)) : ((cid * 2) + (c_1 % 2))) * 8192) + 4096)], results[4096], 64, 32, 32);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(write[((((stop_after < 7) ? (((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) + ((cid + (t_3 * blocks)) % heads)) : ((cid * 2) + (c_1 % 2))) * 8192) + 6144)], results[6144], 2048, 1, 2048);
                AscendC::PipeBarrier<PIPE_V>();
                for (int32_t i_10 = 0; i_10 < 64; ++i_10) {
                  AscendC::Mul(values[(i_10 * 64)], inverse[(i_10 * 64)], factors[0], 64);
                }
                AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
                AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(results[0], values[0], 1, 4096, 4096, 1, 4096, 4096);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<float, bfloat16_t, 4096>(values[4096], results[0], 1, 4096, 4096, 1, 4096, 4096);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Sub(values[0], values[0], values[4096], 4096);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(results[4096], values[0], 1, 4096, 4096, 1, 4096, 4096);
                AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
                AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 64, 32>(erase[(((stop_after < 7) ? (((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) + ((cid + (t_3 * blocks)) % heads)) : ((cid * 2) + (c_1 % 2))) * 8192)], results[0], 64, 32, 32);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(erase[((((stop_after < 7) ? (((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) + ((cid + (t_3 * blocks)) % heads)) : ((cid * 2) + (c_1 % 2))) * 8192) + 2048)], results[2048], 2048, 1, 2048);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 64, 32>(erase[((((stop_after < 7) ? (((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) + ((cid + (t_3 * blocks)) % heads)) : ((cid * 2) + (c_1 % 2))) * 8192) + 4096)], results[4096], 64, 32, 32);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(erase[((((stop_after < 7) ? (((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) + ((cid + (t_3 * blocks)) % heads)) : ((cid * 2) + (c_1 % 2))) * 8192) + 6144)], results[6144], 2048, 1, 2048);
                {
                AscendC::Muls(factors[0], gates[((c_1 % 2) * 64)], -1.000000e+00f, 64);
                }
                AscendC::PipeBarrier<PIPE_V>();
                {
                AscendC::Adds(factors[0], factors[0], gates.GetValue((((c_1 % 2) * 64) + 63)), 64);
                }
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Exp(factors[0], factors[0], 64);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Mul(factors[0], factors[0], k_norms[0], 64);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Gather(values[0], factors[0], factor_offsets[0], 0, 1024);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Mul(values[0], values[0], pattern[0], 1024);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<bfloat16_t, float, 1024>(diagonals[0], values[0], 1, 1024, 1024, 1, 1024, 1024);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<float, bfloat16_t, 1024>(values[1024], diagonals[0], 1, 1024, 1024, 1, 1024, 1024);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Sub(values[0], values[0], values[1024], 1024);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<bfloat16_t, float, 1024>(diagonals[1024], values[0], 1, 1024, 1024, 1, 1024, 1024);
                AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
                AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(diagonal_space[((cid * 8192) + ((c_1 % 2) * 4096))], diagonals[0], 2048, 1, 2048);
              }
              if (7 <= stop_after) {
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_gm_to_ub<float, 64, 32>(matrices[0], product_space[(((cid * 16384) + ((c_1 % 2) * 8192)) + 4096)], 64, 32, 32, 0.000000e+00f);
                tl::ascend::copy_gm_to_ub<float, 2048, 1>(matrices[2048], product_space[(((cid * 16384) + ((c_1 % 2) * 8192)) + 6144)], 2048, 1, 2048, 0.000000e+00f);
                tl::ascend::copy_gm_to_ub<float, 1024, 1>(values[0], norm_space[((cid * 2048) + ((c_1 % 2) * 1024))], 1024, 1, 1024, 0.000000e+00f);
                AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
                AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
                tl::ascend::Fill<float>(q_norms[0], 1.000000e+00f, 64);
                AscendC::Exp(factors[0], gates[((c_1 % 2) * 64)], 64);
                if (l2norm != 0) {
                  AscendC::Gather(squares[0], values[0], q_diagonal[0], 0, 64);
                  AscendC::PipeBarrier<PIPE_V>();
                  {
                  AscendC::Adds(squares[0], squares[0], 1.000000e-06f, 64);
                  }
                  AscendC::PipeBarrier<PIPE_V>();
                  AscendC::Sqrt(squares[0], squares[0], 64);
                  AscendC::PipeBarrier<PIPE_V>();
                  AscendC::Div(q_norms[0], q_norms[0], squares[0], 64);
                }
                AscendC::PipeBarrier<PIPE_V>();
                {
                AscendC::Muls(q_norms[0], q_norms[0], scale, 64);
                }
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Mul(factors[0], factors[0], q_norms[0], 64);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Gather(values[0], factors[0], factor_offsets[0], 0, 1024);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Mul(values[0], values[0], pattern[0], 1024);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<bfloat16_t, float, 1024>(diagonals[2048], values[0], 1, 1024, 1024, 1, 1024, 1024);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<float, bfloat16_t, 1024>(values[1024], diagonals[2048], 1, 1024, 1024, 1, 1024, 1024);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Sub(values[0], values[0], values[1024], 1024);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<bfloat16_t, float, 1024>(diagonals[3072], values[0], 1, 1024, 1024, 1, 1024, 1024);
                AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
                AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(diagonal_space[(((cid * 8192) + ((c_1 % 2) * 4096)) + 2048)], diagonals[2048], 2048, 1, 2048);
                AscendC::Mul(matrices[0], matrices[0], matrices[4096], 4096);
                tl::ascend::brcb<float>(space[0], q_norms[0], 8, 1, 8);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::mul_mask<float>(matrices[0], matrices[0], space[0], 0xFFFFFFFFFFFFFFFF, 0, 64, 1, 1, 0, 8, 8, 1);
                if (l2norm != 0) {
                  AscendC::PipeBarrier<PIPE_V>();
                  for (int32_t i_11 = 0; i_11 < 64; ++i_11) {
                    AscendC::Mul(matrices[(i_11 * 64)], matrices[(i_11 * 64)], k_norms[0], 64);
                  }
                }
                AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
                AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(results[0], matrices[0], 1, 4096, 4096, 1, 4096, 4096);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<float, bfloat16_t, 4096>(values[0], results[0], 1, 4096, 4096, 1, 4096, 4096);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::Sub(matrices[0], matrices[0], values[0], 4096);
                AscendC::PipeBarrier<PIPE_V>();
                tl::ascend::copy_ub_to_ub<bfloat16_t, float, 4096>(results[4096], matrices[0], 1, 4096, 4096, 1, 4096, 4096);
                AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
                AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 64, 32>(weight_space[((cid * 16384) + ((c_1 % 2) * 8192))], results[0], 64, 32, 32);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(weight_space[(((cid * 16384) + ((c_1 % 2) * 8192)) + 2048)], results[2048], 2048, 1, 2048);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 64, 32>(weight_space[(((cid * 16384) + ((c_1 % 2) * 8192)) + 4096)], results[4096], 64, 32, 32);
                tl::ascend::copy_ub_to_gm<bfloat16_t, 2048, 1>(weight_space[(((cid * 16384) + ((c_1 % 2) * 8192)) + 6144)], results[6144], 2048, 1, 2048);
              }
            }
            if (3 <= stop_after) {
              AscendC::CrossCoreSetFlag<0x2, PIPE_MTE3>(3);
            }
          }
          if (6 <= stop_after) {
            if (0 < c_1) {
              AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(1);
              AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(1);
              AscendC::CrossCoreWaitFlag(2);
              tl::ascend::copy_gm_to_ub<float, 8192, 1>(values[0], state_space[((cid * 16384) + (vid * 8192))], 8192, 1, 8192, 0.000000e+00f);
              AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(1);
              AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(1);
              AscendC::Exp(decay_rate[0], gates[(((c_1 + 1) % 2) * 64)], 64);
              AscendC::SetFlag<AscendC::HardEvent::V_S>(1);
              AscendC::WaitFlag<AscendC::HardEvent::V_S>(1);
              {
              AscendC::Muls(state[0], state[0], decay_rate.GetValue(63), 8192);
              }
              AscendC::PipeBarrier<PIPE_V>();
              AscendC::Add(state[0], state[0], values[0], 8192);
            }
            if (c_1 == wanted) {
              AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
              AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
              tl::ascend::copy_ub_to_gm<float, 8192, 1>(track_state[(((cid * 16384) + ((t_3 * blocks) * 16384)) + (vid * 8192))], state[0], 8192, 1, 8192);
              AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
              AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
            }
            if ((c_1 * 64) < length_2) {
              if (keeps != 0) {
                AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
                AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
                tl::ascend::copy_ub_to_gm<float, 8192, 1>(chunk_states[(((((base + c_1) * heads) * 16384) + (((cid + (t_3 * blocks)) % heads) * 16384)) + (vid * 8192))], state[0], 8192, 1, 8192);
              }
              AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
              AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
              AscendC::PipeBarrier<PIPE_V>();
              tl::ascend::copy_ub_to_ub<bfloat16_t, float, 8192>(results[0], state[0], 1, 8192, 8192, 1, 8192, 8192);
              AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
              AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
              tl::ascend::copy_ub_to_gm<bfloat16_t, 8192, 1>(h[((((stop_after < 7) ? (((((begin_2 / 64) + ((cid + (t_3 * blocks)) / heads)) + c_1) * heads) + ((cid + (t_3 * blocks)) % heads)) : ((cid * 2) + (c_1 % 2))) * 16384) + (vid * 8192))], results[0], 8192, 1, 8192);
              AscendC::CrossCoreSetFlag<0x2, PIPE_MTE3>(4);
            }
          }
        }
        if ((update_state != 0) && (6 <= stop_after)) {
          AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
          AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
          tl::ascend::copy_ub_to_gm<float, 8192, 1>(ssm_pool[(((((cid + (t_3 * blocks)) % heads) * 16384) + (vid * 8192)) + (slot_2 * pool_pitch))], state[0], 8192, 1, 8192);
        }
      } else {
        tl::ascend::Fill<float>(state[0], 0.000000e+00f, 8192);
        AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(1);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(1);
        if ((0 <= wanted) && (wanted <= ((length_2 + 63) / 64))) {
          tl::ascend::copy_ub_to_gm<float, 8192, 1>(track_state[(((cid * 16384) + ((t_3 * blocks) * 16384)) + (vid * 8192))], state[0], 8192, 1, 8192);
        }
        for (int32_t c_2 = 0; c_2 < (((length_2 + 63) / 64) * keeps); ++c_2) {
          tl::ascend::copy_ub_to_gm<float, 8192, 1>(chunk_states[(((((base + c_2) * heads) * 16384) + (((cid + (t_3 * blocks)) % heads) * 16384)) + (vid * 8192))], state[0], 8192, 1, 8192);
        }
      }
      AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(1);
    }
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(1);
  }
}

#include "ascend/generated/chunk_gated_delta_rule.hpp"
#include <gdn_ascend_launch.hpp>

extern "C" void gdn_ascend_chunk_gated_delta_rule_act_bf16(const gdn::ascend::ChunkGatedDeltaRuleArguments& a, aclrtStream stream) {
  GDN_ASCEND_LAUNCH(chunk_gated_delta_rule_act_bf16, a.blocks, stream, a.q.data, a.k.data, a.v.data, a.g.data, a.beta.data, a.ssm_pool.data, a.query_start_loc.data, a.cache_indices.data, a.has_initial_state.data, a.track_state.data, a.track_chunk_idx.data, a.chunk_states.data, a.out.data, a.head_gates.data, a.head_beta.data, a.lower_.data, a.write.data, a.erase.data, a.w.data, a.h.data, a.v_new.data, a.product_space.data, a.norm_space.data, a.diagonal_space.data, a.weight_space.data, a.state_space.data, a.identity_space.data, a.blocks, a.rows, a.start_pitch, a.index_pitch, a.track_pitch, a.q_head_pitch, a.k_head_pitch, a.v_head_pitch, a.ratio, a.all_initial, a.update_state, a.tracks, a.keeps, a.l2norm, a.stop_after, a.scale, a.tokens, a.q_pitch, a.k_pitch, a.v_pitch, a.g_pitch, a.beta_pitch, a.slots, a.pool_pitch, a.starts, a.indices, a.flags, a.heads, a.places, a.buffers);
}
