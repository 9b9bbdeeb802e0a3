// Programs of the cube core of which the simulator must find nothing, or exactly one thing, wrong. Each computes
// a a^T + a^T a of a 32 x 32 matrix of bfloat16 on one block, or stops where its fault is.

#include "tl_templates/ascend/common.h"

#include <gdn_ascend_tile.hpp>

using namespace AscendC;
using namespace Catlass;

namespace {

constexpr int kSize = 32;
constexpr int kElements = kSize * kSize;

struct Cube {
  TPipe pipe;
  TBuf<TPosition::A1> l1;
  TBuf<TPosition::A2> l0a;
  TBuf<TPosition::B2> l0b;
  TBuf<TPosition::CO1> l0c;
  TBuf<TPosition::VECCALC> ub;
  GlobalTensor<bfloat16_t> in;
  GlobalTensor<float> out;
  LocalTensor<bfloat16_t> a, left, right;
  LocalTensor<float> sum, vector;

  Cube(bfloat16_t* from, float* to) {
    pipe.InitBuffer(l1, 524032);
    pipe.InitBuffer(l0a, 65536);
    pipe.InitBuffer(l0b, 65536);
    pipe.InitBuffer(l0c, 131072);
    pipe.InitBuffer(ub, 196352);
    in.SetGlobalBuffer(from);
    out.SetGlobalBuffer(to);
    a = l1.GetWithOffset<bfloat16_t>(kElements, 0);
    left = l0a.GetWithOffset<bfloat16_t>(kElements, 0);
    right = l0b.GetWithOffset<bfloat16_t>(kElements, 0);
    sum = l0c.GetWithOffset<float>(kElements, 0);
    vector = ub.GetWithOffset<float>(kElements, 0);
  }

  void load(int rows = 0) { tl::ascend::copy_gm_to_l1<bfloat16_t, kSize, kSize>(a, in, kSize, rows, 0, true); }
  void operands() {
    tl::ascend::copy_l1_to_l0a<bfloat16_t, kSize, kSize>(left, a, kSize, kSize);
    tl::ascend::copy_l1_to_l0b<bfloat16_t, kSize, kSize, true>(right, a, kSize, kSize);
  }
  void multiply(bool initialise = true) {
    tl::ascend::mma<bfloat16_t, float, kSize, kSize>(left, right, sum, initialise, kSize);
  }
  void product(bool initialise = true) {
    tl::ascend::gemm_v0<bfloat16_t, float, kSize, kSize, kSize, false, true>(a, a, sum, l0a, l0b, initialise);
  }
  void transposed_product(bool initialise) {
    tl::ascend::gemm_v0<bfloat16_t, float, kSize, kSize, kSize, true, false>(a, a, sum, l0a, l0b, initialise);
  }
  void keep() { gdn::ascend::device::copy_l0c_to_l1<bfloat16_t>(a, sum, kSize, kSize, kSize); }
  void store() { tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, kSize, kSize>(out, sum, kSize, 0, 0); }
};

template <HardEvent kEvent>
void order(int number = 1) {
  SetFlag<kEvent>(number);
  WaitFlag<kEvent>(number);
}

template <class Program>
void run(bfloat16_t* in, float* out, Program&& program) {
  simulator::launch(1, [&] {
    Cube cube(in, out);
    program(cube);
  });
}

template <class Program>
void run_on_cube(bfloat16_t* in, float* out, Program&& program) {
  run(in, out, [&](Cube& m) {
    if (ASCEND_IS_AIC) program(m);
  });
}

// [48, 320] times [320, 80].
template <bool kTransposed>
void run_pieces(bfloat16_t* a, bfloat16_t* b, float* out) {
  constexpr int kM = 48, kN = 80, kK = 320;
  run_on_cube(a, out, [b](Cube& m) {
    GlobalTensor<bfloat16_t> from;
    from.SetGlobalBuffer(b);
    const LocalTensor<bfloat16_t> left = m.l1.GetWithOffset<bfloat16_t>(kM * kK, 0);
    const LocalTensor<bfloat16_t> right = m.l1.GetWithOffset<bfloat16_t>(kK * kN, kM * kK * 2);
    const LocalTensor<float> sum = m.l0c.GetWithOffset<float>(kM * kN, 0);
    if constexpr (kTransposed) {
      tl::ascend::copy_gm_to_l1<bfloat16_t, kK, kM>(left, m.in, kM, 0, 0, true);
      tl::ascend::copy_gm_to_l1<bfloat16_t, kN, kK>(right, from, kK, 0, 0, true);
    } else {
      tl::ascend::copy_gm_to_l1<bfloat16_t, kM, kK>(left, m.in, kK, 0, 0, true);
      tl::ascend::copy_gm_to_l1<bfloat16_t, kK, kN>(right, from, kN, 0, 0, true);
    }
    tl::ascend::gemm_v0<bfloat16_t, float, kM, kN, kK, kTransposed, kTransposed>(left, right, sum, m.l0a, m.l0b, true);
    tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, kM, kN>(m.out, sum, kN, 0, 0);
  });
}

bool first_vector_core() { return simulator::core().number == 1; }

void both_products(Cube& m) {
  m.load();
  m.product();
  m.transposed_product(false);
  m.store();
}

}  // namespace

extern "C" {

void cube_good(bfloat16_t* in, float* out) { run_on_cube(in, out, both_products); }

void cube_good_pipe_by_pipe(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    order<HardEvent::MTE2_MTE1>();
    m.operands();
    order<HardEvent::MTE1_M>();
    m.multiply();
    order<HardEvent::M_MTE1>();
    tl::ascend::copy_l1_to_l0a<bfloat16_t, kSize, kSize, true>(m.left, m.a, kSize, kSize);
    tl::ascend::copy_l1_to_l0b<bfloat16_t, kSize, kSize>(m.right, m.a, kSize, kSize);
    order<HardEvent::MTE1_M>();
    PipeBarrier<PIPE_M>();
    m.multiply(false);
    order<HardEvent::M_FIX>();
    m.store();
  });
}

// The sum goes through a vector core, which adds 0, and back into the same memory.
void cube_good_with_vector_core(bfloat16_t* in, float* out) {
  run(in, out, [](Cube& m) {
    if (ASCEND_IS_AIC) {
      both_products(m);
      CrossCoreSetFlag<2, PIPE_FIX>(3);
      return;
    }
    CrossCoreWaitFlag(3);
    if (!first_vector_core()) return;
    tl::ascend::copy_gm_to_ub<float, kElements, 1>(m.vector, m.out, kElements, 1, kElements, 0.0f);
    order<HardEvent::MTE2_V>();
    Adds(m.vector, m.vector, 0.0f, kElements);
    order<HardEvent::V_MTE3>();
    tl::ascend::copy_ub_to_gm<float, kElements, 1>(m.out, m.vector, kElements, 1, kElements);
  });
}

// Rows past the 20th count as zeros.
void cube_good_with_a_tail(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load(20);
    m.product();
    m.transposed_product(false);
    m.store();
  });
}

// The product, rounded, is the next operand.
void cube_kept(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    m.product();
    m.keep();
    order<HardEvent::FIX_MTE1>();
    m.product();
    m.store();
  });
}

void cube_pieces_plain(bfloat16_t* a, bfloat16_t* b, float* out) { run_pieces<false>(a, b, out); }

void cube_pieces_transposed(bfloat16_t* a, bfloat16_t* b, float* out) { run_pieces<true>(a, b, out); }

void cube_operands_before_the_load_is_done(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    m.operands();
  });
}

void cube_product_before_its_operands(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    order<HardEvent::MTE2_MTE1>();
    m.operands();
    m.multiply();
  });
}

void cube_store_before_the_product_is_done(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    order<HardEvent::MTE2_MTE1>();
    m.operands();
    order<HardEvent::MTE1_M>();
    m.multiply();
    m.store();
  });
}

void cube_load_over_an_operand_in_use(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    order<HardEvent::MTE2_MTE1>();
    m.operands();
    m.load();
  });
}

void cube_operand_over_one_in_use(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    order<HardEvent::MTE2_MTE1>();
    m.operands();
    order<HardEvent::MTE1_M>();
    m.multiply();
    PipeBarrier<PIPE_MTE1>();
    m.operands();
  });
}

void cube_product_over_a_sum_being_stored(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    m.product();
    m.store();
    PipeBarrier<PIPE_M>();
    m.multiply();
  });
}

void cube_sums_without_barrier(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    m.product();
    m.multiply(false);
  });
}

void cube_loads_what_it_has_just_stored(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [out](Cube& m) {
    m.load();
    m.product();
    m.store();
    GlobalTensor<bfloat16_t> stored;
    stored.SetGlobalBuffer(reinterpret_cast<bfloat16_t*>(out));
    tl::ascend::copy_gm_to_l1<bfloat16_t, kSize, kSize>(m.a, stored, kSize, 0, 0, true);
  });
}

void cube_vector_core_does_not_wait(bfloat16_t* in, float* out) {
  run(in, out, [](Cube& m) {
    if (ASCEND_IS_AIC) {
      both_products(m);
      return;
    }
    if (!first_vector_core()) return;
    tl::ascend::copy_gm_to_ub<float, kElements, 1>(m.vector, m.out, kElements, 1, kElements, 0.0f);
  });
}

void cube_flag_of_the_wrong_pipe(bfloat16_t* in, float* out) {
  run(in, out, [](Cube& m) {
    if (ASCEND_IS_AIC) {
      both_products(m);
      CrossCoreSetFlag<2, PIPE_M>(3);
      return;
    }
    CrossCoreWaitFlag(3);
    if (!first_vector_core()) return;
    tl::ascend::copy_gm_to_ub<float, kElements, 1>(m.vector, m.out, kElements, 1, kElements, 0.0f);
  });
}

void cube_waits_for_cores_that_wait(bfloat16_t* in, float* out) {
  run(in, out, [](Cube&) {
    CrossCoreWaitFlag(3);
    CrossCoreSetFlag<2, PIPE_S>(3);
  });
}

void cube_reads_past_global_memory(bfloat16_t* in, float* out) {
  run_on_cube(in, out,
              [](Cube& m) { tl::ascend::copy_gm_to_l1<bfloat16_t, kSize, kSize>(m.a, m.in[16], kSize, 0, 0, true); });
}

void cube_stores_past_global_memory(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    m.product();
    tl::ascend::copy_l0c_to_gm<float, float, layout::RowMajor, kSize, kSize>(m.out, m.sum, kSize + 1, 0, 0);
  });
}

void cube_operand_larger_than_its_buffer(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) { tl::ascend::copy_gm_to_l1<bfloat16_t, 64, 16>(m.a[16], m.in, 16, 0, 0, true); });
}

void cube_operand_larger_than_l0a(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    const LocalTensor<bfloat16_t> a = m.l1.GetWithOffset<bfloat16_t>(512 * 128, 0);
    InitConstValue(a, {1, 512 * 128 * 2 / 32, 0, 0});
    const LocalTensor<float> sum = m.l0c.GetWithOffset<float>(512 * 16, 0);
    tl::ascend::gemm_v0<bfloat16_t, float, 512, 16, 128, false, false>(a, a, sum, m.l0a, m.l0b, true);
  });
}

void cube_sum_larger_than_l0c(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) { m.l0c.GetWithOffset<float>(256 * 256, 0); });
}

void cube_does_a_vector_instruction(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) { Duplicate(m.vector, 0.0f, 64); });
}

void cube_product_on_a_vector_core(bfloat16_t* in, float* out) {
  run(in, out, [](Cube& m) {
    if (first_vector_core()) m.multiply();
  });
}

void cube_operand_before_it_is_kept(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    m.product();
    m.keep();
    m.operands();
  });
}

void cube_kept_before_the_product_is_done(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    m.product();
    m.multiply();
    m.keep();
  });
}

void cube_kept_in_another_type(bfloat16_t* in, float* out) {
  run_on_cube(in, out, [](Cube& m) {
    m.load();
    m.product();
    FixpipeParamsV220 shape;
    shape.nSize = shape.mSize = shape.srcStride = shape.dstStride = kSize;
    shape.quantPre = QuantMode_t::F322F16;
    Fixpipe<bfloat16_t, float, CFG_NZ>(m.a, m.sum, shape);
  });
}
}
