// The arithmetic of one chunk of the gated delta rule, on float32 scratch: products of keys and queries, gating, and
// the triangular solve with the state update.
//
// Tiles: blocks of kRows tokens (or state rows) by kVectors vectors of value channels stay in registers. Value channels
// are independent of each other, so a panel of kVectors vectors goes through the whole chunk before the next: its slice
// of the state and of V' stays in L1.
// Structure: only i >= j is computed of the [token i, token j] products, and sums over j stop at the diagonal. The
// system (I + L) V' = R is solved by forward substitution in float32, R itself is formed in registers.
// Numerics: every exponent is G_i - G_j <= 0, i >= j, taken from a float64 cumulative sum.
#include "cpu/chunk_products.hpp"

namespace gdn::cpu::GDN_CPU_ISA {
namespace {

// dst[j][i] = a_i b_j for i >= j; a and b are [K, kChunk].
template <int N>
GDN_INLINE void product_tile(const float* bt, const float* at, int64_t K, float* dst) {
  F c[kRows][N] = {};
  accumulate<N>(c, bt, kChunk, at, kChunk, K);
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < N; ++n) store(dst + r * kChunk + n * kLanes, c[r][n]);
}

void triangle_product(const float* bt, const float* at, const ChunkKeys& keys, float* dst) {
  for (int64_t j = 0; j < keys.padded_tokens; j += kRows) {
    int64_t i = j / kLanes * kLanes;
    for (; i + kVectors * kLanes <= keys.padded_tokens; i += kVectors * kLanes)
      product_tile<kVectors>(bt + j, at + i, keys.K, dst + j * kChunk + i);
    for (; i < keys.padded_tokens; i += kLanes) product_tile<1>(bt + j, at + i, keys.K, dst + j * kChunk + i);
  }
}

// V'_i = beta_i (V_i - e^G_i S k_i) + sum_{j<i} solve[j][i] V'_j for kRows tokens from i0.
template <int N>
GDN_INLINE void solve_rows(const ChunkKeys& keys, const ChunkGates& gates, const ChunkValues& values, int64_t i0,
                           int64_t column) {
  F c[kRows][N] = {};
  accumulate<N>(c, keys.kt + i0, kChunk, values.state + column, values.pitch, keys.K);
  for (int r = 0; r < kRows; ++r) {
    const F decay = splat(-gates.decay[i0 + r]), beta = splat(gates.beta[i0 + r]);
    const float* const v = values.v + (i0 + r) * values.pitch + column;
    for (int n = 0; n < N; ++n) c[r][n] = beta * fma(decay, c[r][n], load(v + n * kLanes));
  }
  accumulate<N>(c, values.solve + i0, kChunk, values.written + column, values.pitch, i0);
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < r; ++j) {
      const F weight = splat(values.solve[(i0 + j) * kChunk + i0 + r]);
      for (int n = 0; n < N; ++n) c[r][n] = fma(weight, c[j][n], c[r][n]);
    }
    const int64_t at = (i0 + r) * values.pitch + column;
    for (int n = 0; n < N; ++n) {
      store(values.written + at + n * kLanes, c[r][n]);
      store(values.retained + at + n * kLanes, gates.remaining[i0 + r] * c[r][n]);
    }
  }
}

// out_i = e^G_i S q_i + sum_{j<=i} attend[j][i] V'_j
template <int N>
GDN_INLINE void output_rows(const ChunkKeys& keys, const ChunkGates& gates, const ChunkValues& values, int64_t i0,
                            int64_t column) {
  F c[kRows][N] = {};
  accumulate<N>(c, keys.qt + i0, kChunk, values.state + column, values.pitch, keys.K);
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < N; ++n) c[r][n] = gates.decay[i0 + r] * c[r][n];
  accumulate<N>(c, values.attend + i0, kChunk, values.written + column, values.pitch, i0);
  for (int j = 0; j < kRows; ++j) {
    F row[N];
    for (int n = 0; n < N; ++n) row[n] = load(values.written + (i0 + j) * values.pitch + column + n * kLanes);
    for (int r = j; r < kRows; ++r) {
      const F weight = splat(values.attend[(i0 + j) * kChunk + i0 + r]);
      for (int n = 0; n < N; ++n) c[r][n] = fma(weight, row[n], c[r][n]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < N; ++n) store(values.out + (i0 + r) * values.pitch + column + n * kLanes, c[r][n]);
}

// S = e^G_last S + sum_i k_i (e^(G_last - G_i) V'_i) for kRows rows of the transposed state from k0.
template <int N>
GDN_INLINE void state_rows(const ChunkKeys& keys, const ChunkGates& gates, const ChunkValues& values, int64_t k0,
                           int64_t column) {
  float* const state = values.state + k0 * values.pitch + column;
  F c[kRows][N];
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < N; ++n) c[r][n] = gates.total_decay * load(state + r * values.pitch + n * kLanes);
  accumulate<N>(c, keys.k + k0, keys.K, values.retained + column, values.pitch, keys.tokens);
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < N; ++n) store(state + r * values.pitch + n * kLanes, c[r][n]);
}

template <int N>
void advance_panel(const ChunkKeys& keys, const ChunkGates& gates, const ChunkValues& values, int64_t column) {
  for (int64_t i = 0; i < keys.tokens; i += kRows) solve_rows<N>(keys, gates, values, i, column);
  for (int64_t i = 0; i < keys.tokens; i += kRows) output_rows<N>(keys, gates, values, i, column);
  for (int64_t k = 0; k < keys.K; k += kRows) state_rows<N>(keys, gates, values, k, column);
}

}  // namespace

void key_products(const ChunkKeys& keys) {
  triangle_product(keys.kt, keys.kt, keys, keys.kkt);
  triangle_product(keys.kt, keys.qt, keys, keys.qkt);
}

void gate_products(const ChunkKeys& keys, const ChunkGates& gates, const ChunkValues& values) {
  VecI<kLanes> lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  for (int64_t j = 0; j < keys.tokens; ++j) {
    for (int64_t i = j / kLanes * kLanes; i < keys.padded_tokens; i += kLanes) {
      const int64_t at = j * kChunk + i;
      const VecI<kLanes> token = lane + static_cast<int32_t>(i);
      const F difference = (load(gates.G_high + i) - gates.G_high[j]) + (load(gates.G_low + i) - gates.G_low[j]);
      const F decay = exp<kLanes>(token >= static_cast<int32_t>(j) ? difference : F{});
      store(values.solve + at, -load(gates.beta + i) * decay * load(keys.kkt + at));
      store(values.attend + at, decay * load(keys.qkt + at));
    }
  }
}

void advance_chunk(const ChunkKeys& keys, const ChunkGates& gates, const ChunkValues& values) {
  int64_t column = 0;
  for (; column + kVectors * kLanes <= values.pitch; column += kVectors * kLanes)
    advance_panel<kVectors>(keys, gates, values, column);
  for (; column < values.pitch; column += kLanes) advance_panel<1>(keys, gates, values, column);
}

}  // namespace gdn::cpu::GDN_CPU_ISA
