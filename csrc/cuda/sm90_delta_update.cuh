// Gates, l2norm and delta rule for 1 to 16 tokens a row, over one read of the state: commits the last state, or keeps
// the pool as it is and stores the state after each token (speculative drafts, a chain or a tree).
//
// Tile: a warp holds kRows rows of one head's state in registers (K up to 128; lanes past K hold zeros) and steps
// through the tokens; q, k, v and gates of the next token are loaded while the current one is computed.
//
// Trees: where the parent of token t is not token t - 1, the state of its parent is built again from the pool and the d
// of the tokens on the path, which every warp keeps in shared memory: the same bits as token after token.
//
// Memory: state read once (again at every branch, from L2), written once a token if asked for; q, k, v once a block.
// Synchronisation: none between warps.
#pragma once

#include "cuda/sm90_delta_rule.cuh"

namespace gdn::sm90 {

constexpr int kMaxDrafts = 16;
constexpr int kUpdateWarps = 4;

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

// Four columns of k, zero past K.
__device__ inline float4 load_key(const UpdateParams& p, int64_t n, int t, int key_head, int lane) {
  const int64_t at = n * p.k_row + t * p.k_token + key_head * p.k_head + 4 * lane;
  return 4 * lane < p.k_dim ? load_four(p.k, at, p.aligned_qk) : float4{};
}

// Everything of one token that one lane needs.
struct TokenInput {
  float4 q, k;
  float v, a, b;

  __device__ void load(const UpdateParams& p, int64_t n, int t, int value_head, int v_row, int lane) {
    const int key_head = value_head / p.ratio;
    const int64_t q_at = n * p.q_row + t * p.q_token + key_head * p.q_head + 4 * lane;
    q = 4 * lane < p.k_dim ? load_four(p.q, q_at, p.aligned_qk) : float4{};
    k = load_key(p, n, t, key_head, lane);
    v = load_float<AnyType>(p.v, n * p.v_row + t * p.v_token + value_head * p.v_head + v_row);
    a = load_float<AnyType>(p.a, n * p.a_row + t * p.a_token + value_head);
    b = load_float<AnyType>(p.b, n * p.b_row + t * p.b_token + value_head);
  }
};

// Index of the token that token t continues from; -1 for the committed state.
__device__ inline int parent_of(const UpdateParams& p, int64_t n, int t) {
  if (!p.parents.data) return t - 1;
  const int64_t parent = load_index(p.parents, n * p.drafts + t);
  return parent >= 0 && parent < t ? static_cast<int>(parent) : -1;
}

// What is needed to build the state after any earlier token: lane t keeps it for token t.
struct Path {
  uint32_t tokens = 0;  // the token and all it continues from, one bit each
  float decay = 0.0f;

  __device__ uint32_t of(int token) const { return token < 0 ? 0 : __shfl_sync(kFullMask, tokens, token); }
  __device__ float decay_of(int token) const { return __shfl_sync(kFullMask, decay, token); }
  __device__ void add(int token, int parent, float token_decay, int lane) {
    const uint32_t path = of(parent) | 1u << token;
    if (lane != token) return;
    tokens = path;
    decay = token_decay;
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
__global__ void __launch_bounds__(kUpdateWarps* kWarp) sm90_delta_update(const __grid_constant__ UpdateParams p) {
  __shared__ float shared_d[kUpdateWarps][kMaxDrafts][kRows];

  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t n = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  if (n >= p.rows) return;
  const int first_row = (blockIdx.x * kUpdateWarps + warp) * kRows;  // of the HV x V rows of this slot
  if (first_row >= p.value_heads * p.v_dim) return;
  const int value_head = first_row / p.v_dim, head_row = first_row % p.v_dim;
  const int lane_row = RowMap<kRows>::row_of_lane(lane);
  const bool stores = RowMap<kRows>::stores(lane);
  const float A_log = load_float<AnyType>(p.A_log, value_head), dt_bias = load_float<AnyType>(p.dt_bias, value_head);

  wait_for_previous_kernel();
  allow_next_kernel();

  const int64_t slot = load_slot(p.cache_indices, n);
  const int64_t out_row = (n * p.drafts * p.value_heads + value_head) * p.v_dim + head_row + lane_row;
  const int64_t out_token = static_cast<int64_t>(p.value_heads) * p.v_dim;
  if (slot < 0) {
    for (int t = 0; stores && t < p.drafts; ++t) store_float<AnyType>(p.out, out_row + t * out_token, 0.0f);
    return;
  }
  const int64_t head_offset = static_cast<int64_t>(first_row) * p.k_dim;
  State* const head = static_cast<State*>(p.ssm_pool) + slot * p.ssm_pitch + head_offset;
  UpdateTile<State, kRows> state;
  state.load(head, p.k_dim, lane, p.aligned_pool);
  const int64_t spec_slot = p.intermediate ? load_slot(p.intermediate_indices, n) : -1;

  TokenInput next;
  next.load(p, n, 0, value_head, head_row + lane_row, lane);
  Path path;
  for (int t = 0; t < p.drafts; ++t) {
    const int parent = parent_of(p, n, t);
    const TokenInput input = next;
    if (t + 1 < p.drafts) next.load(p, n, t + 1, value_head, head_row + lane_row, lane);
    const KeyQuery token = KeyQuery::of(input.k, input.q, p.l2norm);
    const Gate gate{expf(log_gate(A_log, input.a + dt_bias)), sigmoid(input.b)};

    if (parent != t - 1) {
      state.load(head, p.k_dim, lane, p.aligned_pool);
      for (uint32_t rest = path.of(parent); rest != 0; rest &= rest - 1) {
        const int i = __ffs(rest) - 1;
        const float4 k = load_key(p, n, i, value_head / p.ratio, lane);
        const float decay = path.decay_of(i);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          state.row[r] = stored<State>(updated_row(state.row[r], k, decay, shared_d[warp][i][r]));
      }
    }

    float sums[2 * kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      sums[i] = dot(state.row[i], token.k);
      sums[kRows + i] = dot(state.row[i], token.q);
    }
    const RowResult result = delta_and_output<kRows>(sums, token, gate, input.v, p.scale, lane);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float d = RowMap<kRows>::d_of_row(result.d_scaled, i);
      state.row[i] = stored<State>(updated_row(state.row[i], token.k, gate.decay, d));
    }
    if (stores) {
      store_float<AnyType>(p.out, out_row + t * out_token, result.o);
      shared_d[warp][t][lane_row] = result.d_scaled;
    }
    path.add(t, parent, gate.decay, lane);
    __syncwarp();
    if (spec_slot >= 0) {
      State* const target =
          static_cast<State*>(p.intermediate) + spec_slot * p.intermediate_row + t * p.intermediate_token + head_offset;
      state.store(target, p.k_dim, lane, p.aligned_intermediate);
    }
  }
  if (p.commit) state.store(head, p.k_dim, lane, p.aligned_pool);
}

}  // namespace gdn::sm90
