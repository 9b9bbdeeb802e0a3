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

// dst[j][i] = a_i b_j for i >= j; a and b are stored like ChunkKeys::kt.
void triangle_product(const ChunkKeys& keys, const float* b, const float* a, float* dst) {
  constexpr int kVectorsOfTile = kTokenTile / kLanes;
  for (int64_t j = 0; j < keys.tokens; j += kRows) {
    for (int64_t i = j / kTokenTile * kTokenTile; i < keys.padded_tokens; i += kTokenTile) {
      F c[kRows][kVectorsOfTile];
      clear(c);
      accumulate(c, b + keys.token_offset(j), kTokenTile, a + keys.token_offset(i), kTokenTile, keys.K);
      for (int r = 0; r < kRows; ++r)
        for (int n = 0; n < kVectorsOfTile; ++n) store(dst + pair_offset(j + r, i) + n * kLanes, c[r][n]);
    }
  }
}

// The slices of one panel.
struct Panel {
  Panel(const ChunkKeys& keys, const ChunkValues& values, int64_t panel)
      : state(values.state + panel * keys.K * kPanel),
        v(values.v + panel * kChunk * kPanel),
        written(values.written + panel * kChunk * kPanel),
        retained(values.retained + panel * kChunk * kPanel),
        out(values.out + panel * kChunk * kPanel) {}

  float* state;
  const float* v;
  float* written;
  float* retained;
  float* out;
};

// V'_i = beta_i (V_i - e^G_i S k_i) + sum_{j<i} solve[j][i] V'_j for kRows tokens from i0.
GDN_INLINE void solve_rows(const ChunkKeys& keys, const ChunkGates& gates, const float* solve, const Panel& panel,
                           int64_t i0) {
  F c[kRows][kVectors];
  clear(c);
  accumulate(c, keys.kt + keys.token_offset(i0), kTokenTile, panel.state, kPanel, keys.K);
  for (int r = 0; r < kRows; ++r) {
    const F decay = splat(-gates.decay[i0 + r]), beta = splat(gates.beta[i0 + r]);
    for (int n = 0; n < kVectors; ++n)
      c[r][n] = beta * fma(decay, c[r][n], load(panel.v + (i0 + r) * kPanel + n * kLanes));
  }
  accumulate(c, solve + pair_offset(0, i0), kTokenTile, panel.written, kPanel, i0);
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < r; ++j) {
      const F weight = splat(solve[pair_offset(i0 + j, i0 + r)]);
      for (int n = 0; n < kVectors; ++n) c[r][n] = fma(weight, c[j][n], c[r][n]);
    }
    const F remaining = splat(gates.remaining[i0 + r]);
    for (int n = 0; n < kVectors; ++n) {
      store(panel.written + (i0 + r) * kPanel + n * kLanes, c[r][n]);
      store(panel.retained + (i0 + r) * kPanel + n * kLanes, remaining * c[r][n]);
    }
  }
}

// out_i = e^G_i S q_i + sum_{j<=i} attend[j][i] V'_j
GDN_INLINE void output_rows(const ChunkKeys& keys, const ChunkGates& gates, const float* attend, const Panel& panel,
                            int64_t i0) {
  F c[kRows][kVectors];
  clear(c);
  accumulate(c, keys.qt + keys.token_offset(i0), kTokenTile, panel.state, kPanel, keys.K);
  for (int r = 0; r < kRows; ++r) {
    const F decay = splat(gates.decay[i0 + r]);
    for (int n = 0; n < kVectors; ++n) c[r][n] = decay * c[r][n];
  }
  accumulate(c, attend + pair_offset(0, i0), kTokenTile, panel.written, kPanel, i0);
  for (int j = 0; j < kRows; ++j) {
    F row[kVectors];
    for (int n = 0; n < kVectors; ++n) row[n] = load(panel.written + (i0 + j) * kPanel + n * kLanes);
    for (int r = j; r < kRows; ++r) {
      const F weight = splat(attend[pair_offset(i0 + j, i0 + r)]);
      for (int n = 0; n < kVectors; ++n) c[r][n] = fma(weight, row[n], c[r][n]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < kVectors; ++n) store(panel.out + (i0 + r) * kPanel + n * kLanes, c[r][n]);
}

// S = e^G_last S + sum_i k_i (e^(G_last - G_i) V'_i) for kRows rows of the transposed state from k0.
GDN_INLINE void state_rows(const ChunkKeys& keys, const ChunkGates& gates, const Panel& panel, int64_t k0) {
  const F decay = splat(gates.total_decay);
  F c[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < kVectors; ++n) c[r][n] = decay * load(panel.state + (k0 + r) * kPanel + n * kLanes);
  accumulate(c, keys.k + k0 / kStateTile * kChunk * kStateTile + k0 % kStateTile, kStateTile, panel.retained, kPanel,
             keys.tokens);
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < kVectors; ++n) store(panel.state + (k0 + r) * kPanel + n * kLanes, c[r][n]);
}

}  // namespace

void key_products(const ChunkKeys& keys) {
  triangle_product(keys, keys.kt, keys.kt, keys.kkt);
  triangle_product(keys, keys.kt, keys.qt, keys.qkt);
}

void gate_products(const ChunkKeys& keys, const ChunkGates& gates, const ChunkValues& values) {
  VecI<kLanes> lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  for (int64_t j = 0; j < keys.tokens; ++j) {
    for (int64_t i = j / kLanes * kLanes; i < keys.padded_tokens; i += kLanes) {
      const int64_t at = pair_offset(j, i);
      const VecI<kLanes> token = lane + static_cast<int32_t>(i);
      const F difference = (load(gates.G_high + i) - gates.G_high[j]) + (load(gates.G_low + i) - gates.G_low[j]);
      const F decay = exp<kLanes>(token >= static_cast<int32_t>(j) ? difference : F{});
      store(values.solve + at, -load(gates.beta + i) * decay * load(keys.kkt + at));
      store(values.attend + at, decay * load(keys.qkt + at));
    }
  }
}

void advance_chunk(const ChunkKeys& keys, const ChunkGates& gates, const ChunkValues& values) {
  for (int64_t p = 0; p < values.panels; ++p) {
    const Panel panel(keys, values, p);
    for (int64_t i = 0; i < keys.tokens; i += kRows) solve_rows(keys, gates, values.solve, panel, i);
    for (int64_t i = 0; i < keys.tokens; i += kRows) output_rows(keys, gates, values.attend, panel, i);
    for (int64_t k = 0; k < keys.K; k += kRows) state_rows(keys, gates, panel, k);
  }
}

}  // namespace gdn::cpu::GDN_CPU_ISA
