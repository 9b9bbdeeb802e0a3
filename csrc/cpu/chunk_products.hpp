#pragma once

// The matrix products of one chunk. All run in one shape: C[R rows, N vectors] += A[R rows, p] B[p, N vectors], with
// the R values of A for one p next to each other. Sums run over p in order, one rounding a step, so a result does not
// depend on how C is tiled. Every operand is stored in blocks that a product reads from end to end: with a row pitch
// that is a power of two instead, the rows of a block would share few sets of the L1 cache.
#include "cpu/rows.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

constexpr int64_t kChunk = 64;
constexpr int64_t kTokenTile = 16;  // tokens that lie next to each other in kt, qt and the [token, token] matrices
constexpr int64_t kStateTile = 8;   // rows of the transposed state that lie next to each other in k
#if defined(__AVX512F__)
constexpr int kRows = 8, kVectors = 2;
#else
constexpr int kRows = 4, kVectors = 2;
#endif
constexpr int64_t kPanel = kVectors * kLanes;  // value channels that go through a chunk together

template <int N>
GDN_INLINE void clear(F (&c)[kRows][N]) {
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < N; ++n) c[r][n] = F{};
}

template <int N>
GDN_INLINE void accumulate(F (&c)[kRows][N], const float* a, int64_t a_pitch, const float* b, int64_t b_pitch,
                           int64_t count) {
  for (int64_t p = 0; p < count; ++p, a += a_pitch, b += b_pitch) {
    F row[N];
    for (int n = 0; n < N; ++n) row[n] = load(b + n * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const F value = splat(a[r]);
      for (int n = 0; n < N; ++n) c[r][n] = fma(value, row[n], c[r][n]);
    }
  }
}

// dst[c][r] = src[r][c]; rows and columns are multiples of kTileLanes.
inline void transpose(const float* src, int64_t src_pitch, int64_t rows, int64_t columns, float* dst,
                      int64_t dst_pitch) {
  for (int64_t r = 0; r < rows; r += kTileLanes) {
    for (int64_t c = 0; c < columns; c += kTileLanes) {
      const float* const from = src + r * src_pitch + c;
      float* const to = dst + c * dst_pitch + r;
      VecF<kTileLanes> x[kTileLanes], y[kTileLanes];
      for (int i = 0; i < kTileLanes; ++i) x[i] = load<kTileLanes>(from + i * src_pitch);
#if defined(__AVX2__)
      for (int i = 0; i < 8; i += 2) {
        y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
      }
      for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; ++j) {
          x[i + 2 * j] = __builtin_shufflevector(y[i + j], y[i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
          x[i + 2 * j + 1] = __builtin_shufflevector(y[i + j], y[i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
        }
      }
      for (int i = 0; i < 4; ++i) {
        store(to + i * dst_pitch, __builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
        store(to + (i + 4) * dst_pitch, __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));
      }
#else
      for (int i = 0; i < 4; i += 2) {
        y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 4, 1, 5);
        y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 6, 3, 7);
      }
      for (int j = 0; j < 2; ++j) {
        store(to + 2 * j * dst_pitch, __builtin_shufflevector(y[j], y[2 + j], 0, 1, 4, 5));
        store(to + (2 * j + 1) * dst_pitch, __builtin_shufflevector(y[j], y[2 + j], 2, 3, 6, 7));
      }
#endif
    }
  }
}

// A [kChunk j, kChunk i] matrix is stored as [i / kTokenTile][j][i % kTokenTile].
constexpr int64_t pair_offset(int64_t j, int64_t i) {
  return (i / kTokenTile * kChunk + j) * kTokenTile + i % kTokenTile;
}

// What the value heads of a key head share.
struct ChunkKeys {
  int64_t K = 0;
  int64_t tokens = 0, padded_tokens = 0;  // padded to whole token tiles with rows of zeros
  float* k = nullptr;                     // [K / kStateTile][kChunk][kStateTile]
  float* kt = nullptr;                    // [kChunk / kTokenTile][K][kTokenTile]
  float* qt = nullptr;                    // the same, scaled
  float* kkt = nullptr;                   // pairs: k_i k_j, for i >= j
  float* qkt = nullptr;                   // pairs: q_i k_j, for i >= j

  int64_t token_offset(int64_t i) const { return i / kTokenTile * K * kTokenTile + i % kTokenTile; }
};

// Per token of a chunk, for one value head. G is the cumulative log gate; high + low is its float64 value.
struct ChunkGates {
  float* G_high = nullptr;
  float* G_low = nullptr;
  float* decay = nullptr;      // e^G_i
  float* remaining = nullptr;  // e^(G_last - G_i)
  float* beta = nullptr;
  float total_decay = 0;  // e^G_last
};

// One value head, for all its panels of kPanel value channels.
struct ChunkValues {
  int64_t panels = 0;
  float* state = nullptr;     // [panels][K][kPanel], the transposed state
  float* solve = nullptr;     // pairs: -beta_i e^(G_i - G_j) k_i k_j, for i > j
  float* attend = nullptr;    // pairs: e^(G_i - G_j) q_i k_j, for i >= j
  float* v = nullptr;         // [panels][kChunk][kPanel]
  float* written = nullptr;   // the same, V'
  float* retained = nullptr;  // the same, e^(G_last - G_i) V'_i
  float* out = nullptr;       // the same
};

void key_products(const ChunkKeys& keys);
void gate_products(const ChunkKeys& keys, const ChunkGates& gates, const ChunkValues& values);
void advance_chunk(const ChunkKeys& keys, const ChunkGates& gates, const ChunkValues& values);

}  // namespace gdn::cpu::GDN_CPU_ISA
