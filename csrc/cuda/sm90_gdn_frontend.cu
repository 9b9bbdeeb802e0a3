#include <algorithm>
#include <limits>

#include "core/composition.hpp"
#include "cuda/sm90_conv_layer.hpp"
#include "cuda/sm90_gdn_frontend.cuh"
#include "cuda/sm90_gdn_frontend.hpp"

namespace gdn::sm90 {
namespace {

constexpr int64_t kTypicalTile = 18, kLeastTile = 4;  // tokens

int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Neighbouring tiles run together, which is kind to memory only while tiles are short; a last wave of blocks that is
// nearly full wastes least. Even, because warps take two tokens at a time.
int64_t tile_of(int64_t tokens, int64_t groups, int64_t resident_warps) {
  const int64_t tokens_a_warp = quotient_up(tokens * groups, resident_warps);
  const int64_t waves = std::max<int64_t>(1, (tokens_a_warp + kTypicalTile / 2) / kTypicalTile);
  return std::max(kLeastTile, quotient_up(quotient_up(tokens_a_warp, waves), 2) * 2);
}

bool fits_vectors(const CausalConv1dArgs& args) {
  return is_all_bf16(args.x, args.weight, args.bias, args.conv_pool) &&
         args.x.shape[1] % LaneChannels<bf16>::kCount == 0 && is_aligned(args.x, 16, 0) &&
         is_aligned(args.out, 16, 0) && is_aligned(args.weight, 16) && (!args.bias || is_aligned(args.bias, 16)) &&
         (!args.conv_pool || is_aligned(args.conv_pool, 16, 0)) &&
         args.x.stride[0] <= std::numeric_limits<uint32_t>::max() / size_of(DType::bf16);
}

FrontendParams params_of(const CausalConv1dArgs& args) {
  FrontendParams p = {};
  p.x = float_ptr(args.x);
  p.out = float_ptr(args.out);
  p.conv = conv_layer(args.weight, args.bias, args.conv_pool, args.x.dtype, args.silu);
  p.query_start_loc = index_ptr(args.query_start_loc);
  p.cache_indices = slot_ptr(args.cache_indices, args.conv_pool);
  p.track_slots = slot_ptr(args.track_slots, args.conv_pool);
  p.track_lens = index_ptr(args.track_lens);
  p.has_initial_state = args.has_initial_state.present ? args.has_initial_state.as<bool>() : nullptr;
  p.x_pitch = args.x.stride[0];
  p.tokens = static_cast<int32_t>(args.x.shape[0]);
  p.rows = static_cast<int32_t>(args.query_start_loc.shape[0] - 1);
  p.channels = static_cast<int32_t>(args.x.shape[1]);
  p.key_dim = p.value_dim = kHeadDim;
  return p;
}

template <class T>
void launch_frontend(const char* op, FrontendParams p, int64_t groups, int device, Stream stream) {
  constexpr int kWarps = kFrontendThreads / kWarp;
  p.groups = static_cast<int32_t>(groups);
  p.tile_tokens =
      static_cast<int32_t>(tile_of(p.tokens, groups, int64_t{multiprocessors(op, device)} * kFrontendBlocks * kWarps));
  p.tiles = static_cast<int32_t>(quotient_up(p.tokens, p.tile_tokens));
  p.conv_blocks = static_cast<uint32_t>(quotient_up(p.tiles * groups, kWarps));
  LaunchShape shape;
  shape.grid = p.conv_blocks + static_cast<uint32_t>(quotient_up(p.gates.elements, kGatesABlock));
  shape.block = kFrontendThreads;
  shape.shared_bytes = LaneChannels<T>::kSharedBytes;
  launch(op, sm90_gdn_frontend<T>, shape, p, device, stream);
}

}  // namespace

void causal_conv1d(const CausalConv1dArgs& args, Stream stream) {
  const FrontendParams p = params_of(args);
  if (fits_vectors(args))
    launch_frontend<bf16>(args.kOp, p, quotient_up(p.channels, LaneChannels<bf16>::kWarpChannels), args.x.device_index,
                          stream);
  else
    launch_frontend<AnyType>(args.kOp, p, quotient_up(p.channels, kHeadDim), args.x.device_index, stream);
}

void gdn_frontend(const GdnFrontendArgs& args, Stream stream) {
  const CausalConv1dArgs conv = convolution_of(args);
  const GdnHeads& heads = args.heads;
  FrontendParams p = params_of(conv);
  p.gates = gating_params(gates_of(args));
  p.key_heads = static_cast<int32_t>(2 * heads.num_k_heads);
  p.qk_l2norm = args.qk_l2norm;
  p.key_dim = static_cast<int32_t>(heads.head_k_dim);
  p.value_dim = static_cast<int32_t>(heads.head_v_dim);
  if (fits_vectors(conv) && heads.head_k_dim == kHeadDim)
    launch_frontend<bf16>(args.kOp, p, quotient_up(p.channels, LaneChannels<bf16>::kWarpChannels),
                          args.mixed_qkv.device_index, stream);
  else
    launch_frontend<AnyType>(args.kOp, p, 2 * heads.num_k_heads + heads.num_v_heads, args.mixed_qkv.device_index,
                             stream);
}

}  // namespace gdn::sm90
