// Programs of which the simulator must find nothing, or exactly one thing, wrong. Each copies 64 floats from `in` to
// `out` on one block.

#include "tl_templates/ascend/common.h"

using namespace AscendC;

namespace {

struct Buffers {
  GlobalTensor<float> in, out;
  LocalTensor<float> a, b;
};

template <class Program>
void run(float* in, float* out, Program&& program, uint32_t blocks = 1) {
  simulator::launch(blocks, [&] {
    TPipe pipe;
    TBuf<TPosition::VECCALC> ub;
    pipe.InitBuffer(ub, 196352);
    Buffers buffers;
    buffers.in.SetGlobalBuffer(in);
    buffers.out.SetGlobalBuffer(out);
    buffers.a = ub.GetWithOffset<float>(64, 0);
    buffers.b = ub.GetWithOffset<float>(64, 256);
    program(buffers);
  });
}

void load(const LocalTensor<float>& to, const GlobalTensor<float>& from) {
  tl::ascend::copy_gm_to_ub<float, 64, 1>(to, from, 64, 1, 64, 0.0f);
}

void store(const GlobalTensor<float>& to, const LocalTensor<float>& from) {
  tl::ascend::copy_ub_to_gm<float, 64, 1>(to, from, 64, 1, 64);
}

template <HardEvent kEvent>
void order(int number) {
  SetFlag<kEvent>(number);
  WaitFlag<kEvent>(number);
}

bool first_vector_core() { return simulator::core().number == 1; }

// in -> a -> b -> out, complete.
void good(const Buffers& m) {
  load(m.a, m.in);
  order<HardEvent::MTE2_V>(0);
  Adds(m.b, m.a, 0.0f, 64);
  PipeBarrier<PIPE_V>();
  Muls(m.b, m.b, 1.0f, 64);
  order<HardEvent::V_MTE3>(0);
  store(m.out, m.b);
}

}  // namespace

extern "C" {

void program_good(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (first_vector_core()) good(m);
  });
}

void program_good_without_arithmetic(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (!first_vector_core()) return;
    load(m.a, m.in);
    order<HardEvent::MTE2_MTE3>(3);
    store(m.out, m.a);
  });
}

void program_good_cross_core(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (ASCEND_IS_AIC) {
      CrossCoreSetFlag<2, PIPE_MTE2>(1);
      CrossCoreWaitFlag(2);
      return;
    }
    CrossCoreWaitFlag(1);
    if (first_vector_core()) good(m);
    CrossCoreSetFlag<2, PIPE_MTE3>(2);
  });
}

void program_arithmetic_before_the_load_is_done(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (!first_vector_core()) return;
    load(m.a, m.in);
    Adds(m.b, m.a, 0.0f, 64);
    order<HardEvent::V_MTE3>(0);
    store(m.out, m.b);
  });
}

void program_store_before_the_arithmetic_is_done(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (!first_vector_core()) return;
    load(m.a, m.in);
    order<HardEvent::MTE2_V>(0);
    Adds(m.b, m.a, 0.0f, 64);
    store(m.out, m.b);
  });
}

void program_load_over_what_is_still_read(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (!first_vector_core()) return;
    good(m);
    load(m.a, m.in);
  });
}

void program_vector_without_barrier(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (!first_vector_core()) return;
    load(m.a, m.in);
    order<HardEvent::MTE2_V>(0);
    Adds(m.b, m.a, 0.0f, 64);
    Muls(m.b, m.b, 1.0f, 64);
    order<HardEvent::V_MTE3>(0);
    store(m.out, m.b);
  });
}

void program_two_blocks_write_the_same(float* in, float* out) {
  run(
      in, out,
      [](const Buffers& m) {
        if (!first_vector_core()) return;
        Duplicate(m.b, static_cast<float>(simulator::core().block_number), 64);
        order<HardEvent::V_MTE3>(0);
        store(m.out, m.b);
      },
      2);
}

void program_scalar_reads_before_the_load_is_done(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (!first_vector_core()) return;
    load(m.a, m.in);
    const float first = m.a.GetValue(0);
    Duplicate(m.b, first, 64);
    order<HardEvent::V_MTE3>(0);
    store(m.out, m.b);
  });
}

void program_reads_past_global_memory(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (!first_vector_core()) return;
    load(m.a, m.in[8]);
    order<HardEvent::MTE2_MTE3>(0);
    store(m.out, m.a);
  });
}

void program_leaves_its_buffer(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (first_vector_core()) Duplicate(m.a[8], 0.0f, 64);
  });
}

void program_unaligned(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (first_vector_core()) Duplicate(m.a[1], 0.0f, 8);
  });
}

void program_buffer_past_the_memory(float* in, float* out) {
  run(in, out, [](const Buffers&) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> ub;
    pipe.InitBuffer(ub, 196352);
    ub.GetWithOffset<float>(64, 196352 - 128);
  });
}

void program_too_many_repeats(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (first_vector_core()) WholeReduceSum(m.a, m.b, 64, 256, 1, 1, 0);
  });
}

void program_wait_without_set(float* in, float* out) {
  run(in, out, [](const Buffers&) {
    if (first_vector_core()) WaitFlag<HardEvent::MTE2_V>(0);
  });
}

void program_set_twice(float* in, float* out) {
  run(in, out, [](const Buffers&) {
    if (!first_vector_core()) return;
    SetFlag<HardEvent::MTE2_V>(0);
    SetFlag<HardEvent::MTE2_V>(0);
    WaitFlag<HardEvent::MTE2_V>(0);
    WaitFlag<HardEvent::MTE2_V>(0);
  });
}

void program_flag_left_set(float* in, float* out) {
  run(in, out, [](const Buffers&) {
    if (first_vector_core()) SetFlag<HardEvent::MTE2_V>(0);
  });
}

void program_cross_flag_left_set(float* in, float* out) {
  run(in, out, [](const Buffers&) {
    if (ASCEND_IS_AIC) CrossCoreSetFlag<2, PIPE_FIX>(1);
  });
}

void program_short_copy_in_use_of_its_own_event(float* in, float* out) {
  run(in, out, [](const Buffers& m) {
    if (!first_vector_core()) return;
    SetFlag<HardEvent::V_MTE2>(0);
    tl::ascend::copy_gm_to_ub<float, 64, 1>(m.a, m.in, 64, 1, 8, 0.0f);
    WaitFlag<HardEvent::V_MTE2>(0);
  });
}
}
