#pragma once

#include <cuda.h>

#include "core/tensor_ref.hpp"

namespace gdn::sm90 {

// Describes a [T, heads, channels] tensor of 16-bit elements to the copy engine, in boxes of `box_tokens` tokens of one
// head and 64 channels, permuted as sm90_tensor_core.cuh says. Coordinates: channel, head, token.
CUtensorMap tensor_map(const char* op, const TensorRef& tensor, unsigned box_tokens);

// Whether the copy engine can read `tensor`: it starts at a multiple of 16 bytes and so do its tokens and heads.
bool has_tensor_map(const TensorRef& tensor);

}  // namespace gdn::sm90
