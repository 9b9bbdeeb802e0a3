// Draft tokens of one row as a forest: which tokens a token continues from, and the gates and inputs along that path.
// Lane t of a warp knows token t; a chain is the tree whose parents are t - 1.
#pragma once

#include "cuda/sm90_conv_channel.cuh"

namespace gdn::sm90 {

constexpr int kMaxDrafts = 16;

// The parent of token `lane`, -1 for the committed state.
__device__ inline int draft_parent(IndexPtr parents, int64_t n, int drafts, int lane) {
  if (lane >= drafts) return -1;
  if (!parents.data) return lane - 1;
  const int64_t parent = load_index(parents, n * drafts + lane);
  return parent >= 0 && parent < lane ? static_cast<int>(parent) : -1;
}

// The tokens from the first one to token `lane`, itself included: one bit each, and the sum of their log gates.
struct DraftPath {
  uint32_t tokens;
  float log_decay;

  // NOTE: every step doubles the distance, so the order of additions depends on the place in the path alone: a token
  // has the same bits in a chain and in any tree.
  __device__ static DraftPath of(int parent, float g, int lane) {
    DraftPath path{1u << lane, g};
#pragma unroll
    for (int length = 1; length < kMaxDrafts; length *= 2) {
      const int source = parent < 0 ? lane : parent;
      const uint32_t tokens = __shfl_sync(kFullMask, path.tokens, source);
      const float log_decay = __shfl_sync(kFullMask, path.log_decay, source);
      const int above = __shfl_sync(kFullMask, parent, source);
      if (parent >= 0) {
        path.tokens |= tokens;
        path.log_decay += log_decay;
        parent = above;
      }
    }
    return path;
  }
};

// Inputs of one channel, oldest first: the kMaxWindow of the pool's window, then the drafts.
struct DraftInputs {
  // Rows of the three inputs before token `lane`, nearest first, one byte each.
  __device__ static uint32_t before(int parent, int lane) {
    const int first = kMaxWindow + parent;  // a token without a parent follows the newest of the window
    const int second = older(first, first), third = older(second, first);
    return first | second << 8 | third << 16;
  }

 private:
  // The row before `row`, where lane t holds the row before token t.
  __device__ static int older(int row, int before_token) {
    const int before = __shfl_sync(kFullMask, before_token, row < kMaxWindow ? 0 : row - kMaxWindow);
    return row < kMaxWindow ? row - 1 : before;
  }
};

}  // namespace gdn::sm90
