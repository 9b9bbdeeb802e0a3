// All draft tokens of a GDN layer from one read of each state: convolution, l2norm, gates, outputs, and the record from
// which gdn_fold commits any of them. No state is written or updated; with u = S k, p = S q of the committed state S,
//
//   d_t = beta_t (v_t - e^G_t u_t - sum_j e^(G_t - G_j) (k_j.k_t) d_j)        j: tokens before t on its path
//   o_t = scale (e^G_t p_t + sum_j e^(G_t - G_j) (k_j.q_t) d_j)               j: these and t; G: log gates summed up to
//
// Tiles: a block takes 32 to 128 rows of one value head's state, or of two that share a key head; a warp 16 rows and
// all 128 columns in registers. u, p and the products of k and q are tensor core products of 10-bit mantissas; what has
// more bits (states, keys of float32 activations) is multiplied in two parts, which leaves 2^-21. Sums and triangles
// are float32. Memory: state, windows and inputs read once (q and k channels once a block), record and output written
// once. Synchronisation: all loads are in flight before the first is used, and the second head's state takes the
// registers of the first as they are consumed; block barriers after the convolution, after norms and gates, and before
// the triangle. A token's bits depend on its path only, not on the batch or other branches.
#pragma once

#include "cuda/sm90_delta_rule.cuh"
#include "cuda/sm90_draft_path.cuh"

namespace gdn::sm90 {

constexpr int kVerifyThreads = 2 * kHeadDim;  // one q or k channel each
constexpr int kTileRows = 16;                 // of state, a warp
constexpr int kVectorPitch = kHeadDim + 16;   // floats: the columns of two vectors lie in different banks

struct DraftPitch {
  int64_t row, token;
  __device__ int64_t at(int64_t n, int t) const { return n * row + t * token; }
};

struct VerifyParams {
  FloatPtr x, a, b;         // [N, T_d, D], [N, T_d, HV], [N, T_d, HV]
  FloatPtr A_log, dt_bias;  // [HV]
  ConvLayer conv;
  FloatPtr out;                     // [N, T_d, HV, 128]
  const void* ssm_pool;             // [slots, HV, 128, 128]
  FloatPtr kept_x;                  // the record: [rows, T_d, D]
  float *kept_k, *kept_d, *kept_g;  // [rows, T_d, H, 128], [rows, T_d, HV, 128], [rows, T_d, HV]
  SlotPtr cache_indices;            // [N]
  IndexPtr parents;                 // [N, T_d] or null
  DraftPitch x_pitch, a_pitch, b_pitch, kept_x_pitch, kept_k_pitch, kept_d_pitch, kept_g_pitch;
  int64_t ssm_pitch;
  int32_t rows, drafts, key_heads, ratio;
  int32_t block_rows, block_heads;  // of state; block_heads > 1 takes all 128 rows
  float scale;
  bool aligned_state;
};

// Value heads that a block may take: what shared memory has room for.
constexpr int most_block_heads(int drafts) { return drafts > 8 ? 1 : 2; }

// kDrafts: 4, 8 or 16, at least p.drafts.
template <int kDrafts>
struct alignas(16) VerifyShared {
  static constexpr int kHeads = most_block_heads(kDrafts);
  static constexpr int kVectors = 2 * kDrafts;        // k of every token, then q
  static constexpr int kRows = kMaxWindow + kDrafts;  // inputs of a channel
  static constexpr int kSumsPitch = kVectors + 1;     // floats: 16 rows lie in different banks

  // What one value head needs of the tokens.
  struct alignas(16) Head {
    float from_k[kDrafts][kDrafts], from_q[kDrafts][kDrafts];  // what d of one token adds to d and o of another
    float state_k[kDrafts], state_q[kDrafts];                  // factors of u and p
    float beta[kDrafts], log_decay[kDrafts];
  };

  float inputs[2][kRows][kVectorPitch];  // k, q: inputs of the convolution, which its outputs replace
  float values[kRows][kHeads * kHeadDim];
  Head heads[kHeads];
  float products[kDrafts][kVectors];  // k_j.k_t, then k_j.q_t, as they come
  float k_scale[kDrafts], q_scale[kDrafts];
  uint32_t path[kDrafts];
  // u and p of every row of state. Where memory is short they replace the inputs, which nothing reads any more.
  using Sums = float[kSumsPitch];
  Sums own_sums[kHeads > 1 ? kHeadDim : 1];

  __device__ Sums* sums() { return kHeads > 1 ? own_sums : reinterpret_cast<Sums*>(inputs); }
  __device__ const float* vector(int i) const { return inputs[i / kDrafts][kMaxWindow + i % kDrafts]; }
  __device__ static float4 four(const float* x, int column) { return *reinterpret_cast<const float4*>(x + column); }
  // Vector 8 tile + i, i < 8. NOTE: with the division of vector() the compiler keeps an address for every tile.
  __device__ const float* tile_vector(int tile, int i) const {
    return kDrafts < 8 ? vector(i) : inputs[8 * tile / kDrafts][kMaxWindow + 8 * tile % kDrafts] + i * kVectorPitch;
  }
};
static_assert(sizeof(VerifyShared<kMaxDrafts>) <= 48 * 1024);

// One channel of all drafts. Its column of shared memory belongs to its thread until the next barrier.
template <class T, int kDrafts>
struct DraftChannel {
  static constexpr int kGroup = kDrafts == 8 ? 2 : 4;  // tokens convolved at a time; registers run out
  static constexpr int kInFlight = 4;                  // inputs loaded at a time

  ConvChannel<T> conv;
  ConvWindow<T> window;
  Raw<T> x[kInFlight];

  __device__ void load_inputs(const VerifyParams& p, int64_t n, int channel, int first = 0) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (first + i < p.drafts) x[i] = Raw<T>::load(p.x, p.x_pitch.at(n, first + i) + channel);
  }

  __device__ void stage(const VerifyParams& p, int64_t n, int channel, bool keep, float* column, int pitch) {
    float taps[kMaxWindow];
    window.values(p.conv, taps);
#pragma unroll
    for (int j = 0; j < kMaxWindow; ++j) column[j * pitch] = taps[j];
#pragma unroll
    for (int first = 0; first < kDrafts; first += kInFlight) {
      if (first > 0) load_inputs(p, n, channel, first);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int t = first + i;
        if (t >= p.drafts) break;
        const float input = x[i].to_float(p.x.dtype);
        column[(kMaxWindow + t) * pitch] = input;
        if (keep) store_float<T>(p.kept_x, p.kept_x_pitch.at(n, t) + channel, input);
      }
    }
  }

  // In place, the last tokens first: a token's inputs come before it.
  __device__ void convolve(const VerifyParams& p, uint32_t inputs_before, float* column, int pitch) const {
#pragma unroll 1
    for (int first = (p.drafts - 1) / kGroup * kGroup; first >= 0; first -= kGroup) {
      float taps[kGroup][kMaxWindow], output[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const uint32_t rows = __shfl_sync(kFullMask, inputs_before, first + i);
#pragma unroll
        for (int j = 0; j < kMaxWindow; ++j)
          taps[i][kMaxWindow - 1 - j] = column[static_cast<int>(rows >> 8 * j & 255) * pitch];
        output[i] = column[(kMaxWindow + first + i) * pitch];
      }
#pragma unroll
      for (int i = 0; i < kGroup; ++i) output[i] = conv.output(p.conv, taps[i], output[i]);
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
        if (first + i < p.drafts) column[(kMaxWindow + first + i) * pitch] = output[i];
    }
  }
};

// Sums of products of 16 rows with 8 vectors, in the layout of mma_tf32's c. kWide: the elements have more bits than
// its operands.
template <bool kWideRows, bool kWideVectors>
struct ProductTile {
  float heads[4] = {}, tails[4] = {};

  // 16 columns, of which a lane has four: `upper` of row lane / 4, `lower` of the row 8 below, `b` of vector lane / 4.
  __device__ void add(float4 upper, float4 lower, float4 b) {
    add({upper.x, lower.x, upper.y, lower.y}, b.x, b.y);
    add({upper.z, lower.z, upper.w, lower.w}, b.z, b.w);
  }

  __device__ float sum(int i) const { return heads[i] + tails[i]; }

 private:
  __device__ void add(const float (&a)[4], float b0, float b1) {
    float head[4], tail[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      head[i] = kWideRows ? tf32_head(a[i]) : a[i];
      tail[i] = a[i] - head[i];
    }
    const float b0_head = kWideVectors ? tf32_head(b0) : b0, b1_head = kWideVectors ? tf32_head(b1) : b1;
    mma_tf32(heads, head, b0_head, b1_head);
    if constexpr (kWideRows) mma_tf32(tails, tail, b0_head, b1_head);
    if constexpr (kWideVectors) mma_tf32(tails, head, b0 - b0_head, b1 - b1_head);
  }
};

// T: dtype of x, conv weights, bias, conv pool and output, with width 4 and states at multiples of 16 bytes; AnyType:
// all of that is read at run time.
template <class State, class T, int kDrafts>
__global__ void __launch_bounds__(kVerifyThreads, std::is_same_v<T, AnyType> ? 1 : 2)
    sm90_gdn_verify(const __grid_constant__ VerifyParams p) {
  using Shared = VerifyShared<kDrafts>;
  constexpr bool kAny = std::is_same_v<T, AnyType>, kWideState = std::is_same_v<State, float>;
  constexpr int kTiles = Shared::kVectors / 8, kSteps = kHeadDim / 16, kWarps = kVerifyThreads / kWarp;
  constexpr int kInFlight = kDrafts > 8 || !kWideState ? kSteps / 2 : kSteps;  // steps of state in registers
  __shared__ Shared shared;

  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
  const int tile_row = lane / 4, tile_column = 4 * (lane % 4);
  const int n = static_cast<int>(blockIdx.z * gridDim.y + blockIdx.y);
  if (n >= p.rows) return;
  const int blocks_of_head = kHeadDim / p.block_rows;
  const int first_head = static_cast<int>(blockIdx.x) / blocks_of_head * p.block_heads;
  const int first_row = static_cast<int>(blockIdx.x) % blocks_of_head * p.block_rows;
  const int key_head = first_head / p.ratio, value_heads = p.key_heads * p.ratio;
  const bool keeps_key = first_row == 0 && first_head % p.ratio == 0;
  const bool has_state = warp * kTileRows < p.block_rows;

  const int is_query = thread / kHeadDim, column = thread % kHeadDim;
  const int qk_channel = ((1 - is_query) * p.key_heads + key_head) * kHeadDim + column;
  float* const qk_column = &shared.inputs[is_query][0][column];
  const int block_values = p.block_heads * p.block_rows;
  const int v_index = thread - kVerifyThreads + block_values;  // whole warps, the last ones
  const bool has_v = v_index >= 0;
  const int v_channel = (2 * p.key_heads + first_head) * kHeadDim + first_row + v_index;
  float* const v_column = &shared.values[0][has_v ? v_index : 0];

  DraftChannel<T, kDrafts> qk, v;
  qk.conv.load(p.conv, qk_channel);
  if (has_v) v.conv.load(p.conv, v_channel);
  const int gate_head = kWarps - 1 - warp;  // the last warps find the gates of a head each
  const bool has_gates = gate_head < p.block_heads, has_gate = has_gates && lane < p.drafts;
  Raw<AnyType> A_log{}, dt_bias{}, a{}, b{};
  if (has_gates) {
    A_log = Raw<AnyType>::load(p.A_log, first_head + gate_head);
    dt_bias = Raw<AnyType>::load(p.dt_bias, first_head + gate_head);
  }

  wait_for_previous_kernel();
  allow_next_kernel();

  const int64_t slot = load_slot(p.cache_indices, n);
  // Of the first row of the block.
  const auto out = [&](int t) {
    return (static_cast<int64_t>(n * p.drafts + t) * value_heads + first_head) * kHeadDim + first_row;
  };
  if (slot < 0) {
    for (int i = thread; i < p.drafts * block_values; i += kVerifyThreads)
      store_float<T>(p.out, out(i / block_values) + i % block_values, 0.0f);
    return;
  }
  qk.load_inputs(p, n, qk_channel);
  qk.window.load(p.conv, slot, qk_channel);
  if (has_v) {
    v.load_inputs(p, n, v_channel);
    v.window.load(p.conv, slot, v_channel);
  }
  const int parent = draft_parent(p.parents, n, p.drafts, lane);
  if (has_gate) {
    a = Raw<AnyType>::load(p.a, p.a_pitch.at(n, lane) + first_head + gate_head);
    b = Raw<AnyType>::load(p.b, p.b_pitch.at(n, lane) + first_head + gate_head);
  }
  float4 upper[kInFlight], lower[kInFlight];
  const State* tile = static_cast<const State*>(p.ssm_pool) + slot * p.ssm_pitch + tile_column +
                      static_cast<int64_t>(first_head * kHeadDim + first_row + warp * kTileRows + tile_row) * kHeadDim;
  const auto load_state = [&](int step, int offset = 0) {
    const State* const columns = tile + offset + 16 * step;
    upper[step % kInFlight] = load_four(columns, kAny ? p.aligned_state : true);
    lower[step % kInFlight] = load_four(columns + 8 * kHeadDim, kAny ? p.aligned_state : true);
  };
  if (has_state) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) load_state(i);
  }

  const uint32_t inputs_before = DraftInputs::before(parent, lane);
  qk.stage(p, n, qk_channel, keeps_key, qk_column, kVectorPitch);
  qk.convolve(p, inputs_before, qk_column, kVectorPitch);
  if (has_v) {
    v.stage(p, n, v_channel, true, v_column, Shared::kHeads * kHeadDim);
    v.convolve(p, inputs_before, v_column, Shared::kHeads * kHeadDim);
  }
  __syncthreads();

  for (int t = warp; t < p.drafts; t += kWarps) {
    const KeyQuery token = KeyQuery::of(Shared::four(shared.vector(t), 4 * lane),
                                        Shared::four(shared.vector(kDrafts + t), 4 * lane), true);
    if (lane == 0) shared.k_scale[t] = token.k_scale, shared.q_scale[t] = token.q_scale;
  }
  if (warp < kTiles) {
    ProductTile<kAny, kAny> products;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int columns = 16 * i + tile_column;
      const bool has_lower = tile_row + 8 < kDrafts;
      products.add(Shared::four(shared.vector(tile_row), columns),
                   has_lower ? Shared::four(shared.vector(tile_row + 8), columns) : float4{},
                   Shared::four(shared.vector(8 * warp + tile_row), columns));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = tile_row + i / 2 * 8;
      if (row < kDrafts) shared.products[row][8 * warp + tile_column / 2 + i % 2] = products.sum(i);
    }
  }
  if (has_gates) {
    const float g =
        has_gate ? log_gate(A_log.to_float(p.A_log.dtype), a.to_float(p.a.dtype) + dt_bias.to_float(p.dt_bias.dtype))
                 : 0.0f;
    const DraftPath path = DraftPath::of(parent, g, lane);
    if (lane < kDrafts) {
      if (gate_head == 0) shared.path[lane] = has_gate ? path.tokens : 0;
      shared.heads[gate_head].log_decay[lane] = path.log_decay;
      shared.heads[gate_head].beta[lane] = sigmoid(b.to_float(p.b.dtype));
    }
    if (has_gate && first_row == 0) p.kept_g[p.kept_g_pitch.at(n, lane) + first_head + gate_head] = g;
  }
  __syncthreads();

  for (int i = thread; i < p.block_heads * kDrafts * kDrafts; i += kVerifyThreads) {
    const int t = i / kDrafts % kDrafts, j = i % kDrafts;
    auto& head = shared.heads[i / (kDrafts * kDrafts)];
    const bool on_path = (shared.path[t] >> j & 1) != 0;
    const float factor = expf(head.log_decay[t] - head.log_decay[j]) * shared.k_scale[j];
    head.from_k[t][j] = on_path && j != t ? factor * shared.k_scale[t] * shared.products[j][t] : 0.0f;
    head.from_q[t][j] = on_path ? p.scale * factor * shared.q_scale[t] * shared.products[j][kDrafts + t] : 0.0f;
    if (j == 0) {
      const float decay = expf(head.log_decay[t]);
      head.state_k[t] = decay * shared.k_scale[t];
      head.state_q[t] = decay * shared.q_scale[t] * p.scale;
    }
  }
  if (keeps_key)
    for (int i = thread; i < p.drafts * kHeadDim; i += kVerifyThreads) {
      const int t = i / kHeadDim, c = i % kHeadDim;
      p.kept_k[p.kept_k_pitch.at(n, t) + key_head * kHeadDim + c] = shared.vector(t)[c] * shared.k_scale[t];
    }

  const int warp_row = warp * kTileRows;
  // Both halves of the warp find d of the same 16 rows; one takes o of the even tokens, the other of the odd ones.
  const int row = warp_row + lane % kTileRows, odd = lane / kTileRows;
#pragma unroll 1
  for (int h = 0; h < (Shared::kHeads > 1 ? p.block_heads : 1); ++h) {
    ProductTile<kWideState, kAny> tiles[kTiles];
    const bool has_next = Shared::kHeads > 1 && h + 1 < p.block_heads;
    if (has_state) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        __syncwarp();  // NOTE: the compiler does not mix the steps then; registers would run out
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
          tiles[j].add(upper[i % kInFlight], lower[i % kInFlight],
                       Shared::four(shared.tile_vector(j, tile_row), 16 * i + tile_column));
        if (i + kInFlight < kSteps)
          load_state(i + kInFlight);
        else if (has_next)
          load_state(i + kInFlight - kSteps, kHeadDim * kHeadDim);
      }
      tile += kHeadDim * kHeadDim;
    }
    if (h == 0) __syncthreads();
    if (!has_state) return;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        shared.sums()[warp_row + tile_row + i / 2 * 8][8 * j + tile_column / 2 + i % 2] = tiles[j].sum(i);
    __syncwarp();

    const auto& head = shared.heads[h];
    const float* const sums = shared.sums()[row];
    const float* const values = &shared.values[kMaxWindow][h * kHeadDim + row];
    float d[kDrafts] = {};
#pragma unroll
    for (int t = 0; t < kDrafts; ++t) {
      if (t >= p.drafts) break;
      float rest = values[t * Shared::kHeads * kHeadDim] - head.state_k[t] * sums[t];
#pragma unroll
      for (int j = 0; j < t; ++j) rest = fmaf(-head.from_k[t][j], d[j], rest);
      d[t] = head.beta[t] * rest;
    }
    const int head_row = h * kHeadDim + row;
    float* const kept_d = p.kept_d + first_head * kHeadDim + first_row + head_row;
#pragma unroll
    for (int even = 0; even < kDrafts; even += 2) {
      const int t = even + odd;
      if (t >= p.drafts) break;
      float o = head.state_q[t] * sums[kDrafts + t];
#pragma unroll
      for (int j = 0; j < even + 2; ++j) o = fmaf(head.from_q[t][j], d[j], o);
      store_float<T>(p.out, out(t) + head_row, o);
      kept_d[p.kept_d_pitch.at(n, t)] = odd ? d[even + 1] : d[even];
    }
  }
}

}  // namespace gdn::sm90
