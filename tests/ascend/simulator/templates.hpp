#pragma once

// The helpers that lowered TileLang calls, with the flags and barriers that they contain.

#include "ascendc.hpp"

namespace Catlass {}

namespace tl::ascend {

using namespace AscendC;

// A tile of kRows x kColumns elements in the unified buffer; a copy that does not fill it clears it first.
template <class T, uint32_t kColumns, uint32_t kRows>
void copy_gm_to_ub(LocalTensor<T> dst, GlobalTensor<T> src, uint32_t pitch, uint32_t rows, uint32_t columns, T pad) {
  if (rows != kRows || columns != kColumns) {
    SetFlag<HardEvent::MTE2_V>(0);
    WaitFlag<HardEvent::MTE2_V>(0);
    SetFlag<HardEvent::MTE3_V>(0);
    WaitFlag<HardEvent::MTE3_V>(0);
    Duplicate<T>(dst, pad, kRows * kColumns);
    SetFlag<HardEvent::V_MTE2>(0);
    WaitFlag<HardEvent::V_MTE2>(0);
  }
  const DataCopyExtParams shape(rows, columns * sizeof(T), (pitch - columns) * sizeof(T),
                                (kColumns - columns) * sizeof(T) / 32, 0);
  DataCopyPad(dst, src, shape, pad);
}

template <class T, uint32_t kColumns, uint32_t kRows>
void copy_ub_to_gm(GlobalTensor<T> dst, LocalTensor<T> src, uint32_t pitch, uint32_t rows, uint32_t columns) {
  const DataCopyExtParams shape(rows, columns * sizeof(T), (kColumns - columns) * sizeof(T) / 32,
                                (pitch - columns) * sizeof(T), 0);
  DataCopyPad(dst, src, shape);
}

template <class To, class From, uint32_t kCount>
void copy_ub_to_ub(LocalTensor<To> dst, LocalTensor<From> src, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
                   uint32_t) {
  if constexpr (std::is_same_v<To, From>)
    DataCopy(dst, src, kCount);
  else
    Cast(dst, src, std::is_same_v<To, float> ? RoundMode::CAST_NONE : RoundMode::CAST_RINT, kCount);
}

template <class T>
void Fill(const LocalTensor<T>& dst, const T& value, int count) {
  Duplicate<T>(dst, value, count);
}

template <class T>
void brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, int repeats, int dst_block, int dst_repeat) {
  Brcb(dst, src, repeats, {dst_block, dst_repeat});
}

template <class T>
void mul_mask(const LocalTensor<T>& dst, const LocalTensor<T>& a, const LocalTensor<T>& b, uint64_t mask_low,
              uint64_t mask_high, int repeats, int dst_block, int a_block, int b_block, int dst_repeat, int a_repeat,
              int b_repeat) {
  Mul(dst, a, b, {mask_low, mask_high}, repeats, {dst_block, a_block, b_block, dst_repeat, a_repeat, b_repeat});
}

}  // namespace tl::ascend
