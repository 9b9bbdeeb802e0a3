#pragma once

#include "core/tensor_ref.hpp"

// One argument struct per operator, shared by every backend. Shapes are per tensor-parallel rank:
//   N sequences, T packed tokens, H key heads, HV value heads, K and V head sizes, D = 2*H*K + HV*V, W conv width,
//   T_d draft tokens a row. "optional" tensors may be absent. Slot -1: touch no state, write zeros to the output.
// Windows [.., D, W-1] are stored in that order; on an NPU they are transposed views of [.., W-1, D].
// Kernels may trust what validate() (core/validate.hpp) promises and check nothing themselves.
namespace gdn {

struct CausalConv1dArgs {
  static constexpr const char* kOp = "causal_conv1d";
  TensorRef x;          // [T, D], unit stride on D, any row pitch
  TensorRef weight;     // [D, W]
  TensorRef bias;       // optional [D]
  TensorRef conv_pool;  // optional [slots, D, W-1], inner strides (W-1, 1), any slot pitch; raw inputs, oldest first
  TensorRef query_start_loc;    // [N+1] i32/i64
  TensorRef cache_indices;      // [N] i32/i64, present iff conv_pool is
  TensorRef has_initial_state;  // optional [N] bool; absent = all true
  TensorRef track_slots;        // optional [N] i32/i64: also store a window to this slot of conv_pool; -1 = none
  TensorRef track_lens;  // [N] i32/i64, present iff track_slots is: that window ends after so many tokens of the row
  TensorRef out;         // [T, D] dtype of x, contiguous rows; rows >= query_start_loc[N] become zero
  bool silu = true;
};

struct CausalConv1dUpdateArgs {
  static constexpr const char* kOp = "causal_conv1d_update";
  TensorRef x;                           // [N, T_d, D], unit stride on D
  TensorRef weight;                      // [D, W]
  TensorRef bias;                        // optional [D]
  TensorRef conv_pool;                   // [slots, D, W-1]
  TensorRef cache_indices;               // [N]
  TensorRef parent_tokens;               // optional [N, T_d]: index of the parent draft token, -1 = the committed state
  TensorRef intermediate_conv_window;    // optional [spec_slots, T_d, D, W-1], last stride 1, others free (may overlap)
  TensorRef intermediate_state_indices;  // [N], present iff intermediate_conv_window is
  TensorRef out;                         // [N, T_d, D] dtype of x, contiguous
  bool silu = true;
  bool disable_state_update = false;
};

struct GdnGatingArgs {
  static constexpr const char* kOp = "gdn_gating";
  TensorRef A_log;    // [HV]
  TensorRef a;        // [T, HV], unit stride on HV
  TensorRef b;        // [T, HV], unit stride on HV
  TensorRef dt_bias;  // [HV]
  TensorRef g;        // [T, HV] f32 contiguous
  TensorRef beta;     // [T, HV] f32 contiguous
};

struct ChunkGatedDeltaRuleArgs {
  static constexpr const char* kOp = "chunk_gated_delta_rule";
  TensorRef q;                  // [T, H, K], unit stride on K, strides of T and H free
  TensorRef k;                  // [T, H, K]
  TensorRef v;                  // [T, HV, V]
  TensorRef g;                  // [T, HV] f32, log gate, unit stride on HV
  TensorRef beta;               // [T, HV] f32, unit stride on HV
  TensorRef ssm_pool;           // [slots, HV, V, K], inner strides dense, any slot pitch
  TensorRef query_start_loc;    // [N+1]
  TensorRef cache_indices;      // [N]
  TensorRef has_initial_state;  // optional [N] bool; absent = all true
  TensorRef track_state;        // optional [N, HV, V, K] f32 contiguous: state before chunk track_chunk_idx[n]
  TensorRef track_chunk_idx;    // [N] i32/i64, present iff track_state is; -1 = none
  TensorRef h;                  // optional [sum_n ceil(L_n/64), HV, V, K] f32/bf16/f16: state before every chunk
  TensorRef segment_states;     // scratch [2, T / (64*segment_chunks) + N, HV, V, K] f32, present iff segment_chunks is
  TensorRef out;                // [T, HV, V] dtype of v, contiguous; rows >= query_start_loc[N] become zero
  TensorRef workspace;          // f32, contents undefined; only kernels for npu need it
  float scale = 0;
  int64_t segment_chunks = 0;  // not 0: rows may be cut into segments of so many chunks, to be worked on side by side
  bool qk_l2norm = false;
  bool update_state = true;  // false: the final state is not stored to ssm_pool
};

struct FusedSigmoidGatingDeltaRuleUpdateArgs {
  static constexpr const char* kOp = "fused_sigmoid_gating_delta_rule_update";
  TensorRef q;                 // [N, T_d, H, K], unit stride on K
  TensorRef k;                 // [N, T_d, H, K]
  TensorRef v;                 // [N, T_d, HV, V], unit stride on V
  TensorRef a;                 // [N, T_d, HV], unit stride on HV
  TensorRef b;                 // [N, T_d, HV], unit stride on HV
  TensorRef A_log;             // [HV]
  TensorRef dt_bias;           // [HV]
  TensorRef ssm_pool;          // [slots, HV, V, K]
  TensorRef cache_indices;     // [N]
  TensorRef parent_tokens;     // optional [N, T_d]
  TensorRef intermediate_ssm;  // optional [spec_slots, T_d, HV, V, K] dtype of ssm_pool, strides of dims 0, 1 free
  TensorRef intermediate_state_indices;  // [N], present iff intermediate_ssm is
  TensorRef out;                         // [N, T_d, HV, V] dtype of v, contiguous
  float scale = 0;
  bool qk_l2norm = true;
  bool disable_state_update = false;
};

struct GdnHeads {
  int64_t num_k_heads = 0, num_v_heads = 0, head_k_dim = 0, head_v_dim = 0;
  int64_t ratio() const { return num_v_heads / num_k_heads; }
  int64_t conv_dim() const { return 2 * num_k_heads * head_k_dim + num_v_heads * head_v_dim; }
};

struct GdnLayerWeights {
  TensorRef conv_weight;  // [D, W]
  TensorRef conv_bias;    // optional [D]
  TensorRef A_log;        // [HV]
  TensorRef dt_bias;      // [HV]
};

// What precedes the chunk rule in a prefill: convolution, split, l2norm of q and k, gates.
struct GdnFrontendArgs {
  static constexpr const char* kOp = "gdn_frontend";
  GdnHeads heads;
  GdnLayerWeights weights;
  TensorRef mixed_qkv;          // [T, D] channel order q, k, v; unit stride on D, any row pitch
  TensorRef a;                  // [T, HV], unit stride on HV
  TensorRef b;                  // [T, HV], unit stride on HV
  TensorRef conv_pool;          // [slots, D, W-1]
  TensorRef query_start_loc;    // [N+1]
  TensorRef cache_indices;      // [N]
  TensorRef has_initial_state;  // optional [N] bool
  TensorRef track_slots;        // optional [N]: conv window destination, as in CausalConv1dArgs
  TensorRef track_lens;         // [N], present iff track_slots is
  TensorRef qkv;                // [T, D] dtype of mixed_qkv, contiguous; rows >= query_start_loc[N] become zero
  TensorRef g;                  // [T, HV] f32 contiguous
  TensorRef beta;               // [T, HV] f32 contiguous
  bool qk_l2norm = true;
  bool silu = true;
};

struct GdnPrefillArgs {
  static constexpr const char* kOp = "gdn_prefill";
  GdnHeads heads;
  GdnLayerWeights weights;
  TensorRef mixed_qkv;          // [T, D] channel order q, k, v; unit stride on D, any row pitch
  TensorRef a;                  // [T, HV], unit stride on HV
  TensorRef b;                  // [T, HV], unit stride on HV
  TensorRef conv_pool;          // [slots, D, W-1]
  TensorRef ssm_pool;           // [slots, HV, V, K]
  TensorRef query_start_loc;    // [N+1]
  TensorRef cache_indices;      // [N]
  TensorRef has_initial_state;  // optional [N] bool
  TensorRef track_slots;        // optional [N]: conv window destination, as in CausalConv1dArgs
  TensorRef track_lens;         // [N], present iff track_slots is
  TensorRef track_state;        // optional [N, HV, V, K] f32
  TensorRef track_chunk_idx;    // [N], present iff track_state is
  TensorRef h;                  // optional, as in ChunkGatedDeltaRuleArgs
  TensorRef qkv_scratch;        // [T, D] dtype of mixed_qkv, contiguous, contents undefined before and after
  TensorRef g_scratch;          // [T, HV] f32
  TensorRef beta_scratch;       // [T, HV] f32
  TensorRef segment_states;     // as in ChunkGatedDeltaRuleArgs
  TensorRef out;                // [T, HV, V] dtype of mixed_qkv, contiguous; rows >= query_start_loc[N] become zero
  float scale = 0;
  int64_t segment_chunks = 0;  // as in ChunkGatedDeltaRuleArgs
  bool silu = true;
};

// How the input projections lay out their channels.
//   separate     q, k, v of all heads in one tensor; a, b and z in tensors of their own
//   contiguous   q, k, v, z of all heads; b, a of all heads
//   interleaved  q, k, v, z of the first key head and its value heads, then of the next; b, a likewise
enum class ProjectionLayout : uint8_t { separate, contiguous, interleaved };

// One token a row, states committed. The inputs are mixed_qkv, a, b and z, or qkvz and ba, as `layout` says.
struct GdnDecodeArgs {
  static constexpr const char* kOp = "gdn_decode";
  GdnHeads heads;
  GdnLayerWeights weights;
  ProjectionLayout layout = ProjectionLayout::separate;
  TensorRef mixed_qkv;      // [N, D]
  TensorRef a;              // [N, HV]
  TensorRef b;              // [N, HV]
  TensorRef z;              // [N, HV, V] dtype of mixed_qkv, unit stride on V; present iff norm_weight is
  TensorRef qkvz;           // [N, D + HV*V], unit stride on the channels
  TensorRef ba;             // [N, 2*HV], unit stride on the channels
  TensorRef conv_pool;      // [slots, D, W-1]
  TensorRef ssm_pool;       // [slots, HV, V, K]
  TensorRef cache_indices;  // [N]
  TensorRef track_slots;    // optional [N] i32/i64: also store the row's new state and window to this slot; -1 = none
  TensorRef norm_weight;    // optional [V]: out = o * rsqrt(mean(o^2) + norm_eps) * norm_weight * act(z)
  TensorRef out;            // [N, HV, V] dtype of the projections, contiguous
  float scale = 0, norm_eps = 0;
  bool silu = true, norm_silu = true;  // norm_silu: z gates by silu, else by sigmoid

  const TensorRef& projection() const { return layout == ProjectionLayout::separate ? mixed_qkv : qkvz; }
};

// What is kept of draft tokens to commit any of them later. Row n belongs to row n of the batch. Kernels see a leading
// dimension for layers in gdn_fold and none in gdn_verify.
struct DraftRecord {
  TensorRef x;  // [rows, T_d, D] dtype of conv_pool: inputs of the convolution, as its window would store them
  TensorRef k;  // [rows, T_d, H, K] f32, normalised; the last two dimensions are dense
  TensorRef d;  // [rows, T_d, HV, V] f32: d = beta (v - e^g S k), S the unrounded state before the token
  TensorRef g;  // [rows, T_d, HV] f32, log gate

  explicit operator bool() const { return x.present || k.present || d.present || g.present; }
};

// T_d draft tokens a row, states left alone. Either the three intermediate_* or the record are present.
struct GdnVerifyArgs {
  static constexpr const char* kOp = "gdn_verify";
  GdnHeads heads;
  GdnLayerWeights weights;
  TensorRef mixed_qkv;                   // [N, T_d, D]
  TensorRef a;                           // [N, T_d, HV]
  TensorRef b;                           // [N, T_d, HV]
  TensorRef conv_pool;                   // [slots, D, W-1], read only
  TensorRef ssm_pool;                    // [slots, HV, V, K], read only
  TensorRef cache_indices;               // [N]
  TensorRef parent_tokens;               // optional [N, T_d]
  TensorRef intermediate_ssm;            // [spec_slots, T_d, HV, V, K] dtype of ssm_pool
  TensorRef intermediate_conv_window;    // [spec_slots, T_d, D, W-1] dtype of conv_pool
  TensorRef intermediate_state_indices;  // [N]
  DraftRecord record;                    // at least N rows
  TensorRef qkv_scratch;                 // [N, T_d, D] dtype of mixed_qkv, contiguous; absent where it is not needed
  TensorRef out;                         // [N, T_d, HV, V] dtype of mixed_qkv, contiguous
  float scale = 0;
  bool silu = true;
};

// Stores step `last_steps[n]` of the intermediate buffers to slot cache_indices[n]; -1 (nothing accepted) and any
// step outside [0, T_d) leave the slot alone.
struct GdnCommitArgs {
  static constexpr const char* kOp = "gdn_commit";
  TensorRef conv_pool;                   // [slots, D, W-1]
  TensorRef ssm_pool;                    // [slots, HV, V, K]
  TensorRef cache_indices;               // [N]
  TensorRef intermediate_ssm;            // [spec_slots, T_d, HV, V, K] dtype of ssm_pool
  TensorRef intermediate_conv_window;    // [spec_slots, T_d, D, W-1] dtype of conv_pool
  TensorRef intermediate_state_indices;  // [N]
  TensorRef last_steps;                  // [N] i32/i64
};

// Adds the draft tokens up to `last_steps[n]`, those on its path in a tree, to the states of slot cache_indices[n] in
// all layers; a step outside [0, T_d) leaves them alone. With track_slots the states after track_steps[n] are also
// stored to that slot.
struct GdnFoldArgs {
  static constexpr const char* kOp = "gdn_fold";
  TensorRef conv_pool;      // [layers, slots, D, W-1]
  TensorRef ssm_pool;       // [layers, slots, HV, V, K]
  TensorRef cache_indices;  // [N]
  DraftRecord record;       // [layers, at least N rows, ...]
  TensorRef last_steps;     // [N]
  TensorRef parent_tokens;  // optional [N, T_d]
  TensorRef track_slots;    // optional [N]; -1 = none
  TensorRef track_steps;    // [N], present iff track_slots is
};

}  // namespace gdn
