#pragma once

// The part of Ascend C that the generated kernels use, on the machine of machine.hpp. Written from the documented
// behaviour of each instruction.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <source_location>
#include <type_traits>
#include <vector>

#include "machine.hpp"

#define __global__
#define __aicore__
#define __gm__
#define ASCEND_IS_AIV (simulator::core().number > 0)
#define ASCEND_IS_AIC (simulator::core().number == 0)
#define KERNEL_TASK_TYPE_DEFAULT(type) static_assert(true)

using GM_ADDR = uint8_t*;

struct bfloat16_t {
  uint16_t bits = 0;
  bfloat16_t() = default;
  explicit bfloat16_t(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    bits = std::isnan(value) ? 0x7fff : static_cast<uint16_t>((word + 0x7fff + ((word >> 16) & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

struct half {
  _Float16 value = 0;
  half() = default;
  explicit half(float from) : value(static_cast<_Float16>(from)) {}
  explicit operator float() const { return static_cast<float>(value); }
};

enum class QuantMode_t { NoQuant, F322F16, F322BF16 };

enum pipe_t { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX, PIPE_ALL };
static_assert(PIPE_FIX == static_cast<int>(simulator::kFIX));

namespace AscendC {

using simulator::Instruction;
using simulator::report;

enum class TPosition { A1, A2, B2, CO1, VECCALC };

constexpr int event(int producer, int consumer) { return producer * 8 + consumer; }

enum class HardEvent {
  MTE2_V = event(PIPE_MTE2, PIPE_V),
  V_MTE2 = event(PIPE_V, PIPE_MTE2),
  V_MTE3 = event(PIPE_V, PIPE_MTE3),
  MTE3_V = event(PIPE_MTE3, PIPE_V),
  MTE2_MTE3 = event(PIPE_MTE2, PIPE_MTE3),
  MTE3_MTE2 = event(PIPE_MTE3, PIPE_MTE2),
  V_S = event(PIPE_V, PIPE_S),
  S_V = event(PIPE_S, PIPE_V),
  MTE2_S = event(PIPE_MTE2, PIPE_S),
  S_MTE2 = event(PIPE_S, PIPE_MTE2),
  MTE3_S = event(PIPE_MTE3, PIPE_S),
  S_MTE3 = event(PIPE_S, PIPE_MTE3),
  MTE2_MTE1 = event(PIPE_MTE2, PIPE_MTE1),
  MTE1_MTE2 = event(PIPE_MTE1, PIPE_MTE2),
  MTE1_M = event(PIPE_MTE1, PIPE_M),
  M_MTE1 = event(PIPE_M, PIPE_MTE1),
  M_FIX = event(PIPE_M, PIPE_FIX),
  FIX_M = event(PIPE_FIX, PIPE_M),
  MTE2_M = event(PIPE_MTE2, PIPE_M),
  M_MTE2 = event(PIPE_M, PIPE_MTE2),
  FIX_MTE2 = event(PIPE_FIX, PIPE_MTE2),
  MTE2_FIX = event(PIPE_MTE2, PIPE_FIX),
  FIX_MTE1 = event(PIPE_FIX, PIPE_MTE1),
  MTE1_FIX = event(PIPE_MTE1, PIPE_FIX),
};

constexpr simulator::Pipe producer(HardEvent event) {
  return static_cast<simulator::Pipe>(static_cast<int>(event) / 8);
}
constexpr simulator::Pipe consumer(HardEvent event) {
  return static_cast<simulator::Pipe>(static_cast<int>(event) % 8);
}

using Where = std::source_location;  // of a synchronisation, for tests that leave it out

template <HardEvent kEvent>
void SetFlag(int number, Where where = Where::current()) {
  if (simulator::left_out(where)) return;
  simulator::set_event(producer(kEvent), consumer(kEvent), number);
}

template <HardEvent kEvent>
void WaitFlag(int number, Where where = Where::current()) {
  if (simulator::left_out(where)) return;
  simulator::wait_event(producer(kEvent), consumer(kEvent), number);
}

template <pipe_t kPipe>
void PipeBarrier(Where where = Where::current()) {
  if (simulator::left_out(where)) return;
  if constexpr (kPipe == PIPE_ALL)
    simulator::barrier_all();
  else
    simulator::barrier(static_cast<simulator::Pipe>(kPipe));
}

template <int kMode, pipe_t kPipe>
void CrossCoreSetFlag(int flag, Where where = Where::current()) {
  if (simulator::left_out(where)) return;
  static_assert(kMode == 2, "only flags between the cube core and the vector cores of a block");
  simulator::set_cross_flag(static_cast<simulator::Pipe>(kPipe), flag);
}

inline void CrossCoreWaitFlag(int flag, Where where = Where::current()) {
  if (!simulator::left_out(where)) simulator::wait_cross_flag(flag);
}

// Vector cores are numbered through all blocks.
inline int64_t GetBlockIdx() {
  const simulator::Core& core = simulator::core();
  return core.number == 0 ? core.block_number : core.block_number * 2 + core.number - 1;
}

inline int64_t GetSubBlockIdx() { return std::max(0, simulator::core().number - 1); }

// --- tensors -------------------------------------------------------------------------------------------------------

template <class T>
struct GlobalTensor {
  T* pointer = nullptr;
  void SetGlobalBuffer(T* begin) { pointer = begin; }
  GlobalTensor operator[](int64_t index) const { return {pointer + index}; }
  T GetValue(int64_t index) const {
    Instruction instruction(simulator::kS, "GlobalTensor::GetValue");
    return instruction.read_global(pointer + index, sizeof(T)) ? pointer[index] : T();
  }
};

// A slice of an on-chip memory: [begin, end) in bytes is the buffer it was made from.
template <class T>
struct LocalTensor {
  simulator::Memory* memory = nullptr;
  int64_t begin = 0, end = 0, offset = 0;

  LocalTensor operator[](int64_t index) const {
    LocalTensor slice = *this;
    slice.offset += index * static_cast<int64_t>(sizeof(T));
    return slice;
  }

  // Null, and reported, if `count` elements from here are not inside the buffer.
  T* elements(int64_t count, const char* instruction) const {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (offset < begin || offset + bytes > end || count < 0) {
      report(std::string("bounds: ") + instruction + " leaves its buffer in " + memory->name);
      return nullptr;
    }
    return reinterpret_cast<T*>(memory->bytes.data() + offset);
  }

  T* read(Instruction& instruction, int64_t count, const char* name) const {
    T* data = aligned(count, name);
    if (data) instruction.read(*memory, offset, count * sizeof(T));
    return data;
  }
  T* write(Instruction& instruction, int64_t count, const char* name) const {
    T* data = aligned(count, name);
    if (data) instruction.write(*memory, offset, count * sizeof(T));
    return data;
  }

  T GetValue(int64_t index) const {
    const LocalTensor element = (*this)[index];
    Instruction instruction(simulator::kS, "LocalTensor::GetValue");
    const T* data = element.elements(1, "LocalTensor::GetValue");
    if (data) instruction.read(*memory, element.offset, sizeof(T));
    return data ? *data : T();
  }

 private:
  T* aligned(int64_t count, const char* name) const {
    if (offset % 32 != 0) report(std::string("alignment: ") + name + " needs addresses of 32 bytes in " + memory->name);
    return elements(count, name);
  }
};

template <TPosition kPosition>
struct TBuf {
  simulator::Memory* memory = nullptr;
  int64_t bytes = 0;

  template <class T>
  LocalTensor<T> GetWithOffset(int64_t count, int64_t offset) {
    const int64_t end = offset + count * static_cast<int64_t>(sizeof(T));
    if (end > bytes) report(std::string("capacity: a buffer ends past ") + memory->name);
    return {memory, offset, std::min(end, bytes), offset};
  }
  template <class T>
  LocalTensor<T> Get() {
    return {memory, 0, bytes, 0};
  }
};

struct TPipe {
  template <TPosition kPosition>
  void InitBuffer(TBuf<kPosition>& buffer, int64_t bytes) {
    using enum simulator::MemoryKind;
    constexpr simulator::MemoryKind kind = kPosition == TPosition::A1    ? kL1
                                           : kPosition == TPosition::A2  ? kL0A
                                           : kPosition == TPosition::B2  ? kL0B
                                           : kPosition == TPosition::CO1 ? kL0C
                                                                         : kUB;
    buffer.memory = simulator::core().memories[kind].get();
    buffer.bytes = bytes;
    if (bytes > static_cast<int64_t>(simulator::kCapacity[kind]))
      report(std::string("capacity: ") + std::to_string(bytes) + " bytes do not fit into " + buffer.memory->name);
  }
  void Destroy() {}
};

// --- vector instructions -------------------------------------------------------------------------------------------

template <class T, class... Operands, class Function>
void elementwise(const char* name, int64_t count, const LocalTensor<T>& dst, Function&& function,
                 const Operands&... operands) {
  Instruction instruction(simulator::kV, name);
  const auto compute = [&](auto*... sources) {
    T* out = dst.write(instruction, count, name);
    if (!out || (... || !sources)) return;
    for (int64_t i = 0; i < count; ++i) out[i] = function(sources[i]...);
  };
  compute(operands.read(instruction, count, name)...);
}

template <class T>
inline constexpr bool kArithmetic = std::is_same_v<T, float> || std::is_same_v<T, int>;

#define BINARY(Name, expression)                                                                          \
  template <class T>                                                                                      \
    requires kArithmetic<T>                                                                               \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& a, const LocalTensor<T>& b, int64_t count) { \
    elementwise(#Name, count, dst, [](T x, T y) { return expression; }, a, b);                            \
  }
BINARY(Add, x + y)
BINARY(Sub, x - y)
BINARY(Mul, x* y)
BINARY(Div, x / y)
BINARY(Max, std::max(x, y))
BINARY(Min, std::min(x, y))
#undef BINARY

#define SCALAR(Name, expression)                                                                            \
  template <class T>                                                                                        \
    requires kArithmetic<T>                                                                                 \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& a, std::type_identity_t<T> y, int64_t count) { \
    elementwise(#Name, count, dst, [y](T x) { return expression; }, a);                                     \
  }
SCALAR(Adds, x + y)
SCALAR(Muls, x* y)
SCALAR(Maxs, std::max(x, y))
SCALAR(Mins, std::min(x, y))
#undef SCALAR

#define UNARY(Name, expression)                                                                 \
  inline void Name(const LocalTensor<float>& dst, const LocalTensor<float>& a, int64_t count) { \
    elementwise(#Name, count, dst, [](float x) { return expression; }, a);                      \
  }
UNARY(Exp, std::exp(x))
UNARY(Abs, std::fabs(x))
UNARY(Sqrt, std::sqrt(x))
#undef UNARY

inline void MulAddDst(const LocalTensor<float>& dst, const LocalTensor<float>& a, const LocalTensor<float>& b,
                      int64_t count) {
  elementwise("MulAddDst", count, dst, [](float x, float y, float sum) { return x * y + sum; }, a, b, dst);
}

template <class T>
void Duplicate(const LocalTensor<T>& dst, T value, int64_t count) {
  elementwise("Duplicate", count, dst, [value] { return value; });
}

template <class T>
void CreateVecIndex(const LocalTensor<T>& dst, T first, int64_t count) {
  T next = first;
  elementwise("CreateVecIndex", count, dst, [&next] { return next++; });
}

enum class RoundMode { CAST_NONE, CAST_RINT };

template <class To, class From>
void Cast(const LocalTensor<To>& dst, const LocalTensor<From>& src, RoundMode mode, int64_t count) {
  constexpr bool widens = std::is_same_v<To, float>;
  static_assert(widens != std::is_same_v<From, float>, "a cast is between float and a 16-bit type");
  if ((mode == RoundMode::CAST_NONE) != widens) report("cast: CAST_NONE widens, CAST_RINT narrows");
  elementwise("Cast", count, dst, [](From x) { return To(static_cast<float>(x)); }, src);
}

// Copies whole blocks of 32 bytes inside the unified buffer.
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, int64_t count) {
  if (count * sizeof(T) % 32 != 0) report("alignment: DataCopy moves multiples of 32 bytes");
  elementwise("DataCopy", count, dst, [](T x) { return x; }, src);
}

template <class T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<int>& byte_offsets,
            uint32_t base_bytes, int64_t count) {
  Instruction instruction(simulator::kV, "Gather");
  const int* offsets = byte_offsets.read(instruction, count, "Gather");
  T* out = dst.write(instruction, count, "Gather");
  if (!offsets || !out) return;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bytes = static_cast<int64_t>(base_bytes) + offsets[i];
    if (bytes % sizeof(T) != 0) report("alignment: Gather takes whole elements");
    const LocalTensor<T> element = src[bytes / static_cast<int64_t>(sizeof(T))];
    const T* value = element.elements(1, "Gather");
    if (!value) return;
    instruction.read(*src.memory, element.offset, sizeof(T));
    out[i] = *value;
  }
}

inline void ShiftRight(const LocalTensor<int>& dst, const LocalTensor<int>& src, int bits, int64_t count) {
  elementwise("ShiftRight", count, dst, [bits](int x) { return x >> bits; }, src);
}

struct BrcbRepeatParams {
  int dst_block_stride, dst_repeat_stride;
};

// Repeats each of 8 elements a repeat through a block of 32 bytes.
inline void Brcb(const LocalTensor<float>& dst, const LocalTensor<float>& src, int repeats,
                 const BrcbRepeatParams& stride) {
  if (repeats < 1 || repeats > 255) report("repeat: Brcb repeats 1 to 255 times");
  if (stride.dst_block_stride != 1 || stride.dst_repeat_stride != 8) report("repeat: only a dense Brcb is modelled");
  Instruction instruction(simulator::kV, "Brcb");
  const float* in = src.read(instruction, repeats * 8, "Brcb");
  float* out = dst.write(instruction, repeats * 64, "Brcb");
  if (!in || !out) return;
  for (int64_t i = 0; i < repeats * 64; ++i) out[i] = in[i / 8];
}

struct BinaryRepeatParams {
  int dst_block, a_block, b_block, dst_repeat, a_repeat, b_repeat;  // strides in blocks of 32 bytes
};

// 64 floats a repeat, in 8 blocks.
template <class Function>
void elementwise_repeats(const char* name, const LocalTensor<float>& dst, const LocalTensor<float>& a,
                         const LocalTensor<float>& b, const uint64_t (&mask)[2], int repeats,
                         const BinaryRepeatParams& stride, Function&& function) {
  if (repeats < 1 || repeats > 255) report(std::string("repeat: ") + name + " repeats 1 to 255 times");
  if (mask[0] != ~uint64_t{0}) report("repeat: only the full mask is modelled");
  const auto [dst_block, a_block, b_block, dst_repeat, a_repeat, b_repeat] = stride;
  if (std::max({dst_block, a_block, b_block, dst_repeat, a_repeat, b_repeat}) > 255)
    report(std::string("repeat: strides of ") + name + " are at most 255 blocks");
  Instruction instruction(simulator::kV, name);
  for (int64_t r = 0; r < repeats; ++r)
    for (int64_t block = 0; block < 8; ++block) {
      const float* x = a[8 * (r * a_repeat + block * a_block)].read(instruction, 8, name);
      const float* y = b[8 * (r * b_repeat + block * b_block)].read(instruction, 8, name);
      float* out = dst[8 * (r * dst_repeat + block * dst_block)].write(instruction, 8, name);
      if (!x || !y || !out) return;
      for (int i = 0; i < 8; ++i) out[i] = function(x[i], y[i]);
    }
}

inline void Mul(const LocalTensor<float>& dst, const LocalTensor<float>& a, const LocalTensor<float>& b,
                const uint64_t (&mask)[2], int repeats, const BinaryRepeatParams& stride) {
  elementwise_repeats("Mul", dst, a, b, mask, repeats, stride, [](float x, float y) { return x * y; });
}

inline void Sub(const LocalTensor<float>& dst, const LocalTensor<float>& a, const LocalTensor<float>& b,
                const uint64_t (&mask)[2], int repeats, const BinaryRepeatParams& stride) {
  elementwise_repeats("Sub", dst, a, b, mask, repeats, stride, [](float x, float y) { return x - y; });
}

// Sums `mask` elements a repeat; the sums lie dst_stride elements apart, the repeats src_repeat_stride blocks.
inline void WholeReduceSum(const LocalTensor<float>& dst, const LocalTensor<float>& src, int mask, int repeats,
                           int dst_stride, int src_block_stride, int src_repeat_stride) {
  if (repeats < 0 || repeats > 255) report("repeat: WholeReduceSum repeats at most 255 times");
  if (mask < 1 || mask > 64) report("repeat: WholeReduceSum sums 1..64 elements");
  if (src_block_stride != 1) report("repeat: only a block stride of 1 is modelled");
  Instruction instruction(simulator::kV, "WholeReduceSum");
  float* out = dst.write(instruction, static_cast<int64_t>(repeats - 1) * dst_stride + 1, "WholeReduceSum");
  if (!out) return;
  for (int64_t r = 0; r < repeats; ++r) {
    const float* in = src[r * src_repeat_stride * 8].read(instruction, mask, "WholeReduceSum");
    if (!in) return;
    float tree[64] = {};
    std::copy_n(in, mask, tree);
    for (int width = 32; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) tree[i] += tree[i + width];
    out[r * dst_stride] = tree[0];
  }
}

// --- copies between global memory and the unified buffer ------------------------------------------------------------

struct DataCopyExtParams {
  int64_t rows, row_bytes, src_gap, dst_gap;
  DataCopyExtParams(uint32_t rows, uint32_t row_bytes, uint32_t src_gap, uint32_t dst_gap, int)
      : rows(rows), row_bytes(row_bytes), src_gap(src_gap), dst_gap(dst_gap) {
    if (rows < 1 || rows > 4095) report("repeat: DataCopyPad moves 1..4095 rows");
    if (row_bytes < 1 || row_bytes >= (1u << 21)) report("repeat: DataCopyPad moves rows of 1 byte to 2 MiB");
  }
};

inline int64_t whole_blocks(int64_t bytes) { return (bytes + 31) / 32 * 32; }

// Rows in the unified buffer start at blocks of 32 bytes; the gap there counts blocks, that in global memory bytes.
template <class T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& shape, T pad) {
  Instruction instruction(simulator::kMTE2, "DataCopyPad");
  const int64_t count = shape.row_bytes / static_cast<int64_t>(sizeof(T));
  const auto* from = reinterpret_cast<const uint8_t*>(src.pointer);
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t pitch = whole_blocks(shape.row_bytes) + 32 * shape.dst_gap;
    const int64_t padded = whole_blocks(shape.row_bytes) / static_cast<int64_t>(sizeof(T));
    T* out = dst[row * pitch / static_cast<int64_t>(sizeof(T))].write(instruction, padded, "DataCopyPad");
    if (!out || !instruction.read_global(from, shape.row_bytes)) return;
    std::memcpy(out, from, shape.row_bytes);
    std::fill(out + count, out + padded, pad);
    from += shape.row_bytes + shape.src_gap;
  }
  simulator::count_bytes(simulator::kMTE2, shape.rows * shape.row_bytes);
}

template <class T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& shape) {
  Instruction instruction(simulator::kMTE3, "DataCopyPad");
  const int64_t count = shape.row_bytes / static_cast<int64_t>(sizeof(T));
  auto* to = reinterpret_cast<uint8_t*>(dst.pointer);
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t pitch = whole_blocks(shape.row_bytes) + 32 * shape.src_gap;
    const T* in = src[row * pitch / static_cast<int64_t>(sizeof(T))].read(instruction, count, "DataCopyPad");
    if (!in || !instruction.write_global(to, in, shape.row_bytes)) return;
    std::memcpy(to, in, shape.row_bytes);
    to += shape.row_bytes + shape.dst_gap;
  }
  simulator::count_bytes(simulator::kMTE3, shape.rows * shape.row_bytes);
}

// --- the cube core -------------------------------------------------------------------------------------------------
//
// Matrices of 16-bit elements lie in blocks of 16 x 16, the last dimension of a block contiguous. Between blocks:
//   L1   column by column of blocks, as does L0C with float32
//   L0A  row by row; a block is a row-major piece of the left operand
//   L0B  row by row; a block is a column-major piece of the right operand

inline constexpr int64_t kBlock = 16;

inline int64_t padded(int64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

// Where element (i, j) of a matrix with `rows` rows lies in L1 and L0C.
inline int64_t in_columns(int64_t rows, int64_t i, int64_t j) {
  return j / kBlock * padded(rows) * kBlock + i * kBlock + j % kBlock;
}
inline int64_t in_l0a(int64_t columns, int64_t i, int64_t j) {
  return i / kBlock * kBlock * padded(columns) + j / kBlock * kBlock * kBlock + i % kBlock * kBlock + j % kBlock;
}
inline int64_t in_l0b(int64_t columns, int64_t i, int64_t j) {
  return i / kBlock * kBlock * padded(columns) + j / kBlock * kBlock * kBlock + j % kBlock * kBlock + i % kBlock;
}

template <class T>
inline constexpr bool kOperand = std::is_same_v<T, bfloat16_t> || std::is_same_v<T, half>;

struct InitConstValueParams {
  int repeats, blocks, gap, value;
};

template <class T>
void InitConstValue(const LocalTensor<T>& dst, const InitConstValueParams& fill) {
  if (fill.repeats != 1 || fill.gap != 0) report("repeat: only one dense InitConstValue is modelled");
  if (fill.blocks < 1 || fill.blocks > 32767) report("repeat: InitConstValue fills 1..32767 blocks");
  Instruction instruction(simulator::kMTE2, "InitConstValue");
  const int64_t count = fill.blocks * 32 / static_cast<int64_t>(sizeof(T));
  if (T* out = dst.write(instruction, count, "InitConstValue"))
    std::fill_n(out, count, T(static_cast<float>(fill.value)));
}

struct Nd2NzParams {
  int64_t rows, columns, src_pitch, dst_rows;
};

// Global memory -> L1, from rows to blocks of 16 x 16.
template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const Nd2NzParams& shape) {
  static_assert(kOperand<T>, "operands of the cube core have 16 bits");
  if (shape.rows < 1 || shape.rows > 16384 || shape.columns < 1 || shape.columns > 65535)
    report("repeat: a copy into L1 has 1..16384 rows of 1..65535 elements");
  if (shape.dst_rows > 16384) report("repeat: blocks in L1 lie at most 16384 rows apart");
  Instruction instruction(simulator::kMTE2, "DataCopy into L1");
  for (int64_t i = 0; i < shape.rows; ++i) {
    const T* from = src.pointer + i * shape.src_pitch;
    if (!instruction.read_global(from, shape.columns * sizeof(T))) return;
    for (int64_t j = 0; j < shape.columns; j += kBlock) {
      const LocalTensor<T> block = dst[in_columns(shape.dst_rows, i, j)];
      T* out = block.write(instruction, kBlock, "DataCopy into L1");
      if (!out) return;
      const int64_t count = std::min(kBlock, shape.columns - j);
      std::copy_n(from + j, count, out);
      std::fill(out + count, out + kBlock, T());
    }
  }
  simulator::count_bytes(simulator::kMTE2, shape.rows * shape.columns * sizeof(T));
}

struct LoadDataParams {
  int64_t src_rows;       // of the matrix in L1
  int64_t rows, columns;  // of the operand
  bool transposed;        // the matrix in L1 is the operand's transpose
};

template <class T, class Place>
void load_operand(const char* name, const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadDataParams& shape,
                  Place&& place) {
  static_assert(kOperand<T>, "operands of the cube core have 16 bits");
  Instruction instruction(simulator::kMTE1, name);
  for (int64_t i = 0; i < shape.rows; i += shape.transposed ? kBlock : 1)
    for (int64_t j = 0; j < shape.columns; j += shape.transposed ? 1 : kBlock) {
      const LocalTensor<T> line =
          shape.transposed ? src[in_columns(shape.src_rows, j, i)] : src[in_columns(shape.src_rows, i, j)];
      if (!line.read(instruction, kBlock, name)) return;
    }
  T* out = dst.write(instruction, padded(shape.rows) * padded(shape.columns), name);
  if (!out) return;
  const T* in = reinterpret_cast<const T*>(src.memory->bytes.data() + src.offset);
  for (int64_t i = 0; i < padded(shape.rows); ++i)
    for (int64_t j = 0; j < padded(shape.columns); ++j)
      out[place(shape.columns, i, j)] =
          shape.transposed ? in[in_columns(shape.src_rows, j, i)] : in[in_columns(shape.src_rows, i, j)];
}

template <class T>
void LoadDataA(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadDataParams& shape) {
  load_operand("LoadData into L0A", dst, src, shape, in_l0a);
}

template <class T>
void LoadDataB(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadDataParams& shape) {
  load_operand("LoadData into L0B", dst, src, shape, in_l0b);
}

struct MmadParams {
  int64_t m, n, k;
  bool initialise;
};

// L0C = L0A L0B, or += if not `initialise`; products of 16-bit elements are summed in float32.
template <class T>
void Mmad(const LocalTensor<float>& dst, const LocalTensor<T>& a, const LocalTensor<T>& b, const MmadParams& shape) {
  static_assert(kOperand<T>, "operands of the cube core have 16 bits");
  const auto [m, n, k, initialise] = shape;
  if (std::min({m, n, k}) < 1 || std::max({m, n, k}) > 4095) report("repeat: sizes of Mmad are 1..4095");
  Instruction instruction(simulator::kM, "Mmad");
  const T* left = a.read(instruction, padded(m) * padded(k), "Mmad");
  const T* right = b.read(instruction, padded(k) * padded(n), "Mmad");
  if (!initialise && !dst.read(instruction, padded(m) * padded(n), "Mmad")) return;
  float* out = dst.write(instruction, padded(m) * padded(n), "Mmad");
  if (!left || !right || !out) return;
  std::vector<float> x(m * k), y(k * n), sum(m * n, 0.0f);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l) x[i * k + l] = static_cast<float>(left[in_l0a(k, i, l)]);
  for (int64_t l = 0; l < k; ++l)
    for (int64_t j = 0; j < n; ++j) y[l * n + j] = static_cast<float>(right[in_l0b(n, l, j)]);
  if (!initialise)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) sum[i * n + j] = out[in_columns(m, i, j)];
  simulator::multiply_add(x.data(), y.data(), sum.data(), m, n, k);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) out[in_columns(m, i, j)] = sum[i * n + j];
}

struct FixpipeParams {
  int64_t src_rows, rows, columns, dst_pitch;
};

// L0C -> global memory, from blocks to rows, rounded to nearest even where the element type narrows.
template <class To>
void Fixpipe(const GlobalTensor<To>& dst, const LocalTensor<float>& src, const FixpipeParams& shape) {
  if (shape.rows < 1 || shape.rows > 8192 || shape.columns < 1 || shape.columns > 4095)
    report("repeat: Fixpipe stores 1..8192 rows of 1..4095 elements");
  Instruction instruction(simulator::kFIX, "Fixpipe");
  std::vector<To> row(shape.columns);
  for (int64_t i = 0; i < shape.rows; ++i) {
    for (int64_t j = 0; j < shape.columns; j += kBlock) {
      const float* in = src[in_columns(shape.src_rows, i, j)].read(instruction, kBlock, "Fixpipe");
      if (!in) return;
      for (int64_t l = 0; l < std::min(kBlock, shape.columns - j); ++l) row[j + l] = To(in[l]);
    }
    To* to = dst.pointer + i * shape.dst_pitch;
    if (!instruction.write_global(to, row.data(), shape.columns * sizeof(To))) return;
    std::copy(row.begin(), row.end(), to);
  }
  simulator::count_bytes(simulator::kFIX, shape.rows * shape.columns * sizeof(To));
}

enum class FixpipeConfig { CFG_ROW_MAJOR, CFG_NZ };
using enum FixpipeConfig;

// Strides between columns of blocks: in the source in rows, in the destination in blocks of 32 bytes, as many.
struct FixpipeParamsV220 {
  uint16_t nSize = 0, mSize = 0, srcStride = 0;
  uint32_t dstStride = 0;
  QuantMode_t quantPre = QuantMode_t::NoQuant;
};

// L0C -> L1, which keeps the blocks and rounds to nearest even.
template <class To, class From, FixpipeConfig kConfig>
void Fixpipe(const LocalTensor<To>& dst, const LocalTensor<From>& src, const FixpipeParamsV220& shape) {
  static_assert(kConfig == CFG_NZ && kOperand<To> && std::is_same_v<From, float>, "L1 holds blocks of 16-bit elements");
  if (shape.mSize < 1 || shape.mSize > 8192 || shape.nSize < 1 || shape.nSize > 4095)
    report("repeat: Fixpipe stores 1..8192 rows of 1..4095 elements");
  if (shape.quantPre != (std::is_same_v<To, half> ? QuantMode_t::F322F16 : QuantMode_t::F322BF16))
    report("repeat: Fixpipe must round to the element type of its destination");
  if (shape.dstStride < shape.mSize || shape.srcStride < shape.mSize) report("repeat: blocks of Fixpipe overlap");
  Instruction instruction(simulator::kFIX, "Fixpipe into L1");
  for (int64_t j = 0; j < shape.nSize; j += kBlock)
    for (int64_t i = 0; i < shape.mSize; ++i) {
      const float* in = src[j * padded(shape.srcStride) + i * kBlock].read(instruction, kBlock, "Fixpipe into L1");
      To* out = dst[j * shape.dstStride + i * kBlock].write(instruction, kBlock, "Fixpipe into L1");
      if (!in || !out) return;
      for (int64_t l = 0; l < kBlock; ++l) out[l] = To(in[l]);
    }
}

}  // namespace AscendC
