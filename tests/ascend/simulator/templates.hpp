#pragma once

// The helpers that lowered TileLang calls, with the flags and barriers that they contain.

#include "ascendc.hpp"

namespace Catlass::layout {
struct RowMajor {};
}  // namespace Catlass::layout

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

template <class T>
void sub_mask(const LocalTensor<T>& dst, const LocalTensor<T>& a, const LocalTensor<T>& b, uint64_t mask_low,
              uint64_t mask_high, int repeats, int dst_block, int a_block, int b_block, int dst_repeat, int a_repeat,
              int b_repeat) {
  Sub(dst, a, b, {mask_low, mask_high}, repeats, {dst_block, a_block, b_block, dst_repeat, a_repeat, b_repeat});
}

// A tile of kRows x kColumns elements in L1; a copy that does not fill it may clear it first. 0 stands for all.
template <class T, uint32_t kRows, uint32_t kColumns>
void copy_gm_to_l1(LocalTensor<T> dst, GlobalTensor<T> src, uint32_t pitch, uint32_t rows, uint32_t columns,
                   bool clear) {
  if (rows == 0) rows = kRows;
  if (columns == 0) columns = kColumns;
  if (clear && (rows != kRows || columns != kColumns)) {
    InitConstValue(dst, {1, static_cast<int>(kRows * kColumns * sizeof(T) / 32), 0, 0});
    PipeBarrier<PIPE_MTE2>();
  }
  DataCopy(dst, src, Nd2NzParams{rows, columns, pitch, kRows});
}

template <class T, uint32_t kSrcRows, uint32_t kSrcColumns, bool kTransposed = false>
void copy_l1_to_l0a(LocalTensor<T> dst, LocalTensor<T> src, uint32_t rows, uint32_t columns) {
  LoadDataA(dst, src, {kSrcRows, rows, columns, kTransposed});
}

template <class T, uint32_t kSrcRows, uint32_t kSrcColumns, bool kTransposed = false>
void copy_l1_to_l0b(LocalTensor<T> dst, LocalTensor<T> src, uint32_t rows, uint32_t columns) {
  LoadDataB(dst, src, {kSrcRows, rows, columns, kTransposed});
}

template <class T, class Sum, uint32_t kM, uint32_t kN>
void mma(LocalTensor<T> a, LocalTensor<T> b, LocalTensor<Sum> c, bool initialise, uint32_t k) {
  Mmad(c, a, b, {kM, kN, k, initialise});
}

template <class Sum, class To, class Layout, uint32_t kRows, uint32_t kColumns>
void copy_l0c_to_gm(GlobalTensor<To> dst, LocalTensor<Sum> src, uint32_t pitch, uint32_t rows, uint32_t columns) {
  static_assert(std::is_same_v<Layout, Catlass::layout::RowMajor>);
  Fixpipe(dst, src, {kRows, rows == 0 ? kRows : rows, columns == 0 ? kColumns : columns, pitch});
}

// Operands wait for their loads, the sum for its last store; on return both may be loaded over and the sum is ready to
// be stored. The two halves of L0A and L0B take turns.
template <class T, class Sum, uint32_t kM, uint32_t kN, uint32_t kK, bool kTransposedA, bool kTransposedB>
void gemm_v0(const LocalTensor<T>& a, const LocalTensor<T>& b, const LocalTensor<Sum>& c, TBuf<TPosition::A2>& l0a,
             TBuf<TPosition::B2>& l0b, bool initialise) {
  constexpr uint32_t kStep = 128;
  const LocalTensor<T> left = l0a.Get<T>(), right = l0b.Get<T>();
  SetFlag<HardEvent::MTE2_MTE1>(0);
  WaitFlag<HardEvent::MTE2_MTE1>(0);
  SetFlag<HardEvent::FIX_M>(0);
  WaitFlag<HardEvent::FIX_M>(0);
  SetFlag<HardEvent::M_MTE1>(0);
  SetFlag<HardEvent::M_MTE1>(1);
  for (uint32_t begin = 0; begin < kK; begin += kStep) {
    const uint32_t size = std::min(kStep, kK - begin), half = begin / kStep % 2;
    const LocalTensor<T> left_half = left[half * kM * kStep], right_half = right[half * kN * kStep];
    WaitFlag<HardEvent::M_MTE1>(half);
    if constexpr (kTransposedA)
      copy_l1_to_l0a<T, kK, kM, true>(left_half, a[begin * kBlock], kM, size);
    else
      copy_l1_to_l0a<T, kM, kK>(left_half, a[begin * kM], kM, size);
    if constexpr (kTransposedB)
      copy_l1_to_l0b<T, kN, kK, true>(right_half, b[begin * kN], size, kN);
    else
      copy_l1_to_l0b<T, kK, kN>(right_half, b[begin * kBlock], size, kN);
    SetFlag<HardEvent::MTE1_M>(half);
    WaitFlag<HardEvent::MTE1_M>(half);
    PipeBarrier<PIPE_M>();
    mma<T, Sum, kM, kN>(left_half, right_half, c, initialise && begin == 0, size);
    SetFlag<HardEvent::M_MTE1>(half);
  }
  WaitFlag<HardEvent::M_MTE1>(0);
  WaitFlag<HardEvent::M_MTE1>(1);
  SetFlag<HardEvent::MTE1_MTE2>(0);
  WaitFlag<HardEvent::MTE1_MTE2>(0);
  SetFlag<HardEvent::M_FIX>(0);
  WaitFlag<HardEvent::M_FIX>(0);
}

}  // namespace tl::ascend
