// Tensor-core products on tiles in shared memory, and the moves between their register fragments and such tiles.
//
// A tile has rows of 64 16-bit elements, 128 bytes, whose eight 16-byte pieces are permuted: piece p of row r lies at
// p ^ (r % 8), as the copy engine writes them with its 128-byte swizzle. Tiles start at multiples of 1,024 bytes; 128
// columns are two tiles side by side, `kTileBytes` apart.
//
// Fragments of a warp group (4 warps): warp w holds rows 16 w .. 16 w + 15 of a product with N columns. Lane l holds,
// for each block of 8 columns, elements (l / 4, 2 (l % 4)), the next column, and the same two in row l / 4 + 8. Packed
// in pairs to 16 bits, two blocks of 8 columns are a left operand for 16 of the inner dimension.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/sm90_async.cuh"

namespace gdn::sm90 {

constexpr int kTileRows = 64;
constexpr int kTileBytes = kTileRows * 128;

// How the right operand [inner, N] of a product lies in its tiles.
enum class Right {
  rows_of_n,      // a row of the tile is one column of the operand: the inner dimension is contiguous
  rows_of_inner,  // a row of the tile is one row of the operand: N is contiguous
};

namespace detail {
constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
constexpr uint64_t kEightRows = 1024;

// NOTE: hides that tiles are aligned, else a step is added to one word of a descriptor by a logical instruction, and
// the other word copied, for every product: twice the instructions.
__device__ inline uint64_t address_field(SharedAddress tile) {
  uint32_t field;
  asm("mov.b32 %0, %1;" : "=r"(field) : "r"((tile & 0x3ffff) >> 4));
  return field;
}
}  // namespace detail

// The operand whose inner dimension is contiguous, at element `inner` of it (a multiple of 16 below 64 in a tile).
__device__ inline uint64_t rows_descriptor(SharedAddress tile) {
  return detail::kSwizzle128 | (detail::kEightRows >> 4) << 32 | uint64_t{1} << 16 | detail::address_field(tile);
}

// The operand whose N is contiguous, from inner row 0 on.
__device__ inline uint64_t columns_descriptor(SharedAddress tile) {
  return detail::kSwizzle128 | (detail::kEightRows >> 4) << 32 | uint64_t{kTileBytes >> 4} << 16 |
         detail::address_field(tile);
}

// What to add to a descriptor for step `i` of 16 along the inner dimension.
__device__ constexpr uint64_t rows_step(int i) { return (i / 4 * kTileBytes + i % 4 * 32) >> 4; }
__device__ constexpr uint64_t columns_step(int i) { return (i * 16 * 128) >> 4; }

namespace detail {
// The compiler neither moves writes of these registers behind this point nor reads before it.
template <int... kSizes>
__device__ inline void pin(float (&... registers)[kSizes]) {
  const auto pin_one = [](auto& array) {
#pragma unroll
    for (float& x : array) asm volatile("" : "+f"(x)::"memory");
  };
  (pin_one(registers), ...);
}
}  // namespace detail

// NOTE: right before the first product, which then starts at zero by itself.
template <int kSize>
__device__ inline void clear(float (&results)[kSize]) {
#pragma unroll
  for (float& x : results) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(x));
}

// Registers of products in flight must not be touched: `results` are those of all products up to the wait for them.
template <int... kSizes>
__device__ inline void products_begin(float (&... results)[kSizes]) {
  detail::pin(results...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `kPending` committed groups are unfinished; `finished` may then be read.
template <int kPending, int... kSizes>
__device__ inline void products_wait(float (&... finished)[kSizes]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  detail::pin(finished...);
}

// NOTE: asm operands cannot be looped over. A product's registers are written once here, its instruction once a shape.
#define GDN_PLACES_32                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GDN_PLACES_64                                                                \
  GDN_PLACES_32                                                                      \
  ", "                                                                               \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GDN_8(d, i)                                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define GDN_32(d, i) GDN_8(d, i), GDN_8(d, i + 8), GDN_8(d, i + 16), GDN_8(d, i + 24)
#define GDN_64(d, i) GDN_32(d, i), GDN_32(d, i + 32)

// `left`, `right` and `transposed` are the numbers of these operands.
#define GDN_PRODUCT(shape, type, places, left, right, transposed)                               \
  "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" places "}, " left ", " right \
  ", 1, 1, 1, " transposed ";"

// NOTE: the same for all operands, so that adding a step takes one instruction and not three with a carry.
#define GDN_DESCRIPTOR_HIGH "0x40000040"
#define GDN_PRODUCT_OF_REGISTERS(shape, type, places, left, right, transposed) \
  "{\n.reg .b64 right;\nmov.b64 right, {" right ", " GDN_DESCRIPTOR_HIGH       \
  "};\n" GDN_PRODUCT(shape, type, places, left, "right", transposed) "\n}"

// d [64, 64] += left [64, 16] right [16, 64].
template <class T, Right kRight>
__device__ inline void product(float (&d)[32], const uint32_t* a, uint64_t right) {
  constexpr int kTransposed = kRight == Right::rows_of_inner;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm volatile(GDN_PRODUCT_OF_REGISTERS("m64n64k16", "bf16", GDN_PLACES_32, "{%32, %33, %34, %35}", "%36", "%37")
                 : GDN_32(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(static_cast<uint32_t>(right)), "n"(kTransposed));
  else
    asm volatile(GDN_PRODUCT_OF_REGISTERS("m64n64k16", "f16", GDN_PLACES_32, "{%32, %33, %34, %35}", "%36", "%37")
                 : GDN_32(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(static_cast<uint32_t>(right)), "n"(kTransposed));
}

// d [64, 128] += left [64, 16] right [16, 128].
template <class T, Right kRight>
__device__ inline void product(float (&d)[64], const uint32_t* a, uint64_t right) {
  constexpr int kTransposed = kRight == Right::rows_of_inner;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm volatile(GDN_PRODUCT_OF_REGISTERS("m64n128k16", "bf16", GDN_PLACES_64, "{%64, %65, %66, %67}", "%68", "%69")
                 : GDN_64(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(static_cast<uint32_t>(right)), "n"(kTransposed));
  else
    asm volatile(GDN_PRODUCT_OF_REGISTERS("m64n128k16", "f16", GDN_PLACES_64, "{%64, %65, %66, %67}", "%68", "%69")
                 : GDN_64(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(static_cast<uint32_t>(right)), "n"(kTransposed));
}

// The same for N = 64 with a left operand in shared memory whose inner dimension is contiguous.
template <class T, Right kRight>
__device__ inline void product(float (&d)[32], uint64_t left, uint64_t right) {
  constexpr int kTransposed = kRight == Right::rows_of_inner;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm volatile(GDN_PRODUCT("m64n64k16", "bf16", GDN_PLACES_32, "%32", "%33", "0, %34")
                 : GDN_32(d, 0)
                 : "l"(left), "l"(right), "n"(kTransposed));
  else
    asm volatile(GDN_PRODUCT("m64n64k16", "f16", GDN_PLACES_32, "%32", "%33", "0, %34")
                 : GDN_32(d, 0)
                 : "l"(left), "l"(right), "n"(kTransposed));
}

#undef GDN_PLACES_32
#undef GDN_PLACES_64
#undef GDN_8
#undef GDN_32
#undef GDN_64
#undef GDN_PRODUCT
#undef GDN_PRODUCT_OF_REGISTERS
#undef GDN_DESCRIPTOR_HIGH

template <class T>
__device__ inline uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

template <class T>
__device__ inline float2 unpack(uint32_t pair) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
  else
    return __half22float2(reinterpret_cast<const __half2&>(pair));
}

// The left operand of 16 columns: eight fragment values, in pairs.
template <class T>
__device__ inline void pack_operand(uint32_t* operand, const float* fragment) {
#pragma unroll
  for (int i = 0; i < 4; ++i) operand[i] = pack<T>(fragment[2 * i], fragment[2 * i + 1]);
}

// And a second operand of what the first lacks.
template <class T>
__device__ inline void pack_operand_and_rest(uint32_t* operand, uint32_t* rest, const float* fragment) {
  pack_operand<T>(operand, fragment);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 kept = unpack<T>(operand[i]);
    rest[i] = pack<T>(fragment[2 * i] - kept.x, fragment[2 * i + 1] - kept.y);
  }
}

// Address of the 16-byte piece `piece` of row `row` of a tile.
__device__ inline SharedAddress tile_piece(SharedAddress tile, int row, int piece) {
  return tile + row * 128 + ((piece ^ (row & 7)) << 4);
}

// Four 8 x 8 blocks, one register each; lane l gives the address of row l % 8 of block l / 8.
__device__ inline void store_blocks(SharedAddress row, const uint32_t* blocks) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(blocks[0]),
               "r"(blocks[1]), "r"(blocks[2]), "r"(blocks[3])
               : "memory");
}

__device__ inline void store_blocks_transposed(SharedAddress row, const uint32_t* blocks) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(blocks[0]),
               "r"(blocks[1]), "r"(blocks[2]), "r"(blocks[3])
               : "memory");
}

__device__ inline void load_blocks(uint32_t (&blocks)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
               : "r"(row)
               : "memory");
}

__device__ inline void load_blocks_transposed(uint32_t (&blocks)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
               : "r"(row)
               : "memory");
}

// d [16, 8] = a [16, 16] b [16, 8] + c by one warp, in float16.
__device__ inline void warp_product(float* d, const uint32_t* a, const uint32_t* b, const float* c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, "
      "%12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ inline float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace gdn::sm90
