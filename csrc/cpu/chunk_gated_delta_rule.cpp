// Chunked (WY) prefill of the gated delta rule over packed rows, chunks of 64 tokens counted from the start of a row.
//
// Tiles: one task takes one row and the value heads of one key head (or one value head, where tasks are scarce) and
// walks its chunks in order. Per chunk the keys, queries and their products are formed once for all its value heads;
// chunk_products.cpp advances the states, which stay transposed in scratch (64 KiB a head, L2) from the first chunk to
// the last. A last chunk of one token is a decode step instead.
// Memory: q, k, v, g, beta are read once and o written once; a state is read and written once a row.
// Accuracy: float32 throughout, cumulative gates in float64; one rounding of o and of the stored state.
// Determinism: a row's bits depend on nothing but the row, so batching, splitting at a multiple of 64 and the number of
// threads do not change them; snapshots are copies of the state that the next chunk starts from.
// Synchronisation: none; rows name different slots and heads are independent.
#include "cpu/chunk_products.hpp"
#include "cpu/fused_sigmoid_gating_delta_rule_update.hpp"
#include "cpu/isa_kernels.hpp"

namespace gdn::cpu::GDN_CPU_ISA {
namespace {

constexpr int64_t kZeroRows = 64;
constexpr float kLowestLogGate = -200.0f;  // e^-200 is 0 in float32; keeps sums of gates finite

struct Shape {
  explicit Shape(const ChunkGatedDeltaRuleArgs& args)
      : H(args.q.shape[1]),
        HV(args.v.shape[1]),
        K(args.q.shape[2]),
        V(args.v.shape[2]),
        K_padded(round_up(K, kLanes)),
        panels((V + kPanel - 1) / kPanel) {}

  int64_t state_elements() const { return V * K; }
  int64_t transposed_elements() const { return panels * K * kPanel; }

  int64_t H, HV, K, V, K_padded, panels;
};

// One row of the batch.
struct Row {
  Row(const ChunkGatedDeltaRuleArgs& args, int64_t row)
      : n(row),
        begin(index_at(args.query_start_loc, row)),
        length(index_at(args.query_start_loc, row + 1) - begin),
        chunks((length + kChunk - 1) / kChunk),
        slot(slot_at(args.cache_indices, row, args.ssm_pool.shape[0])),
        track_chunk(args.track_state ? index_at(args.track_chunk_idx, row) : -1),
        from_slot(flag_at(args.has_initial_state, row, true)) {}

  int64_t n, begin, length, chunks, slot, track_chunk;
  bool from_slot;
};

struct Scratch {
  Scratch(void* base, const Shape& shape, int64_t heads) : cut(base) {
    keys.K = shape.K;
    keys.k = cut.floats(kChunk * shape.K);
    keys.kt = cut.floats(kChunk * shape.K);
    keys.qt = cut.floats(kChunk * shape.K);
    keys.kkt = cut.floats(kChunk * kChunk);
    keys.qkt = cut.floats(kChunk * kChunk);
    for (float** gate : {&gates.G_high, &gates.G_low, &gates.decay, &gates.remaining, &gates.beta})
      *gate = cut.floats(kChunk);
    values.panels = shape.panels;
    values.solve = cut.floats(kChunk * kChunk);
    values.attend = cut.floats(kChunk * kChunk);
    for (float** tokens : {&values.v, &values.written, &values.retained, &values.out})
      *tokens = cut.floats(shape.panels * kChunk * kPanel);
    row_state = cut.floats(shape.state_elements());
    tile = cut.floats(kStateTile * shape.K_padded);
    states = cut.floats(heads * shape.transposed_elements());
  }

  ScratchCutter cut;
  ChunkKeys keys;
  ChunkGates gates;
  ChunkValues values;
  float* row_state;  // [V, K]
  float* tile;       // [kStateTile, K_padded]
  float* states;     // [heads][panels][K][kPanel]
};

GDN_INLINE char* pool_state(const ChunkGatedDeltaRuleArgs& args, const Shape& shape, const Row& row, int64_t head) {
  return element_at(args.ssm_pool, row.slot * args.ssm_pool.stride[0] + head * shape.state_elements());
}

// Where channel v (a multiple of kStateTile) of the transposed state starts.
GDN_INLINE float* state_column(const Shape& shape, float* state, int64_t v) {
  return state + v / kPanel * shape.K * kPanel + v % kPanel;
}

// Transposes a [V, K] state of any dtype to panels of floats; null means zeros.
void load_state(DType dtype, const char* src, const Shape& shape, Scratch& scratch, float* state) {
  if (src == nullptr || shape.V % kPanel != 0) fill_zero(state, shape.transposed_elements() * 4);
  if (src == nullptr) return;
  for (int64_t v = 0; v < shape.V; v += kStateTile) {
    for (int64_t i = 0; i < kStateTile; ++i)
      load_floats(dtype, src + (v + i) * shape.K * element_size(dtype), shape.K, scratch.tile + i * shape.K_padded,
                  shape.K_padded);
    transpose(scratch.tile, shape.K_padded, kStateTile, shape.K, state_column(shape, state, v), kPanel);
  }
}

void store_state(DType dtype, char* dst, const Shape& shape, Scratch& scratch, float* state) {
  for (int64_t v = 0; v < shape.V; v += kStateTile) {
    transpose(state_column(shape, state, v), kPanel, shape.K, kStateTile, scratch.tile, shape.K_padded);
    for (int64_t i = 0; i < kStateTile; ++i)
      store_floats(dtype, dst + (v + i) * shape.K * element_size(dtype), scratch.tile + i * shape.K_padded, shape.K);
  }
}

// Fills scratch.row_state with a [V, K] state of any dtype; null means zeros.
void load_row_state(DType dtype, const char* src, const Shape& shape, Scratch& scratch) {
  if (src == nullptr) {
    fill_zero(scratch.row_state, shape.state_elements() * 4);
  } else {
    load_floats(dtype, src, shape.state_elements(), scratch.row_state, shape.state_elements());
  }
}

char* track_destination(const ChunkGatedDeltaRuleArgs& args, const Shape& shape, const Row& row, int64_t head) {
  return element_at(args.track_state, (row.n * shape.HV + head) * shape.state_elements());
}

char* h_destination(const ChunkGatedDeltaRuleArgs& args, const Shape& shape, int64_t chunk, int64_t head) {
  return element_at(args.h, (chunk * shape.HV + head) * shape.state_elements());
}

// Gives the state before `chunk` (of this row) to whoever asked for it.
template <class Store>
void store_snapshots(const ChunkGatedDeltaRuleArgs& args, const Shape& shape, const Row& row, int64_t chunk,
                     int64_t first_chunk, int64_t head, const Store& store_to) {
  if (row.track_chunk == chunk) store_to(DType::f32, track_destination(args, shape, row, head));
  if (args.h && chunk < row.chunks) store_to(args.h.dtype, h_destination(args, shape, first_chunk + chunk, head));
}

GDN_INLINE int64_t head_offset(const TensorRef& t, int64_t token, int64_t head) {
  return token * t.stride[0] + head * t.stride[1];
}

void load_keys(const ChunkGatedDeltaRuleArgs& args, const Shape& shape, int64_t first_token, int64_t key_head,
               Scratch& scratch) {
  ChunkKeys& keys = scratch.keys;
  for (int64_t i = 0; i < keys.padded_tokens; i += kStateTile) {
    for (const bool is_key : {true, false}) {
      const TensorRef& source = is_key ? args.k : args.q;
      for (int64_t j = 0; j < kStateTile; ++j) {
        float* const row = scratch.tile + j * shape.K_padded;
        if (i + j < keys.tokens) {
          load_head_row(source, head_offset(source, first_token + i + j, key_head), shape.K, args.qk_l2norm,
                        is_key ? 1.0f : args.scale, row, shape.K_padded);
        } else {
          fill_zero(row, shape.K_padded * 4);
        }
        for (int64_t c = 0; is_key && c < shape.K; c += kStateTile)
          copy_bytes(keys.k + c * kChunk + (i + j) * kStateTile, row + c, kStateTile * 4);
      }
      transpose(scratch.tile, shape.K_padded, kStateTile, shape.K, (is_key ? keys.kt : keys.qt) + keys.token_offset(i),
                kTokenTile);
    }
  }
  key_products(keys);
}

void load_gates(const ChunkGatedDeltaRuleArgs& args, int64_t first_token, int64_t head, const ChunkKeys& keys,
                ChunkGates& gates) {
  double G = 0;
  for (int64_t i = 0; i < keys.padded_tokens; ++i) {
    gates.beta[i] = 0;
    if (i < keys.tokens) {
      const float g = args.g.as<const float>()[(first_token + i) * args.g.stride[0] + head];
      G += g < kLowestLogGate ? kLowestLogGate : g;
      gates.beta[i] = args.beta.as<const float>()[(first_token + i) * args.beta.stride[0] + head];
    }
    gates.G_high[i] = static_cast<float>(G);
    gates.G_low[i] = static_cast<float>(G - gates.G_high[i]);
  }
  const int64_t last = keys.tokens - 1;
  for (int64_t i = 0; i < keys.padded_tokens; i += kLanes) {
    const F high = load(gates.G_high + i), low = load(gates.G_low + i);
    store(gates.decay + i, exp<kLanes>(high));
    store(gates.remaining + i, exp<kLanes>((gates.G_high[last] - high) + (gates.G_low[last] - low)));
  }
  gates.total_decay = gates.decay[last];
}

void load_values(const ChunkGatedDeltaRuleArgs& args, const Shape& shape, int64_t first_token, int64_t head,
                 const ChunkKeys& keys, const ChunkValues& values) {
  with_element(args.v.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t i = 0; i < keys.padded_tokens; ++i) {
      const auto* const row = args.v.as<const typename E::Storage>() + head_offset(args.v, first_token + i, head);
      for (int64_t v = 0; v < shape.panels * kPanel; v += kPanel) {
        const int64_t count = i < keys.tokens ? min(kPanel, shape.V - v) : 0;
        floats_from<E>(count == 0 ? nullptr : row + v, count, values.v + v * kChunk + i * kPanel, kPanel);
      }
    }
  });
}

void store_output(const ChunkGatedDeltaRuleArgs& args, const Shape& shape, int64_t first_token, int64_t tokens,
                  int64_t head, const float* out) {
  with_element(args.out.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t i = 0; i < tokens; ++i) {
      auto* const row = args.out.as<typename E::Storage>() + head_offset(args.out, first_token + i, head);
      for (int64_t v = 0; v < shape.V; v += kPanel)
        floats_to<E>(row + v, out + v * kChunk + i * kPanel, min(kPanel, shape.V - v));
    }
  });
}

// The last chunk of a row, if it holds one token: a decode step on the [V, K] state in scratch.row_state.
void step_one_token(const ChunkGatedDeltaRuleArgs& args, const Shape& shape, int64_t token, int64_t head,
                    Scratch& scratch) {
  float* const k = scratch.keys.kt;
  float* const q = scratch.keys.qt;
  const int64_t key_head = head / (shape.HV / shape.H);
  load_head_row(args.k, head_offset(args.k, token, key_head), shape.K, args.qk_l2norm, 1.0f, k, shape.K_padded);
  load_head_row(args.q, head_offset(args.q, token, key_head), shape.K, args.qk_l2norm, args.scale, q, shape.K_padded);
  load_floats(args.v.dtype, element_at(args.v, head_offset(args.v, token, head)), shape.V, scratch.values.v,
              round_up(shape.V, kLanes));
  DeltaToken step;
  step.k = k;
  step.q = q;
  step.k_dot_q = dot(k, q, shape.K_padded);
  step.decay = exp<kLanes>(splat(args.g.as<const float>()[token * args.g.stride[0] + head]))[0];
  step.beta = args.beta.as<const float>()[token * args.beta.stride[0] + head];
  delta_rule_step(DType::f32, scratch.row_state, scratch.row_state, shape.V, shape.K, step, scratch.values.v,
                  scratch.values.out, scratch.values.v);
  store_floats(args.out.dtype, element_at(args.out, head_offset(args.out, token, head)), scratch.values.out, shape.V);
}

// Row `row` without a slot: zeros wherever something is written.
void store_zeros(const ChunkGatedDeltaRuleArgs& args, const Shape& shape, const Row& row, int64_t first_chunk,
                 int64_t first_head, int64_t heads) {
  for (int64_t t = row.begin; t < row.begin + row.length; ++t)
    fill_zero(element_at(args.out, head_offset(args.out, t, first_head)),
              heads * shape.V * element_size(args.out.dtype));
  const int64_t elements = heads * shape.state_elements();
  if (row.track_chunk >= 0 && row.track_chunk <= row.chunks)
    fill_zero(track_destination(args, shape, row, first_head), elements * 4);
  if (!args.h) return;
  for (int64_t chunk = first_chunk; chunk < first_chunk + row.chunks; ++chunk)
    fill_zero(h_destination(args, shape, chunk, first_head), elements * element_size(args.h.dtype));
}

void advance_row(const ChunkGatedDeltaRuleArgs& args, const Shape& shape, const Row& row, int64_t first_chunk,
                 int64_t first_head, int64_t heads) {
  if (row.slot < 0) {
    store_zeros(args, shape, row, first_chunk, first_head, heads);
    return;
  }
  const Scratch sizes(nullptr, shape, heads);
  Scratch scratch(thread_scratch(static_cast<size_t>(sizes.cut.used())), shape, heads);
  const int64_t head_pitch = shape.transposed_elements();
  const auto store_transposed_to = [&](float* state) {
    return [&, state](DType dtype, char* dst) { store_state(dtype, dst, shape, scratch, state); };
  };
  const auto initial_state = [&](int64_t head) { return row.from_slot ? pool_state(args, shape, row, head) : nullptr; };
  const bool ends_with_step = row.length % kChunk == 1;
  const int64_t whole_chunks = ends_with_step ? row.chunks - 1 : row.chunks;
  const bool only_step = row.length == 1;
  for (int64_t i = 0; i < heads && !only_step; ++i)
    load_state(args.ssm_pool.dtype, initial_state(first_head + i), shape, scratch, scratch.states + i * head_pitch);

  for (int64_t chunk = 0; chunk < whole_chunks; ++chunk) {
    const int64_t first_token = row.begin + chunk * kChunk;
    ChunkKeys& keys = scratch.keys;
    keys.tokens = min(kChunk, row.length - chunk * kChunk);
    keys.padded_tokens = round_up(keys.tokens, kTokenTile);
    load_keys(args, shape, first_token, first_head / (shape.HV / shape.H), scratch);
    for (int64_t i = 0; i < heads; ++i) {
      const int64_t head = first_head + i;
      scratch.values.state = scratch.states + i * head_pitch;
      store_snapshots(args, shape, row, chunk, first_chunk, head, store_transposed_to(scratch.values.state));
      load_gates(args, first_token, head, keys, scratch.gates);
      load_values(args, shape, first_token, head, keys, scratch.values);
      gate_products(keys, scratch.gates, scratch.values);
      advance_chunk(keys, scratch.gates, scratch.values);
      store_output(args, shape, first_token, keys.tokens, head, scratch.values.out);
    }
  }

  for (int64_t i = 0; i < heads; ++i) {
    const int64_t head = first_head + i;
    const auto finish = [&](const auto& store_to) {
      store_snapshots(args, shape, row, row.chunks, first_chunk, head, store_to);
      const bool changed = row.length > 0 || !row.from_slot;
      if (args.update_state && changed) store_to(args.ssm_pool.dtype, pool_state(args, shape, row, head));
    };
    float* const state = scratch.states + i * head_pitch;
    if (ends_with_step) {
      const auto store_rows_to = [&](DType dtype, char* dst) {
        store_floats(dtype, dst, scratch.row_state, shape.state_elements());
      };
      if (only_step) {
        load_row_state(args.ssm_pool.dtype, initial_state(head), shape, scratch);
      } else {
        store_state(DType::f32, reinterpret_cast<char*>(scratch.row_state), shape, scratch, state);
      }
      store_snapshots(args, shape, row, whole_chunks, first_chunk, head, store_rows_to);
      step_one_token(args, shape, row.begin + row.length - 1, head, scratch);
      finish(store_rows_to);
    } else {
      finish(store_transposed_to(state));
    }
  }
}

// first[n] = chunks of the rows before n.
int64_t* first_chunks(const ChunkGatedDeltaRuleArgs& args, int64_t rows) {
  auto* const first = static_cast<int64_t*>(caller_scratch(static_cast<size_t>(rows) * sizeof(int64_t) + 1));
  int64_t chunks = 0;
  for (int64_t n = 0; n < rows; ++n) {
    first[n] = chunks;
    chunks += Row(args, n).chunks;
  }
  return first;
}

}  // namespace

void chunk_gated_delta_rule(const ChunkGatedDeltaRuleArgs& args) {
  const Shape shape(args);
  const int64_t rows = args.query_start_loc.shape[0] - 1, tokens = args.q.shape[0], ratio = shape.HV / shape.H;
  const int64_t end = index_at(args.query_start_loc, rows);
  const int64_t heads = rows * shape.H >= 2 * get_num_threads() ? ratio : 1;
  const int64_t tasks_per_row = shape.HV / heads;
  const int64_t zero_tasks = (tokens - end + kZeroRows - 1) / kZeroRows;
  const int64_t* const first_chunk = args.h ? first_chunks(args, rows) : nullptr;
  parallel_for(rows * tasks_per_row + zero_tasks, [&](int64_t task) {
    if (task < rows * tasks_per_row) {
      const int64_t n = task / tasks_per_row;
      advance_row(args, shape, Row(args, n), first_chunk == nullptr ? 0 : first_chunk[n], task % tasks_per_row * heads,
                  heads);
    } else {
      const int64_t first = end + (task - rows * tasks_per_row) * kZeroRows;
      fill_zero(element_at(args.out, first * args.out.stride[0]),
                (min(first + kZeroRows, tokens) - first) * shape.HV * shape.V * element_size(args.out.dtype));
    }
  });
}

}  // namespace gdn::cpu::GDN_CPU_ISA
