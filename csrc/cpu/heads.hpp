#pragma once

#include "cpu/rows.hpp"

namespace gdn::cpu::GDN_CPU_ISA {

// A view of `heads` heads of `size` channels, from channel `first` of the last dim of `qkv` ([..., D], unit stride).
GDN_INLINE TensorRef heads_of(const TensorRef& qkv, int64_t first, int64_t heads, int64_t size) {
  TensorRef view = qkv;
  view.data = element_at(qkv, first);
  view.ndim = qkv.ndim + 1;
  view.shape[qkv.ndim - 1] = heads;
  view.stride[qkv.ndim - 1] = size;
  view.shape[qkv.ndim] = size;
  view.stride[qkv.ndim] = 1;
  return view;
}

GDN_INLINE TensorRef query_heads(const TensorRef& qkv, const GdnHeads& heads) {
  return heads_of(qkv, 0, heads.num_k_heads, heads.head_k_dim);
}
GDN_INLINE TensorRef key_heads(const TensorRef& qkv, const GdnHeads& heads) {
  return heads_of(qkv, heads.num_k_heads * heads.head_k_dim, heads.num_k_heads, heads.head_k_dim);
}
GDN_INLINE TensorRef value_heads(const TensorRef& qkv, const GdnHeads& heads) {
  return heads_of(qkv, 2 * heads.num_k_heads * heads.head_k_dim, heads.num_v_heads, heads.head_v_dim);
}

}  // namespace gdn::cpu::GDN_CPU_ISA
