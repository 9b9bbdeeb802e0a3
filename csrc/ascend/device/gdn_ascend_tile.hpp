#pragma once

// Copies that the lowering has no statement for. Included by generated device sources after the headers that they were
// lowered for.
namespace gdn::ascend::device {

// L0C -> L1, rounded to the element type there: a product becomes an operand without a way through global memory. Both
// lie in blocks of 16 x 16, column by column; the matrix in L1 has `dst_rows` rows.
template <class T>
__aicore__ inline void copy_l0c_to_l1(AscendC::LocalTensor<T> dst, AscendC::LocalTensor<float> src, uint32_t dst_rows,
                                      uint32_t rows, uint32_t columns) {
  AscendC::FixpipeParamsV220 shape;
  shape.nSize = columns;
  shape.mSize = rows;
  shape.srcStride = rows;
  shape.dstStride = dst_rows;
  shape.quantPre = std::is_same_v<T, half> ? QuantMode_t::F322F16 : QuantMode_t::F322BF16;
  AscendC::Fixpipe<T, float, AscendC::CFG_NZ>(dst, src, shape);
}

}  // namespace gdn::ascend::device
