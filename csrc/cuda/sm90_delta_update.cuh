// Gates, l2norm and delta rule for 1 to 16 tokens a row, over one read of the state: commits the last state, or keeps
// the pool as it is and stores the state after each token (speculative drafts, a chain or a tree).
//
// Tile: a block takes kUpdateRows rows of one head's state; its warps first prepare the tokens (norms and gates) in
// shared memory, one each, while the state is on its way, then hold kRows rows in registers (lanes past K hold zeros)
// and step through the tokens.
//
// Trees: where the parent of token t is not token t - 1, the state of its parent is built again from the pool and the d
// of the tokens on the path, which every warp keeps in shared memory: the same bits as token after token.
//
// Memory: state read once (again at every branch, from L2), written once a token if asked for; q, k, v once a block.
// Synchronisation: one block barrier after the tokens are prepared.
#pragma once

#include "cuda/sm90_delta_rule.cuh"
#include "cuda/sm90_draft_path.cuh"

namespace gdn::sm90 {

constexpr int kUpdateWarps = 8;
constexpr int kUpdateRows = 32;  // of one head, a block

struct UpdateParams {
  FloatPtr q, k, v, a, b, A_log, dt_bias, out;  // [N, T_d, heads, K or V], a and b [N, T_d, HV]
  void *ssm_pool, *intermediate;                // [slots, HV, V, K], [spec_slots, T_d, HV, V, K] or null
  SlotPtr cache_indices, intermediate_indices;
  IndexPtr parents;
  int64_t q_row, q_token, q_head, k_row, k_token, k_head, v_row, v_token, v_head;  // pitches
  int64_t a_row, a_token, b_row, b_token, ssm_pitch, intermediate_row, intermediate_token;
  int32_t rows, drafts, value_heads, ratio, k_dim, v_dim;
  float scale;
  bool l2norm, commit, aligned_qk, aligned_pool, aligned_intermediate;
};

// What all rows of a head need of one token: 1,056 bytes.
struct alignas(16) UpdateToken {
  float k[kHeadDim], q[kHeadDim];  // as they come, zero past K
  float k_scale, q_scale, kq;
  Gate gate;
  int parent;  // the token it continues from; -1 for the committed state

  __device__ KeyQuery key_query(int lane) const { return {key(lane), four(q, lane), k_scale, q_scale, kq}; }
  __device__ float4 key(int lane) const { return four(k, lane); }

 private:
  __device__ static float4 four(const float* x, int lane) { return reinterpret_cast<const float4*>(x)[lane]; }
};

// One warp prepares one token.
__device__ inline void prepare_token(const UpdateParams& p, int64_t n, int t, int value_head, int lane,
                                     UpdateToken& token) {
  const int key_head = value_head / p.ratio;
  const auto a = Raw<AnyType>::load(p.a, n * p.a_row + t * p.a_token + value_head);
  const auto b = Raw<AnyType>::load(p.b, n * p.b_row + t * p.b_token + value_head);
  const auto A_log = Raw<AnyType>::load(p.A_log, value_head), dt_bias = Raw<AnyType>::load(p.dt_bias, value_head);
  const int64_t k_at = n * p.k_row + t * p.k_token + key_head * p.k_head + 4 * lane;
  const int64_t q_at = n * p.q_row + t * p.q_token + key_head * p.q_head + 4 * lane;
  float4 &k = reinterpret_cast<float4*>(token.k)[lane], &q = reinterpret_cast<float4*>(token.q)[lane];
  if (4 * lane >= p.k_dim) {
    k = q = {};
  } else if (p.aligned_qk) {
    load_four_of_both(p.k, k_at, p.q, q_at, k, q);
  } else {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      token.k[4 * lane + i] = load_float<AnyType>(p.k, k_at + i);
      token.q[4 * lane + i] = load_float<AnyType>(p.q, q_at + i);
    }
  }
  const KeyQuery key_query = KeyQuery::of(k, q, p.l2norm);
  if (lane != 0) return;
  token.k_scale = key_query.k_scale;
  token.q_scale = key_query.q_scale;
  token.kq = key_query.kq;
  const float g = log_gate(A_log.to_float(p.A_log.dtype), a.to_float(p.a.dtype) + dt_bias.to_float(p.dt_bias.dtype));
  token.gate = {expf(g), sigmoid(b.to_float(p.b.dtype))};
  const int64_t parent = p.parents.data ? load_index(p.parents, n * p.drafts + t) : t - 1;
  token.parent = parent >= 0 && parent < t ? static_cast<int>(parent) : -1;
}

// The tokens a token continues from, itself included, one bit each: lane t keeps them for token t.
struct Path {
  uint32_t tokens = 0;

  __device__ uint32_t of(int token) const { return token < 0 ? 0 : __shfl_sync(kFullMask, tokens, token); }
  __device__ void add(int token, int parent, int lane) {
    const uint32_t path = of(parent) | 1u << token;
    if (lane == token) tokens = path;
  }
};

// Rounded to the dtype of the pool: T_d tokens in one call equal T_d calls bit for bit.
template <class State>
__device__ inline float4 stored(float4 x) {
  return {to_float(from_float<State>(x.x)), to_float(from_float<State>(x.y)), to_float(from_float<State>(x.z)),
          to_float(from_float<State>(x.w))};
}

template <class State, int kRows>
struct UpdateTile {
  float4 row[kRows];

  __device__ void load(const State* first_row, int k_dim, int lane, bool aligned) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      row[i] = 4 * lane < k_dim ? load_four(first_row + i * k_dim + 4 * lane, aligned) : float4{};
  }

  __device__ void store(State* first_row, int k_dim, int lane, bool aligned) const {
    if (4 * lane >= k_dim) return;
#pragma unroll
    for (int i = 0; i < kRows; ++i) store_four(first_row + i * k_dim + 4 * lane, row[i], aligned);
  }
};

template <class State, int kRows>
__global__ void __launch_bounds__(kUpdateWarps* kWarp, sizeof(State) == 4 ? 3 : 4)
    sm90_delta_update(const __grid_constant__ UpdateParams p) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float shared_d[kUpdateWarps][kMaxDrafts][kRows];
  auto* const tokens = reinterpret_cast<UpdateToken*>(shared);         // drafts
  auto* const shared_v = reinterpret_cast<float*>(tokens + p.drafts);  // drafts x kUpdateRows

  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t n = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  if (n >= p.rows) return;
  const int blocks_of_head = (p.v_dim + kUpdateRows - 1) / kUpdateRows;
  const int value_head = blockIdx.x / blocks_of_head, block_row = blockIdx.x % blocks_of_head * kUpdateRows;
  const int head_row = block_row + warp * kRows;
  const bool has_rows = head_row < p.v_dim;
  const int lane_row = RowMap<kRows>::row_of_lane(lane);

  wait_for_previous_kernel();
  allow_next_kernel();

  const int64_t slot = load_slot(p.cache_indices, n);
  const int64_t out_row = (n * p.drafts * p.value_heads + value_head) * p.v_dim + head_row + lane_row;
  const int64_t out_token = static_cast<int64_t>(p.value_heads) * p.v_dim;
  const bool stores = has_rows && RowMap<kRows>::stores(lane);
  if (slot < 0) {
    for (int t = 0; stores && t < p.drafts; ++t) store_float<AnyType>(p.out, out_row + t * out_token, 0.0f);
    return;
  }
  const int64_t head_offset = (static_cast<int64_t>(value_head) * p.v_dim + head_row) * p.k_dim;
  State* const head = static_cast<State*>(p.ssm_pool) + slot * p.ssm_pitch + head_offset;
  UpdateTile<State, kRows> state;
  if (has_rows) state.load(head, p.k_dim, lane, p.aligned_pool);
  const int64_t spec_slot = p.intermediate ? load_slot(p.intermediate_indices, n) : -1;
  for (int t = warp; t < p.drafts; t += kUpdateWarps) prepare_token(p, n, t, value_head, lane, tokens[t]);
  for (int i = threadIdx.x; i < p.drafts * kUpdateRows; i += kUpdateWarps * kWarp) {
    const int t = i / kUpdateRows, row = block_row + i % kUpdateRows;
    if (row < p.v_dim)
      shared_v[i] = load_float<AnyType>(p.v, n * p.v_row + t * p.v_token + value_head * p.v_head + row);
  }
  __syncthreads();
  if (!has_rows) return;

  Path path;
#pragma unroll 1
  for (int t = 0; t < p.drafts; ++t) {
    const UpdateToken& token = tokens[t];
    const Gate gate = token.gate;
    if (token.parent != t - 1) {
      state.load(head, p.k_dim, lane, p.aligned_pool);
      for (uint32_t rest = path.of(token.parent); rest != 0; rest &= rest - 1) {
        const int i = __ffs(rest) - 1;
        const float4 k = tokens[i].key(lane);
        const float decay = tokens[i].gate.decay;
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          state.row[r] = stored<State>(updated_row(state.row[r], k, decay, shared_d[warp][i][r]));
      }
    }

    const KeyQuery key_query = token.key_query(lane);
    float sums[2 * kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      sums[i] = dot(state.row[i], key_query.k);
      sums[kRows + i] = dot(state.row[i], key_query.q);
    }
    const float value = shared_v[t * kUpdateRows + warp * kRows + lane_row];
    const RowResult result = delta_and_output<kRows>(sums, key_query, gate, value, p.scale, lane);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float d = RowMap<kRows>::d_of_row(result.d_scaled, i);
      state.row[i] = stored<State>(updated_row(state.row[i], key_query.k, gate.decay, d));
    }
    if (stores) store_float<AnyType>(p.out, out_row + t * out_token, result.o);
    if (p.parents.data) {
      if (stores) shared_d[warp][t][lane_row] = result.d_scaled;
      path.add(t, token.parent, lane);
      __syncwarp();
    }
    if (spec_slot >= 0) {
      State* const target =
          static_cast<State*>(p.intermediate) + spec_slot * p.intermediate_row + t * p.intermediate_token + head_offset;
      state.store(target, p.k_dim, lane, p.aligned_intermediate);
    }
  }
  if (p.commit) state.store(head, p.k_dim, lane, p.aligned_pool);
}

}  // namespace gdn::sm90
