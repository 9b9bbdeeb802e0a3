// Chunked gated delta rule on tensor cores: states read and written by slot, one pass over q, k, v.
//
// Per chunk of C = 64 tokens, with G the inclusive sum of the log gates and A = (I + stril(beta K K^T))^-1:
//   U = K S^T,  W = V - e^G U,  O = scale (e^G (Q S^T) + R W),  S' = e^{G_C} S + W^T X
//   X_j = e^{G_C - G_j} (B^T K)_j,  R_il = e^{G_i - G_l} (tril(Q K^T) B)_il,  B_jl = A_jl beta_l     (independent of S)
// Tiles: a cluster of two blocks takes one row and value head, each block 64 of its 128 rows of S, which stay in
// float32 in the registers of one warp group from the first chunk to the last. Two more warp groups a block make X and
// R, for every second chunk, and copy them to the other block. Grid: a cluster a pair of multiprocessors, work items in
// turn, those of long rows first. B is kept in two 16-bit parts, as its rows may cancel.
// Memory: K and Q are read once a cluster (multicast), V and O once; the only other traffic is the states.
// Synchronisation: mbarriers named for who waits for what; see ChunkShared. Nothing depends on the batch.
// Segments: a chunk's S' is linear in S, so a segment of chunks ends at B + S M, with B its end from a state of zero
// and M its end from the identity with v = 0. Rows may be cut: one launch finds all B and M without outputs, one joins
// them in float32, and the outputs of all segments are then found side by side.
#pragma once

#include "cuda/sm90_device.cuh"
#include "cuda/sm90_tensor_core.cuh"

namespace gdn::sm90 {

constexpr int kChunk = 64;
constexpr int kHead = 128;              // K and V
constexpr int kBlocks = 2;              // of a cluster
constexpr int kHalf = kHead / kBlocks;  // rows of the state a block holds
constexpr int kGroup = 128;             // threads of a warp group
constexpr int kGroupWarps = kGroup / kWarp;
constexpr int kChunkThreads = 4 * kGroup;
constexpr int kServiceRegisters = 56, kPrepareRegisters = 112, kStateRegisters = 232;
constexpr int kKeyStages = 4, kValueStages = 2;
constexpr int kValuesAhead = 4;   // chunks, fetched into the L2 cache
constexpr int kSortedRows = 256;  // more are worked on in their order
// Of a chunk's last tokens, 16 a step, the state takes W in two 16-bit parts: where keys agree, X is largest there.
constexpr int kExactSteps = 2, kExactStepsOfTail = 4;
#ifdef SGLANG_GDN_RACECHECK
constexpr bool kEveryThreadArrives = true;  // compute-sanitizer does not see what orders threads with one that arrives
#else
constexpr bool kEveryThreadArrives = false;
#endif
constexpr int kWarpArrivals = kEveryThreadArrives ? kWarp : 1, kGroupArrivals = kGroupWarps * kWarpArrivals;
constexpr int kThreadArrivals = kEveryThreadArrives ? kGroup : 1;
constexpr float kLog2e = 1.4426950408889634f;

struct ChunkRuleParams {
  CUtensorMap q, k, v, out_boxes;  // boxes of 64 tokens x 1 head x 64 channels
  const float* g;                  // [T, HV]
  const float* beta;               // [T, HV]
  FloatPtr out;                    // [T, HV, 128]
  FloatPtr ssm_pool;               // [slots, HV, 128, 128]
  FloatPtr h;                      // optional [chunks, HV, 128, 128]
  float* segment_ends;             // optional [segments, HV, 128, 128]: states at the end of segments
  // [segments, HV, 128, 128]: what a segment multiplies the state at its start by; in the place of the first segment of
  // a row the state of the row, which the last one overwrites
  float* segment_maps;
  float* track_state;  // optional [N, HV, 128, 128]
  IndexPtr track_chunk_idx;
  IndexPtr query_start_loc;
  SlotPtr cache_indices;
  const bool* has_initial_state;  // optional [N]
  int64_t g_pitch, beta_pitch, ssm_pitch;
  int32_t items;  // of the launch, at most
  int32_t rows, tokens, value_heads, ratio;
  int32_t segment_chunks;  // 0: rows are whole
  float scale;
  bool update_state;
};

// What does not depend on the state: made once a cluster, used by both blocks.
struct alignas(1024) Packet {
  unsigned char x[2 * kTileBytes];  // [token, K]
  float u_factor[kChunk];           // of U: e^G, times the norm of k
  float decay[4];                   // e^{G_C}, then padding to 16 bytes
  float padding[124];
  float o_factor[kChunk];       // of Q S^T: scale e^G, times the norm of q
  unsigned char r[kTileBytes];  // [token i, token l]
};

struct alignas(1024) KeyStage {
  unsigned char k[2 * kTileBytes];
  unsigned char q[2 * kTileBytes];
};

// -stril(beta K K^T) in blocks of 16 x 16: those on the diagonal in float32, to be inverted; the inverses, transposed,
// and the blocks below them in float16, with rows 48 bytes apart, so that the reads of a fragment avoid conflicts.
constexpr int kBlock = 16;
struct alignas(16) Triangle {
  float diagonal[kTileRows / kBlock][kBlock][kBlock];
  f16 block[10][kBlock][24];
};

struct GateStage {
  float log2_gate[kChunk];  // G log2 e
  float beta[kChunk];
};

struct ChunkShared {
  KeyStage keys[kKeyStages];
  alignas(1024) unsigned char values[kValueStages][kTileBytes];  // [token, v]: V, then O in its place
  Packet packets[kBlocks];
  alignas(1024) unsigned char inverse[2][kTileBytes];  // [column of B, row of B], then what that lacks of float32
  Triangle triangle;
  GateStage gates[kBlocks];
  float k_norm[kChunk], q_norm[kChunk];  // 1 / norm
  uint16_t sorted_rows[kSortedRows];     // the longest first
  // full: the copies have arrived. free: all readers of both blocks are done.
  uint64_t keys_full[kKeyStages], keys_free[kKeyStages], keys_with_tail[kKeyStages];
  uint64_t values_full[kValueStages], values_free[kValueStages], values_with_tail[kValueStages],
      outputs_full[kValueStages];
  uint64_t gates_full[kBlocks], gates_free[kBlocks];
  uint64_t inverse_full, inverse_free;
  uint64_t packet_full[kBlocks], packet_free[kBlocks];
};

// Position in a ring of stages, and the parity of the phase it is in.
template <int kStages>
struct Ring {
  uint32_t count = 0;
  __device__ uint32_t stage() const { return count % kStages; }
  __device__ uint32_t phase() const { return count / kStages & 1; }
  __device__ void next() { ++count; }
};

// What a launch works on.
//   rows      whole rows
//   ends      all segments of a row but its last: their ends from a state of zero and, but for the first one, which
//             starts from the state of the row, their maps
//   segments  all segments of a row, from the states at their starts
enum class Pass { rows, ends, segments };
template <Pass kPass>
constexpr bool kHasOutputs = kPass != Pass::ends;

// Where a row lies, and where its segments in the arrays of all segments.
struct RowPlace {
  int begin, length, segments, first_segment;

  // Calls body(row, place) for the rows in turn.
  template <class Body>
  __device__ static void for_each(const ChunkRuleParams& p, Body body) {
    RowPlace place{0, 0, 0, 0};
    place.begin = static_cast<int>(load_index(p.query_start_loc, 0));
    for (int row = 0; row < p.rows; ++row) {
      const int end = static_cast<int>(load_index(p.query_start_loc, row + 1)), size = kChunk * p.segment_chunks;
      place.length = end - place.begin;
      place.segments = max(1, (place.length + size - 1) / size);
      body(row, place);
      place.begin = end;
      place.first_segment += place.segments;
    }
  }
};

// One row, or a segment of it, and value head.
struct ChunkItem {
  int row, head, begin, length, slot;
  bool from_slot;
  int segment = 0, first_chunk = 0;  // of all segments; of the row
  bool is_first = true, is_last = true, is_map = false;

  // The length is -1 where there is no such item.
  template <Pass kPass>
  __device__ static ChunkItem load(const ChunkRuleParams& p, const ChunkShared& shared, int index) {
    ChunkItem item;
    item.row = index / p.value_heads;
    item.head = index - item.row * p.value_heads;
    if constexpr (kPass == Pass::rows) {
      if (p.rows <= kSortedRows) item.row = shared.sorted_rows[item.row];
      item.begin = static_cast<int>(load_index(p.query_start_loc, item.row));
      item.length = static_cast<int>(load_index(p.query_start_loc, item.row + 1)) - item.begin;
    } else {
      item.find_segment<kPass>(p, item.row);
      if (item.length < 0) return item;
    }
    item.slot = static_cast<int>(load_slot(p.cache_indices, item.row));
    item.from_slot = p.has_initial_state == nullptr || p.has_initial_state[item.row];
    return item;
  }

  template <Pass kPass>
  __device__ void find_segment(const ChunkRuleParams& p, int wanted) {
    length = -1;
    RowPlace::for_each(p, [&](int candidate, const RowPlace& place) {
      // In the pass over ends: the end of the first, then the end and the map of each up to the last but one.
      const int items = kPass == Pass::ends ? max(0, 2 * place.segments - 3) : place.segments;
      if (wanted >= 0 && wanted < items) {
        const int inside = kPass == Pass::ends ? (wanted + 1) / 2 : wanted;
        row = candidate;
        is_map = kPass == Pass::ends && wanted > 0 && wanted % 2 == 0;
        is_first = inside == 0, is_last = inside == place.segments - 1;
        segment = place.first_segment + inside;
        first_chunk = inside * p.segment_chunks;
        begin = place.begin + first_chunk * kChunk;
        length = min(p.segment_chunks * kChunk, place.length - first_chunk * kChunk);
      }
      wanted -= items;
    });
  }

  __device__ int chunks() const { return (length + kChunk - 1) / kChunk; }
  __device__ int chunk_tokens(int chunk) const { return min(kChunk, length - chunk * kChunk); }
  __device__ int64_t state_offset(const ChunkRuleParams& p, int64_t index) const {
    return (index * p.value_heads + head) * kHead * kHead;
  }
};

// NOTE: tells the compiler that a value is one for the warp; products in flight must not cross divergent branches.
__device__ inline int uniform(int x) { return __shfl_sync(kFullMask, x, 0); }

// By all threads. Long rows that start last would keep a few clusters busy when the others are done.
__device__ inline void sort_rows(const ChunkRuleParams& p, ChunkShared& shared) {
  if (p.rows > kSortedRows) return;
  int* const lengths = reinterpret_cast<int*>(shared.values);
  const int row = threadIdx.x;
  if (row < p.rows)
    lengths[row] =
        static_cast<int>(load_index(p.query_start_loc, row + 1)) - static_cast<int>(load_index(p.query_start_loc, row));
  __syncthreads();
  if (row < p.rows) {
    int longer = 0;
    for (int i = 0; i < p.rows; ++i) longer += lengths[i] > lengths[row] || (lengths[i] == lengths[row] && i < row);
    shared.sorted_rows[longer] = static_cast<uint16_t>(row);
  }
  fence_async_proxy();
  __syncthreads();
}

// A cluster's items: one of every turn, in turns of opposite directions, so that who had a long one gets a short one.
template <Pass kPass, class Body>
__device__ inline void for_each_item(const ChunkRuleParams& p, const ChunkShared& shared, Body body) {
  const int clusters = gridDim.x / kBlocks, cluster = cluster_index_x();
  if (cluster >= p.items) return;
  int index = cluster, step = 2 * (clusters - cluster) - 1;
  ChunkItem item = ChunkItem::load<kPass>(p, shared, index);
  while (kPass == Pass::rows || item.length >= 0) {
    index += step;
    step = 2 * clusters - step;
    ChunkItem next = item;
    if (index < p.items) next = ChunkItem::load<kPass>(p, shared, index);
    body(item);
    if (index >= p.items) return;
    item = next;
  }
}

__device__ inline SharedAddress barrier_of(const uint64_t& barrier) { return shared_address(&barrier); }

// kWarpArrivals, after the accesses of the whole warp. NOTE: an arrival may overtake loads of the warp whose values
// nothing has used: what frees a stage follows a product or store made of them.
__device__ inline void arrive(const uint64_t& barrier) {
  __syncwarp();
  if (kEveryThreadArrives || threadIdx.x % kWarp == 0) barrier_arrive(barrier_of(barrier));
}

__device__ inline void arrive_in_block(const uint64_t& barrier, uint32_t rank) {
  __syncwarp();
  if (kEveryThreadArrives || threadIdx.x % kWarp == 0) barrier_arrive_in_cluster(in_block(barrier_of(barrier), rank));
}

__device__ inline void arrive_in_both_blocks(const uint64_t& barrier) {
  if constexpr (kEveryThreadArrives) {
    for (uint32_t rank = 0; rank < kBlocks; ++rank) arrive_in_block(barrier, rank);
  } else {
    __syncwarp();
    const int lane = threadIdx.x % kWarp;
    if (lane < kBlocks) barrier_arrive_in_cluster(in_block(barrier_of(barrier), lane));
  }
}

// ------------------------------------------------------------------------------ copies of q and k, and of v: a warp
// each
template <Pass kPass, class Body>
__device__ inline void for_each_chunk(const ChunkRuleParams& p, const ChunkShared& shared, Body body) {
  for_each_item<kPass>(p, shared, [&](const ChunkItem& item) {
    if (item.slot < 0) return;
    for (int chunk = 0; chunk < item.chunks(); ++chunk) body(item, chunk);
  });
}

// What follows a row's last token belongs to another row.
__device__ inline void zero_rows(unsigned char* tile, int first) {
#pragma unroll 1
  for (int i = first * 8 + threadIdx.x % kWarp; i < kTileRows * 8; i += kWarp)
    reinterpret_cast<uint4*>(tile)[i] = uint4{0, 0, 0, 0};
}

// Waits for one stage of a ring to be free and has copy(barrier) fill it; zero() clears what follows the row's last
// token.
template <int kStages>
struct StageLoader {
  Ring<kStages> ring;
  uint32_t tail_phases = 0;  // a bit a stage

  template <class Copy, class Zero>
  __device__ void load(const uint64_t* full, const uint64_t* free, const uint64_t* with_tail, uint32_t bytes, bool tail,
                       Copy copy, Zero zero) {
    const int lane = threadIdx.x % kWarp;
    const uint32_t stage = ring.stage();
    barrier_wait(barrier_of(free[stage]), ring.phase() ^ 1);
    const SharedAddress arrived = barrier_of((tail ? with_tail : full)[stage]);
    if (lane == 0) {
      barrier_expect(arrived, bytes);
      barrier_arrive(arrived, kWarp);
      copy(stage, arrived);
    }
    __syncwarp();
    if (tail) {
      barrier_wait(arrived, tail_phases >> stage & 1);
      tail_phases ^= 1u << stage;
      zero(stage);
      fence_async_proxy();
      barrier_arrive(barrier_of(full[stage]));
    }
    ring.next();
  }
};

// In the pass over ends half of k by each block, else k by the first and q by the second.
template <Pass kPass>
__device__ inline void load_keys(const ChunkRuleParams& p, ChunkShared& shared) {
  constexpr bool kQueries = kHasOutputs<kPass>;
  StageLoader<kKeyStages> loader;
  const uint32_t rank = cluster_rank();
  for_each_chunk<kPass>(p, shared, [&](const ChunkItem& item, int chunk) {
    const int tokens = item.chunk_tokens(chunk);
    loader.load(
        shared.keys_full, shared.keys_free, shared.keys_with_tail, (kQueries ? 4 : 2) * kTileBytes, tokens < kChunk,
        [&](uint32_t stage, SharedAddress arrived) {
          const bool query = kQueries && rank == 1;
          const CUtensorMap* map = query ? &p.q : &p.k;
          const SharedAddress to = shared_address(query ? shared.keys[stage].q : shared.keys[stage].k);
#pragma unroll 1
          for (int half = kQueries ? 0 : rank; half < (kQueries ? 2 : static_cast<int>(rank) + 1); ++half)
            copy_box_to_blocks(to + half * kTileBytes, map, half * 64, item.head / p.ratio, item.begin + chunk * kChunk,
                               arrived, (1 << kBlocks) - 1);
        },
        [&](uint32_t stage) {
#pragma unroll 1
          for (int half = 0; half < 2; ++half) zero_rows(shared.keys[stage].k + half * kTileBytes, tokens);
        });
  });
}

// The state is what the block waits for longest: it is fetched into the L2 cache while the row before is worked on.
__device__ inline void prefetch_state(const ChunkRuleParams& p, const ChunkItem& item) {
  if (!item.from_slot || !item.is_first || threadIdx.x % kWarp != 0) return;
  const int64_t size = p.ssm_pool.dtype == DType::f32 ? 4 : 2;
  const int64_t first =
      item.slot * p.ssm_pitch + (item.head * kHead + static_cast<int64_t>(cluster_rank()) * kHalf) * kHead;
  const auto address = reinterpret_cast<uintptr_t>(p.ssm_pool.data) + first * size;
  if (address % 16 == 0) prefetch_to_l2(reinterpret_cast<const void*>(address), kHalf * kHead * size);
}

template <Pass kPass>
__device__ inline void load_values(const ChunkRuleParams& p, ChunkShared& shared) {
  StageLoader<kValueStages> loader;
  for_each_chunk<kPass>(p, shared, [&](const ChunkItem& item, int chunk) {
    if (item.is_map) return;
    if (chunk == 0) prefetch_state(p, item);
    const int tokens = item.chunk_tokens(chunk);
    if (threadIdx.x % kWarp == 0 && chunk + kValuesAhead < item.chunks())
      prefetch_box_to_l2(&p.v, cluster_rank() * kHalf, item.head, item.begin + (chunk + kValuesAhead) * kChunk);
    loader.load(
        shared.values_full, shared.values_free, shared.values_with_tail, kTileBytes, tokens < kChunk,
        [&](uint32_t stage, SharedAddress arrived) {
          copy_box(shared_address(shared.values[stage]), &p.v, cluster_rank() * kHalf, item.head,
                   item.begin + chunk * kChunk, arrived);
        },
        [&](uint32_t stage) { zero_rows(shared.values[stage], tokens); });
  });
}

// --------------------------------------------------------------------------------------------------- output, by a warp
template <class T>
__device__ inline uint4* output_piece(const ChunkRuleParams& p, int token, int head, int piece) {
  const int64_t first = (static_cast<int64_t>(token) * p.value_heads + head) * kHead + cluster_rank() * kHalf;
  return reinterpret_cast<uint4*>(static_cast<T*>(p.out.data) + first) + piece;
}

template <class T, Pass kPass>
__device__ inline void store_outputs(const ChunkRuleParams& p, ChunkShared& shared) {
  const int lane = threadIdx.x % kWarp, piece = lane % 8;
  Ring<kValueStages> ring;
  for_each_chunk<kPass>(p, shared, [&](const ChunkItem& item, int chunk) {
    const int tokens = item.chunk_tokens(chunk), begin = item.begin + chunk * kChunk;
    barrier_wait(barrier_of(shared.outputs_full[ring.stage()]), ring.phase());
    const unsigned char* const tile = shared.values[ring.stage()];
    if (tokens == kChunk) {
      if (lane == 0) {
        store_box(&p.out_boxes, cluster_rank() * kHalf, item.head, begin, shared_address(tile));
        copies_read();
      }
    } else {
#pragma unroll 1
      for (int row = lane / 8; row < tokens; row += kWarp / 8)
        *output_piece<T>(p, begin + row, item.head, piece) =
            reinterpret_cast<const uint4*>(tile)[row * 8 + (piece ^ (row & 7))];
      fence_async_proxy();
    }
    arrive(shared.values_free[ring.stage()]);
    ring.next();
  });
}

// Zeros in the output of rows without a slot, and past the last row.
template <class T, Pass kPass>
__device__ inline void zero_outputs(const ChunkRuleParams& p, const ChunkShared& shared) {
  const int lane = threadIdx.x % kWarp;
  const auto zero = [&](int token, int head) { *output_piece<T>(p, token, head, lane % 8) = uint4{0, 0, 0, 0}; };
  for_each_item<kPass>(p, shared, [&](const ChunkItem& item) {
    if (item.slot >= 0) return;
    for (int i = lane / 8; i < item.length; i += kWarp / 8) zero(item.begin + i, item.head);
  });
  const int end = static_cast<int>(load_index(p.query_start_loc, p.rows)), clusters = gridDim.x / kBlocks;
  for (int token = end + static_cast<int>(cluster_index_x()); token < p.tokens; token += clusters)
    for (int head = lane / 8; head < p.value_heads; head += kWarp / 8) zero(token, head);
}

// ------------------------------------------------------------------------------------------------ gates, by one warp
// Calls body(item, chunk) for the chunks that this block prepares: every second one of the cluster.
template <Pass kPass, class Body>
__device__ inline void for_each_own_chunk(const ChunkRuleParams& p, const ChunkShared& shared, Body body) {
  int first = static_cast<int>(cluster_rank());  // own chunks of the item before come before it
  for_each_item<kPass>(p, shared, [&](const ChunkItem& item) {
    if (item.slot < 0) return;
    const int chunks = item.chunks();
    int chunk = first;
    for (; chunk < chunks; chunk += kBlocks) body(item, chunk);
    first = chunk - chunks;
  });
}

template <Pass kPass>
struct GateLoader {
  const ChunkRuleParams& p;
  ChunkShared& shared;
  Ring<kBlocks> ring;
  float g[2], beta[2];  // of tokens 2 lane and 2 lane + 1
  int tokens = 0;

  // NOTE: one chunk ahead, and without a condition, so that nobody waits for these loads here.
  __device__ void load(const ChunkItem& item, int chunk) {
    tokens = item.chunk_tokens(chunk);
    const int inside = 2 * static_cast<int>(threadIdx.x % kWarp), last = tokens - 1;
    const int64_t token = item.begin + chunk * kChunk + min(inside, last);
    const bool has_next = inside < last;
    const float* const gates = p.g + token * p.g_pitch + item.head;
    const float* const strengths = p.beta + token * p.beta_pitch + item.head;
    g[0] = *gates, g[1] = gates[has_next ? p.g_pitch : 0];
    beta[0] = *strengths, beta[1] = strengths[has_next ? p.beta_pitch : 0];
  }

  __device__ void store() {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (2 * lane + i >= tokens) g[i] = 0, beta[i] = 0;
    float sum = g[0] + g[1];
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const float before = __shfl_up_sync(kFullMask, sum, step);
      if (lane >= step) sum += before;
    }
    barrier_wait(barrier_of(shared.gates_free[ring.stage()]), ring.phase() ^ 1);
    GateStage& stage = shared.gates[ring.stage()];
    *reinterpret_cast<float2*>(&stage.log2_gate[2 * lane]) = {(sum - g[1]) * kLog2e, sum * kLog2e};
    *reinterpret_cast<float2*>(&stage.beta[2 * lane]) = {beta[0], beta[1]};
    arrive(shared.gates_full[ring.stage()]);
    ring.next();
  }

  __device__ void run() {
    for_each_own_chunk<kPass>(p, shared, [&](const ChunkItem& item, int chunk) {
      if (tokens > 0) store();
      load(item, chunk);
    });
    if (tokens > 0) store();
  }
};

// ----------------------------------------------------------------------------- what does not depend on the state: X, R
__device__ inline float inverse_norm(float squares) { return rsqrtf(squares + 1e-6f); }

// What both groups that prepare a block's chunks have in common.
template <class T>
struct ChunkPreparer {
  const ChunkRuleParams& p;
  ChunkShared& shared;
  uint32_t barrier_id;
  Ring<kKeyStages> keys;
  Ring<kBlocks> gates;              // of own chunks
  Ring<1> own;                      // the inverse and the packet of this block
  int lane, warp, group_row, pair;  // the fragment's rows group_row and + 8 of the warp, columns 2 pair and + 1
  int row;

  __device__ ChunkPreparer(const ChunkRuleParams& params, ChunkShared& memory, uint32_t id)
      : p(params), shared(memory), barrier_id(id) {
    keys.count = cluster_rank();
  }

  // NOTE: for every chunk again, else the compiler keeps all that follows from these in registers, and spills.
  __device__ void find_place() {
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    thread %= kGroup;
    lane = thread % kWarp, warp = uniform(thread / kWarp), group_row = lane / 4, pair = lane % 4;
    row = 16 * warp + group_row;
  }

  __device__ void barrier() const { named_barrier(barrier_id, kGroup); }
  __device__ const KeyStage& stage() const { return shared.keys[keys.stage()]; }
  __device__ const GateStage& gate() const { return shared.gates[gates.stage()]; }
  __device__ Packet& packet() const { return shared.packets[cluster_rank()]; }

  __device__ void wait_for_keys() const { barrier_wait(barrier_of(shared.keys_full[keys.stage()]), keys.phase()); }
  __device__ void wait_for_gates() const { barrier_wait(barrier_of(shared.gates_full[gates.stage()]), gates.phase()); }
  __device__ void wait_for_packet() const {
    barrier_wait(barrier_of(shared.packet_free[cluster_rank()]), own.phase() ^ 1);
  }
  __device__ void free_gates() const { arrive(shared.gates_free[gates.stage()]); }

  __device__ void next() {
    keys.count += kBlocks;
    gates.next();
    own.next();
  }

  // Of the fragment's rows of X.
  __device__ void load_x_factors(float (&factor)[2]) const {
    const float last = gate().log2_gate[kChunk - 1];
#pragma unroll
    for (int i = 0; i < 2; ++i) factor[i] = exp2_approximate(last - gate().log2_gate[row + 8 * i]);
  }

  // Half of the columns of B^T K.
  __device__ void begin_x(int half, float (&x)[32]) const {
    const uint64_t columns = columns_descriptor(shared_address(stage().k) + half * kTileBytes);
    products_begin(x);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const uint64_t inverse = rows_descriptor(shared_address(shared.inverse[part]));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        product<T, Right::rows_of_inner>(x, inverse + rows_step(i), columns + columns_step(i));
    }
    products_commit();
  }

  // Half of the columns of X.
  __device__ void store_x(int half, float (&x)[32], const float (&factor)[2]) const {
#pragma unroll
    for (int nb = 0; nb < 8; nb += 2) {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[4 * nb + i] *= factor[i / 2 % 2];
      store_fragment_rows(shared_address(packet().x) + half * kTileBytes, nb, x + 4 * nb);
    }
  }

  __device__ void store_fragment_rows(SharedAddress tile, int nb, const float* fragment) const {
    uint32_t blocks[4];
    pack_operand<T>(blocks, fragment);
    store_blocks(tile_piece(tile, 16 * warp + lane % 16, nb + lane / 16), blocks);
  }

  // A part of the packet to the other block, after all threads of the group have written it.
  __device__ void send(const void* part, uint32_t bytes) const {
    const SharedAddress from = shared_address(part);
    const SharedAddress full = barrier_of(shared.packet_full[cluster_rank()]);
    const uint32_t other = cluster_rank() ^ 1;
    copy_to_block(in_block(from, other), from, bytes, in_block(full, other));
  }

  // By all threads of the group; the first one sends the parts, of so many bytes.
  template <class Send>
  __device__ void publish(uint32_t bytes, Send send_parts) const {
    fence_async_proxy();
    barrier();
    const SharedAddress full = barrier_of(shared.packet_full[cluster_rank()]);
    const bool is_first = warp == 0 && lane == 0;
    if (kEveryThreadArrives || is_first) barrier_arrive(full);
    if (!is_first) return;
    barrier_arrive_expect_in_cluster(in_block(full, cluster_rank() ^ 1), bytes);
    send_parts();
  }
};

// B and X, of which AttentionPreparer makes half in the pass over ends.
template <class T, bool kNorm, Pass kPass>
struct InversePreparer : ChunkPreparer<T> {
  static constexpr int kFirstHalfOfX = kHasOutputs<kPass> ? 0 : 1;
  using Base = ChunkPreparer<T>;
  using Base::group_row, Base::lane, Base::p, Base::pair, Base::row, Base::shared, Base::warp;

  __device__ InversePreparer(const ChunkRuleParams& params, ChunkShared& memory) : Base(params, memory, 1) {}

  __device__ void run() {
    // Above the diagonal the inverse stays zero.
    for (int i = threadIdx.x % kGroup; i < static_cast<int>(sizeof(shared.inverse) / sizeof(uint4)); i += kGroup)
      reinterpret_cast<uint4*>(shared.inverse)[i] = uint4{0, 0, 0, 0};
    this->barrier();
    for_each_own_chunk<kPass>(p, shared, [&](const ChunkItem&, int) {
      prepare();
      this->next();
    });
  }

  // Of the block so many rows of blocks below the diagonal.
  __device__ static constexpr int block_index(int below, int column) { return below * (9 - below) / 2 + column; }

  // -stril(beta K K^T) to shared memory; the warp's rows.
  __device__ void store_triangle(const float (&kk)[32]) {
    float diagonal[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) diagonal[i] = kk[i];
#pragma unroll
    for (int column = 1; column < 4; ++column) {
      if (column <= warp) {
#pragma unroll
        for (int i = 0; i < 8; ++i) diagonal[i] = kk[8 * column + i];
      }
    }
    float row_factor[2] = {-this->gate().beta[row], -this->gate().beta[row + 8]};
    if constexpr (kNorm) {
      if (pair == group_row / 2) {
        const bool odd = group_row % 2;
        shared.k_norm[row] = inverse_norm(odd ? diagonal[1] : diagonal[0]);
        shared.k_norm[row + 8] = inverse_norm(odd ? diagonal[7] : diagonal[6]);
      }
      this->barrier();
      row_factor[0] *= shared.k_norm[row];
      row_factor[1] *= shared.k_norm[row + 8];
    }
    const auto scale = [&](float (&block)[8], int column) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        block[i] *= row_factor[i / 2 % 2];
        if constexpr (kNorm) block[i] *= shared.k_norm[kBlock * column + i / 4 * 8 + 2 * pair + i % 2];
      }
    };
#pragma unroll
    for (int column = 0; column < 3; ++column) {
      if (column < warp) {
        float block[8];
        uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 8; ++i) block[i] = kk[8 * column + i];
        scale(block, column);
        pack_operand<f16>(packed, block);
        store_blocks(block_rows(block_index(warp - column, column)), packed);
      }
    }
    scale(diagonal, warp);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row_in_block = group_row + i % 2 * 8, column = i / 2 * 8 + 2 * pair;
      *reinterpret_cast<float2*>(&shared.triangle.diagonal[warp][row_in_block][column]) = {
          column < row_in_block ? diagonal[2 * i] : 0, column + 1 < row_in_block ? diagonal[2 * i + 1] : 0};
    }
  }

  // The inverse of the warp's block on the diagonal, a column a lane, by forward substitution in float32.
  __device__ void invert_diagonal() {
    const auto& l = shared.triangle.diagonal[warp];
    const int column = lane % kBlock;
    float x[kBlock];
#pragma unroll
    for (int i = 0; i < kBlock; ++i) x[i] = i == column ? 1.0f : 0.0f;
    // A solved element is taken from all later ones at once, so that they do not wait for each other.
    constexpr int kAtOnce = 4;
#pragma unroll
    for (int first = 0; first < kBlock; first += kAtOnce) {
#pragma unroll
      for (int i = first + 1; i < kBlock; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(&l[i][first]);
        const float row_of_l[kAtOnce] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
          if (first + j < i) x[i] = fmaf(row_of_l[j], x[first + j], x[i]);
      }
    }
    uint32_t packed[kBlock / 2];
    pack_operand<f16>(packed, x);
    pack_operand<f16>(packed + 4, x + 8);
    auto* const transposed = reinterpret_cast<uint4*>(shared.triangle.block[block_index(0, warp)][column]);
    if (lane < kBlock) {
      transposed[0] = {packed[0], packed[1], packed[2], packed[3]};
      transposed[1] = {packed[4], packed[5], packed[6], packed[7]};
    }
  }

  // Rows of the four 8 x 8 blocks of a block of the triangle: 0-7 and 8-15 of columns 0-7, then of columns 8-15.
  __device__ SharedAddress block_rows(int block) const {
    return shared_address(&shared.triangle.block[block][lane % 16][lane / 16 * 8]);
  }

  // Columns 0-7 and 8-15 of rows 0-7, then of rows 8-15.
  __device__ SharedAddress block_columns(int block) const {
    return shared_address(&shared.triangle.block[block][lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
  }

  // d = left right + c with a right operand of 16 x 16.
  __device__ static void multiply(float (&d)[8], const uint32_t (&left)[4], const uint32_t (&right)[4],
                                  const float (&c)[8]) {
#pragma unroll
    for (int nb = 0; nb < 2; ++nb) warp_product(d + 4 * nb, left, right + 2 * nb, c + 4 * nb);
  }

  // The warp's row of blocks of P = -D L, with L what lies below the blocks on the diagonal and D their inverses.
  __device__ void multiply_by_diagonal() {
    uint32_t left[4];
    load_blocks_transposed(left, block_columns(block_index(0, warp)));
#pragma unroll
    for (int below = 1; below < 4; ++below) {
      if (below <= warp) {
        const SharedAddress block = block_rows(block_index(below, warp - below));
        uint32_t right[4], packed[4];
        float product[8] = {};
        load_blocks_transposed(right, block);
        multiply(product, left, right, product);
        pack_operand<f16>(packed, product);
        store_blocks(block, packed);
      }
    }
  }

  // Columns 16 warp .. of B, transposed, and what is lost by rounding them. Block column v of A = (I - P)^-1 D is found
  // from the diagonal down, A_wv = sum_{v <= m < w} P_wm A_mv, each block added to all later sums at once.
  __device__ void invert_column() {
    const float beta[2] = {this->gate().beta[row], this->gate().beta[row + 8]};
    uint32_t z[4], right[4];
    float sum[4][8] = {};
    load_blocks(z, block_rows(block_index(0, warp)));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair_of_z = unpack<f16>(z[i]);
      sum[0][2 * i] = pair_of_z.x, sum[0][2 * i + 1] = pair_of_z.y;
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      if (warp + step >= 4) break;
      if (step > 0) pack_operand<f16>(z, sum[step]);
#pragma unroll
      for (int below = 1; below < 4 - step; ++below) {
        if (warp + step + below >= 4) break;
        load_blocks(right, block_columns(block_index(below, step) + warp));
        multiply(sum[step + below], z, right, sum[step + below]);
      }
      float (&a)[8] = sum[step];
      if constexpr (kNorm) {
#pragma unroll
        for (int nb = 0; nb < 2; ++nb) {
          const float2 norm =
              *reinterpret_cast<const float2*>(&shared.k_norm[kBlock * (warp + step) + 8 * nb + 2 * pair]);
          a[4 * nb] *= norm.x, a[4 * nb + 1] *= norm.y, a[4 * nb + 2] *= norm.x, a[4 * nb + 3] *= norm.y;
        }
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) a[i] *= beta[i / 2 % 2];
      uint32_t rounded[4], rest[4];
      pack_operand_and_rest<T>(rounded, rest, a);
      const int piece = 2 * (warp + step) + lane / 16;
      store_blocks(tile_piece(shared_address(shared.inverse[0]), 16 * warp + lane % 16, piece), rounded);
      store_blocks(tile_piece(shared_address(shared.inverse[1]), 16 * warp + lane % 16, piece), rest);
    }
  }

  __device__ void prepare() {
    this->find_place();
    const SharedAddress k = shared_address(this->stage().k);
    this->wait_for_keys();
    float kk[32] = {};
    products_begin(kk);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      product<T, Right::rows_of_n>(kk, rows_descriptor(k) + rows_step(i), rows_descriptor(k) + rows_step(i));
    products_commit();
    this->wait_for_gates();
    products_wait<0>(kk);
    store_triangle(kk);
    __syncwarp();
    invert_diagonal();
    __syncwarp();
    multiply_by_diagonal();
    this->barrier();

    barrier_wait(barrier_of(shared.inverse_free), this->own.phase() ^ 1);
    invert_column();
    fence_async_proxy();
    arrive(shared.inverse_full);
    const GateStage& gate = this->gate();
    float factor[2];
    this->load_x_factors(factor);
    Packet& packet = this->packet();
    this->wait_for_packet();
    if (warp == 0) {
      float2 u = *reinterpret_cast<const float2*>(&gate.log2_gate[2 * lane]);
      u = {exp2_approximate(u.x), exp2_approximate(u.y)};
      if (lane == kWarp - 1) packet.decay[0] = u.y;
      if constexpr (kNorm) u.x *= shared.k_norm[2 * lane], u.y *= shared.k_norm[2 * lane + 1];
      *reinterpret_cast<float2*>(&packet.u_factor[2 * lane]) = u;
    }
    this->barrier();
#pragma unroll 1
    for (int half = kFirstHalfOfX; half < 2; ++half) {
      float x[32] = {};
      this->begin_x(half, x);
      products_wait<0>(x);
      if (half == 1) arrive_in_both_blocks(shared.keys_free[this->keys.stage()]);
      this->store_x(half, x, factor);
    }
    this->free_gates();
    constexpr uint32_t kBegin = kFirstHalfOfX * kTileBytes, kEnd = offsetof(Packet, padding);
    this->publish(kEnd - kBegin, [&] { this->send(packet.x + kBegin, kEnd - kBegin); });
  }
};

// R; in the pass over ends half of X.
template <class T, bool kNorm, Pass kPass>
struct AttentionPreparer : ChunkPreparer<T> {
  using Base = ChunkPreparer<T>;
  using Base::lane, Base::p, Base::pair, Base::row, Base::shared, Base::warp;

  __device__ AttentionPreparer(const ChunkRuleParams& params, ChunkShared& memory) : Base(params, memory, 2) {}

  __device__ void run() {
    for_each_own_chunk<kPass>(p, shared, [&](const ChunkItem&, int) {
      if constexpr (kHasOutputs<kPass>)
        prepare();
      else
        prepare_half_of_x();
      this->next();
    });
  }

  __device__ void prepare_half_of_x() {
    this->find_place();
    this->wait_for_gates();
    float factor[2];
    this->load_x_factors(factor);
    this->wait_for_keys();
    barrier_wait(barrier_of(shared.inverse_full), this->own.phase());
    float x[32] = {};
    this->begin_x(0, x);
    this->wait_for_packet();
    products_wait<0>(x);
    arrive_in_both_blocks(shared.keys_free[this->keys.stage()]);
    arrive(shared.inverse_free);
    this->store_x(0, x, factor);
    this->free_gates();
    this->publish(kTileBytes, [&] { this->send(this->packet().x, kTileBytes); });
  }

  // Inverse norms of the rows of q; a thread sums half a row.
  __device__ void find_norms() const {
    const int thread = warp * kWarp + lane, token = thread / 2, half = thread % 2;
    const auto* tile = reinterpret_cast<const uint4*>(this->stage().q + half * kTileBytes);
    float sum = 0;
#pragma unroll 2
    for (int i = 0; i < 8; ++i) {
      const uint4 words = tile[token * 8 + (i ^ (token & 7))];
      const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 x = unpack<T>(word[j]);
        sum = fmaf(x.x, x.x, fmaf(x.y, x.y, sum));
      }
    }
    sum += __shfl_xor_sync(kFullMask, sum, 1);
    if (half == 0) shared.q_norm[token] = inverse_norm(sum);
    this->barrier();
  }

  __device__ void prepare() {
    this->find_place();
    const SharedAddress k = shared_address(this->stage().k), q = shared_address(this->stage().q);
    this->wait_for_keys();
    float qk[32] = {};
    products_begin(qk);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      product<T, Right::rows_of_n>(qk, rows_descriptor(q) + rows_step(i), rows_descriptor(k) + rows_step(i));
    products_commit();
    this->wait_for_gates();
    const GateStage& gate = this->gate();
    if constexpr (kNorm) find_norms();
    const float row_gate[2] = {gate.log2_gate[row], gate.log2_gate[row + 8]};
    const float row_factor[2] = {kNorm ? p.scale * shared.q_norm[row] : p.scale,
                                 kNorm ? p.scale * shared.q_norm[row + 8] : p.scale};
    float factor[32];
#pragma unroll
    for (int nb = 0; nb < 8; ++nb) {
      const float2 column_gate = *reinterpret_cast<const float2*>(&gate.log2_gate[8 * nb + 2 * pair]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float difference = row_gate[i / 2] - (i % 2 ? column_gate.y : column_gate.x);
        factor[4 * nb + i] = row_factor[i / 2] * exp2_approximate(fminf(difference, 0.0f));
      }
    }
    float2 o = *reinterpret_cast<const float2*>(&gate.log2_gate[2 * lane]);
    o = {p.scale * exp2_approximate(o.x), p.scale * exp2_approximate(o.y)};
    if constexpr (kNorm) o.x *= shared.q_norm[2 * lane], o.y *= shared.q_norm[2 * lane + 1];
    products_wait<0>(qk);
    arrive_in_both_blocks(shared.keys_free[this->keys.stage()]);
    uint32_t attention[16], rest[16];
    const int limit = row - 2 * pair;
#pragma unroll
    for (int nb = 0; nb < 8; ++nb)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (8 * nb + i % 2 - i / 2 * 8 > limit) qk[4 * nb + i] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) pack_operand_and_rest<T>(attention + 4 * i, rest + 4 * i, qk + 8 * i);

    barrier_wait(barrier_of(shared.inverse_full), this->own.phase());
    float r[32];
    clear(r);
    products_begin(r);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const uint64_t inverse = rows_descriptor(shared_address(shared.inverse[part]));
#pragma unroll
      for (int i = 0; i < 4; ++i) product<T, Right::rows_of_n>(r, attention + 4 * i, inverse + rows_step(i));
      if (part == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) product<T, Right::rows_of_n>(r, rest + 4 * i, inverse + rows_step(i));
      }
    }
    products_commit();
    Packet& packet = this->packet();
    this->wait_for_packet();
    if (warp == 0) *reinterpret_cast<float2*>(&packet.o_factor[2 * lane]) = o;
    products_wait<0>(r);
    arrive(shared.inverse_free);
#pragma unroll
    for (int nb = 0; nb < 8; nb += 2) {
#pragma unroll
      for (int i = 0; i < 8; ++i) r[4 * nb + i] *= factor[4 * nb + i];  // above the diagonal r is zero
      this->store_fragment_rows(shared_address(packet.r), nb, r + 4 * nb);
    }
    this->free_gates();
    constexpr uint32_t kBytes = sizeof(Packet::o_factor) + sizeof(Packet::r);
    this->publish(kBytes, [&] { this->send(packet.o_factor, kBytes); });
  }
};

// -------------------------------------------------------------------------------------------------- states and outputs
template <class Body>
__device__ inline void with_element(DType dtype, Body body) {
  switch (dtype) {
    case DType::bf16:
      return body(bf16{});
    case DType::f16:
      return body(f16{});
    default:
      return body(float{});
  }
}

template <class State>
__device__ inline void store_pair(State* to, float a, float b) {
  if constexpr (std::is_same_v<State, float>)
    *reinterpret_cast<float2*>(to) = {a, b};
  else
    *reinterpret_cast<uint32_t*>(to) = pack<State>(a, b);
}

template <class State>
__device__ inline float2 load_pair(const State* from) {
  if constexpr (std::is_same_v<State, float>)
    return *reinterpret_cast<const float2*>(from);
  else
    return unpack<State>(*reinterpret_cast<const uint32_t*>(from));
}

template <class T, Pass kPass>
struct ChunkState {
  static constexpr bool kOutputs = kHasOutputs<kPass>;
  const ChunkRuleParams& p;
  ChunkShared& shared;
  Ring<kKeyStages> keys;
  Ring<kValueStages> values;
  Ring<kBlocks> packets;

  int lane, warp, group_row, pair;

  __device__ ChunkState(const ChunkRuleParams& params, ChunkShared& memory) : p(params), shared(memory) {
    const int thread = threadIdx.x % kGroup;
    lane = thread % kWarp, warp = uniform(thread / kWarp), group_row = lane / 4, pair = lane % 4;
  }

  // Offset of the fragment in the [128, 128] state of a head.
  __device__ int64_t fragment_offset() const {
    return (cluster_rank() * kHalf + 16 * warp + group_row) * kHead + 2 * pair;
  }

  __device__ void load_state(float (&s)[64], const ChunkItem& item) const {
    if (kPass == Pass::segments && item.is_first && !item.is_last) {
      load_state(s, {p.segment_maps, DType::f32}, item.state_offset(p, item.segment));
    } else if (item.is_first) {
      if (item.from_slot)
        load_state(s, p.ssm_pool, item.slot * p.ssm_pitch + item.state_offset(p, 0));
      else
        clear(s);
    } else if constexpr (kOutputs) {
      load_state(s, {p.segment_ends, DType::f32}, item.state_offset(p, item.segment - 1));
    } else {
      clear(s);
      const int row = static_cast<int>(cluster_rank()) * kHalf + 16 * warp + group_row;
#pragma unroll
      for (int i = 0; i < 64; ++i)
        if (item.is_map && i / 4 * 8 + 2 * pair + i % 2 == row + i / 2 % 2 * 8) s[i] = 1;
    }
  }

  __device__ static void clear(float (&s)[64]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) s[i] = 0;
  }

  __device__ void load_state(float (&s)[64], FloatPtr states, int64_t head) const {
    with_element(states.dtype, [&](auto element) {
      const auto* from = static_cast<const decltype(element)*>(states.data) + head + fragment_offset();
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const float2 x = load_pair(from + (i % 2 * 8) * kHead + i / 2 * 8);
        s[2 * i] = x.x, s[2 * i + 1] = x.y;
      }
    });
  }

  __device__ void store_state(FloatPtr to, int64_t head, const float (&s)[64]) const {
    with_element(to.dtype, [&](auto element) {
      auto* out = static_cast<decltype(element)*>(to.data) + head + fragment_offset();
#pragma unroll
      for (int i = 0; i < 32; ++i) store_pair(out + (i % 2 * 8) * kHead + i / 2 * 8, s[2 * i], s[2 * i + 1]);
    });
  }

  __device__ void track(const ChunkItem& item, int track_chunk, int chunk, const float (&s)[64]) const {
    if (chunk != track_chunk) return;
    store_state({p.track_state, DType::f32}, item.state_offset(p, item.row), s);
  }

  __device__ int chunks_before(int row) const {
    int chunks = 0;
    for (int n = 0; n < row; ++n)
      chunks += static_cast<int>(load_index(p.query_start_loc, n + 1) - load_index(p.query_start_loc, n) + kChunk - 1) /
                kChunk;
    return chunks;
  }

  __device__ void run() {
    float s[64];
    for_each_item<kPass>(p, shared, [&](const ChunkItem& item) {
      const int chunks = item.chunks(), end = item.first_chunk + chunks;
      const bool tracks = kOutputs && p.track_state != nullptr;
      const int track_chunk = tracks ? static_cast<int>(load_index(p.track_chunk_idx, item.row)) : -1;
      if (item.slot < 0) {
        if (track_chunk < item.first_chunk || track_chunk > end || (track_chunk == end && !item.is_last)) return;
        clear(s);
        track(item, track_chunk, track_chunk, s);
        return;
      }
      const bool stores_h = kOutputs && p.h.data != nullptr;
      const int h_chunk = stores_h ? chunks_before(item.row) + item.first_chunk : 0;
      load_state(s, item);
      if (!kOutputs && item.is_first) store_state({p.segment_maps, DType::f32}, item.state_offset(p, item.segment), s);
      uint32_t operand[32], output[16];
      pack_state(operand, s);
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; ++chunk) {
        track(item, track_chunk, item.first_chunk + chunk, s);
        if (stores_h) store_state(p.h, item.state_offset(p, h_chunk + chunk), s);
        if (item.chunk_tokens(chunk) == kChunk)
          step<kExactSteps>(s, operand, output, chunk > 0, item.is_map);
        else
          step<kExactStepsOfTail>(s, operand, output, chunk > 0, item.is_map);
      }
      if (chunks > 0) finish_previous(output);
      if constexpr (kOutputs) {
        if (!item.is_last) return;
        track(item, track_chunk, end, s);
        if (p.update_state && (end > 0 || !item.from_slot))
          store_state(p.ssm_pool, item.slot * p.ssm_pitch + item.state_offset(p, 0), s);
      } else {
        store_state({item.is_map ? p.segment_maps : p.segment_ends, DType::f32}, item.state_offset(p, item.segment), s);
      }
    });
  }

  __device__ void finish_previous(const uint32_t (&output)[16]) const {
    free_previous_packet();
    if constexpr (kOutputs) publish_previous_output(output);
  }

  // The products of the chunk before have read its packet.
  __device__ void free_previous_packet() const {
    const Ring<kBlocks> previous{packets.count - 1};
    arrive_in_block(shared.packet_free[previous.stage()], previous.stage());
  }

  // For lane l, row l % 8 of block l / 8 of four: v 0-7 and 8-15 of the warp's 16 in tokens 16 i .. 16 i + 7, then in
  // the next 8 tokens.
  __device__ SharedAddress values_piece(uint32_t stage, int i) const {
    const int token = 16 * i + lane / 16 * 8 + lane % 8, piece = 2 * warp + lane / 8 % 2;
    return tile_piece(shared_address(shared.values[stage]), token, piece);
  }

  __device__ void load_values(uint32_t (&v)[4][4]) {
    barrier_wait(barrier_of(shared.values_full[values.stage()]), values.phase());
#pragma unroll
    for (int i = 0; i < 4; ++i) load_blocks_transposed(v[i], values_piece(values.stage(), i));
    values.next();
  }

  // In place of the values of its chunk, of which this warp alone has read these pieces.
  __device__ void publish_previous_output(const uint32_t (&output)[16]) const {
    const uint32_t stage = Ring<kValueStages>{values.count - 1}.stage();
#pragma unroll
    for (int i = 0; i < 4; ++i) store_blocks_transposed(values_piece(stage, i), output + 4 * i);
    fence_async_proxy();
    arrive(shared.outputs_full[stage]);
  }

  // Those of the fragment's columns.
  __device__ void load_factors(float2 (&factor)[8], const float* of_tokens) const {
#pragma unroll
    for (int nb = 0; nb < 8; ++nb) factor[nb] = *reinterpret_cast<const float2*>(of_tokens + 8 * nb + 2 * pair);
  }

  __device__ static void pack_state(uint32_t (&operand)[32], const float (&s)[64]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) pack_operand<T>(operand + 4 * i, s + 8 * i);
  }

  // One chunk, of a map with values of zero. `state` is s as a left operand, before and after; `output` that of the
  // chunk before, then this one's.
  template <int kExact>
  __device__ void step(float (&s)[64], uint32_t (&state)[32], uint32_t (&output)[16], bool has_previous, bool is_map) {
    const KeyStage& stage = shared.keys[keys.stage()];
    const Packet& packet = shared.packets[packets.stage()];
    barrier_wait(barrier_of(shared.keys_full[keys.stage()]), keys.phase());
    const uint64_t k_rows = rows_descriptor(shared_address(stage.k)), q_rows = rows_descriptor(shared_address(stage.q));
    float u[32] = {};
    [[maybe_unused]] float o[32] = {};
    if constexpr (kOutputs)
      products_begin(u, o);
    else
      products_begin(u);
#pragma unroll
    for (int i = 0; i < 8; ++i) product<T, Right::rows_of_n>(u, state + 4 * i, k_rows + rows_step(i));
    products_commit();
    if constexpr (kOutputs) {
#pragma unroll
      for (int i = 0; i < 8; ++i) product<T, Right::rows_of_n>(o, state + 4 * i, q_rows + rows_step(i));
      products_commit();
    }
    if (has_previous) finish_previous(output);
    barrier_wait(barrier_of(shared.packet_full[packets.stage()]), packets.phase());
    uint32_t v[4][4] = {};
    if (kOutputs || !is_map) load_values(v);
    float2 factor[8];
    load_factors(factor, packet.u_factor);
    const float decay = packet.decay[0];
    products_wait<kOutputs ? 1 : 0>(u);
    uint32_t w[16], rest[4 * kExact];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float fragment[8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 value = unpack<T>(v[i][j]), gate = factor[2 * i + j / 2];
        fragment[2 * j] = fmaf(-gate.x, u[8 * i + 2 * j], value.x);
        fragment[2 * j + 1] = fmaf(-gate.y, u[8 * i + 2 * j + 1], value.y);
      }
      if (i < 4 - kExact)
        pack_operand<T>(w + 4 * i, fragment);
      else
        pack_operand_and_rest<T>(w + 4 * i, rest + 4 * (i - (4 - kExact)), fragment);
    }
    if constexpr (kOutputs) load_factors(factor, packet.o_factor);
#pragma unroll
    for (int i = 0; i < 64; ++i) s[i] *= decay;
    if constexpr (kOutputs) products_wait<0>(o);
    arrive_in_both_blocks(shared.keys_free[keys.stage()]);
    if constexpr (kOutputs) {
#pragma unroll
      for (int nb = 0; nb < 8; ++nb) {
        o[4 * nb] *= factor[nb].x, o[4 * nb + 1] *= factor[nb].y;
        o[4 * nb + 2] *= factor[nb].x, o[4 * nb + 3] *= factor[nb].y;
      }
    }
    const uint64_t x_columns = columns_descriptor(shared_address(packet.x));
    const uint64_t r_rows = rows_descriptor(shared_address(packet.r));
    if constexpr (kOutputs)
      products_begin(s, o);
    else
      products_begin(s);
#pragma unroll
    for (int i = 0; i < 4; ++i) product<T, Right::rows_of_inner>(s, w + 4 * i, x_columns + columns_step(i));
#pragma unroll
    for (int i = 0; i < kExact; ++i)
      product<T, Right::rows_of_inner>(s, rest + 4 * i, x_columns + columns_step(i + 4 - kExact));
    products_commit();
    if constexpr (kOutputs) {
#pragma unroll
      for (int i = 0; i < 4; ++i) product<T, Right::rows_of_n>(o, w + 4 * i, r_rows + rows_step(i));
      products_commit();
    } else if (!is_map) {
      arrive(shared.values_free[Ring<kValueStages>{values.count - 1}.stage()]);
    }
    products_wait<kOutputs ? 1 : 0>(s);
    pack_state(state, s);
    if constexpr (kOutputs) {
      products_wait<0>(o);
#pragma unroll
      for (int i = 0; i < 4; ++i) pack_operand<T>(output + 4 * i, o + 8 * i);
    }
    keys.next();
    packets.next();
  }
};

// kNorm: q and k are normalised here.
template <class T, bool kNorm, Pass kPass>
__global__ void __launch_bounds__(kChunkThreads, 1)
    sm90_chunk_gated_delta_rule(const __grid_constant__ ChunkRuleParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  ChunkShared& shared = *reinterpret_cast<ChunkShared*>(memory);
  if (threadIdx.x == 0) {
    constexpr int kReaders = (kBlocks + 2) * kGroupArrivals;  // the states of both blocks, and the preparers of one
    for (int i = 0; i < kKeyStages; ++i) {
      barrier_init(barrier_of(shared.keys_full[i]), kWarp);
      barrier_init(barrier_of(shared.keys_with_tail[i]), kWarp);
      barrier_init(barrier_of(shared.keys_free[i]), kReaders);
    }
    for (int i = 0; i < kValueStages; ++i) {
      barrier_init(barrier_of(shared.values_full[i]), kWarp);
      barrier_init(barrier_of(shared.values_with_tail[i]), kWarp);
      barrier_init(barrier_of(shared.values_free[i]), kHasOutputs<kPass> ? kWarpArrivals : kGroupArrivals);
      barrier_init(barrier_of(shared.outputs_full[i]), kGroupArrivals);
    }
    for (int i = 0; i < kBlocks; ++i) {
      barrier_init(barrier_of(shared.gates_full[i]), kWarpArrivals);
      barrier_init(barrier_of(shared.gates_free[i]), 2 * kGroupArrivals);
      barrier_init(barrier_of(shared.packet_full[i]), i == cluster_rank() ? 2 * kThreadArrivals : 2);
      barrier_init(barrier_of(shared.packet_free[i]), kBlocks * kGroupArrivals);
    }
    barrier_init(barrier_of(shared.inverse_full), kGroupArrivals);
    barrier_init(barrier_of(shared.inverse_free), kGroupArrivals);

    barrier_init_fence();
    prefetch_tensor_map(&p.q);
    prefetch_tensor_map(&p.k);
    prefetch_tensor_map(&p.v);
  }
  cluster_synchronize();
  wait_for_previous_kernel();
  allow_next_kernel();
  if constexpr (kPass == Pass::rows) sort_rows(p, shared);

  const int group = uniform(threadIdx.x / kGroup);
  if (group == 0) {
    give_up_registers<kServiceRegisters>();
    const int warp = threadIdx.x / kWarp;
    if (warp == 0) {
      load_keys<kPass>(p, shared);
    } else if (warp == 1) {
      load_values<kPass>(p, shared);
    } else if (warp == 2) {
      GateLoader<kPass>{p, shared}.run();
      if constexpr (kHasOutputs<kPass>) zero_outputs<T, kPass>(p, shared);
    } else if constexpr (kHasOutputs<kPass>) {
      store_outputs<T, kPass>(p, shared);
    }
  } else if (group == 1) {
    give_up_registers<kPrepareRegisters>();
    InversePreparer<T, kNorm, kPass>(p, shared).run();
  } else if (group == 2) {
    give_up_registers<kPrepareRegisters>();
    AttentionPreparer<T, kNorm, kPass>(p, shared).run();
  } else {
    claim_registers<kStateRegisters>();
    ChunkState<T, kPass>(p, shared).run();
  }
  __syncwarp();
  cluster_synchronize();  // the other block may still write here
}

// ------------------------------------------------------------------------------------------------- ends of segments
// The end of a segment from a state of zero becomes its end: end_i += end_(i-1) map_i in float32, segment after
// segment. A block does this for eight rows of a state; each warp sums over sixteen of the inner dimension, and the
// sums of the warps are added in their order. Maps are copied a segment ahead.
constexpr int kJoinRows = 8, kJoinWarps = 8, kJoinThreads = kJoinWarps * kWarp, kJoinStages = 2;
constexpr uint32_t kMapBytes = kHead * kHead * sizeof(float);

struct alignas(128) JoinShared {
  float map[kJoinStages][kHead][kHead];
  float sums[kJoinWarps][kJoinRows][kHead];
  float state[kJoinRows][kHead];
  uint64_t full[kJoinStages];
};

__global__ void __launch_bounds__(kJoinThreads, 1) sm90_join_segments(const __grid_constant__ ChunkRuleParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  JoinShared& shared = *reinterpret_cast<JoinShared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kJoinStages; ++i) barrier_init(barrier_of(shared.full[i]), 1);
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous_kernel();
  allow_next_kernel();

  const int wanted = blockIdx.z * gridDim.y + blockIdx.y;
  if (wanted >= p.rows || load_slot(p.cache_indices, wanted) < 0) return;
  int first = 0, joined = 0;
  RowPlace::for_each(p, [&](int row, const RowPlace& place) {
    if (row == wanted) first = place.first_segment, joined = place.segments - 2;
  });
  if (joined <= 0) return;
  constexpr int kSlices = kHead / kJoinRows;
  const int slice = blockIdx.x % kSlices, head = blockIdx.x / kSlices;
  const int warp = threadIdx.x / kWarp, column = threadIdx.x % kWarp * 4;
  const auto offset = [&](int i) { return (static_cast<int64_t>(first + i) * p.value_heads + head) * kHead * kHead; };
  const auto own = [&](int i) {
    return reinterpret_cast<float4*>(p.segment_ends + offset(i) + (slice * kJoinRows + warp) * kHead + column);
  };
  const auto copy_map = [&](int i, uint32_t stage) {
    const SharedAddress full = barrier_of(shared.full[stage]);
    barrier_arrive_expect(full, kMapBytes);
    copy_from_global(shared_address(shared.map[stage]), p.segment_maps + offset(i), kMapBytes, full);
  };
  const auto share = [&](const float4& x) { *reinterpret_cast<float4*>(&shared.state[warp][column]) = x; };
  Ring<kJoinStages> ring;
  if (threadIdx.x == 0) copy_map(1, 0);
  share(*own(0));
  for (int i = 1; i <= joined; ++i) {
    float4 end = *own(i);
    __syncthreads();
    if (threadIdx.x == 0 && i < joined) copy_map(i + 1, (ring.stage() + 1) % kJoinStages);
    barrier_wait(barrier_of(shared.full[ring.stage()]), ring.phase());
    float sums[kJoinRows][4] = {};
#pragma unroll
    for (int four = 0; four < kHead / kJoinWarps / 4; ++four) {
      const int inner = warp * (kHead / kJoinWarps) + 4 * four;
      float state[kJoinRows][4];
#pragma unroll
      for (int row = 0; row < kJoinRows; ++row)
        *reinterpret_cast<float4*>(state[row]) = *reinterpret_cast<const float4*>(&shared.state[row][inner]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4 map = *reinterpret_cast<const float4*>(&shared.map[ring.stage()][inner + j][column]);
#pragma unroll
        for (int row = 0; row < kJoinRows; ++row) {
          sums[row][0] = fmaf(state[row][j], map.x, sums[row][0]);
          sums[row][1] = fmaf(state[row][j], map.y, sums[row][1]);
          sums[row][2] = fmaf(state[row][j], map.z, sums[row][2]);
          sums[row][3] = fmaf(state[row][j], map.w, sums[row][3]);
        }
      }
    }
#pragma unroll
    for (int row = 0; row < kJoinRows; ++row)
      *reinterpret_cast<float4*>(&shared.sums[warp][row][column]) = {sums[row][0], sums[row][1], sums[row][2],
                                                                     sums[row][3]};
    __syncthreads();
#pragma unroll
    for (int part = 0; part < kJoinWarps; ++part) {
      const float4 sum = *reinterpret_cast<const float4*>(&shared.sums[part][warp][column]);
      end.x += sum.x, end.y += sum.y, end.z += sum.z, end.w += sum.w;
    }
    *own(i) = end;
    share(end);
    ring.next();
  }
}

}  // namespace gdn::sm90
