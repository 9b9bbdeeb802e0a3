"""What the simulator must find, and must not find, in small programs."""

from __future__ import annotations

import ctypes

import pytest
import torch

from compare import assert_bit_equal

CLEAN = ["good", "good_without_arithmetic", "good_cross_core"]
WRONG = {
    "arithmetic_before_the_load_is_done": "race: read after write in UB: Adds (vector 0, V)",
    "store_before_the_arithmetic_is_done": "race: read after write in UB: DataCopyPad (vector 0, MTE3)",
    "load_over_what_is_still_read": "race: write after read in UB: DataCopyPad (vector 0, MTE2)",
    "vector_without_barrier": "race: read after write in UB: Muls (vector 0, V)",
    "two_blocks_write_the_same": "race: write after write in global memory of out",
    "scalar_reads_before_the_load_is_done": "race: read after write in UB: LocalTensor::GetValue (vector 0, S)",
    "reads_past_global_memory": "bounds: DataCopyPad (vector 0, MTE2) reads outside global memory",
    "leaves_its_buffer": "bounds: Duplicate leaves its buffer in UB",
    "unaligned": "alignment: Duplicate needs addresses of 32 bytes in UB",
    "buffer_past_the_memory": "capacity: a buffer ends past UB",
    "too_many_repeats": "repeat: WholeReduceSum repeats at most 255 times",
    "wait_without_set": "flag: MTE2_V 0 waited for but not set: hangs",
    "set_twice": "flag: MTE2_V 0 set again before it was waited for",
    "flag_left_set": "flag: MTE2_V 0 left set at the end",
    "cross_flag_left_set": "flag: cross-core flag 1 left set at the end",
    "short_copy_in_use_of_its_own_event": "flag: V_MTE2 0 set again before it was waited for",
}


def run(simulator, program: str) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    values, out = torch.arange(64.0), torch.full((64,), torch.nan)
    simulator.library.simulator_reset()
    for name, tensor in (("in", values), ("out", out)):
        simulator.library.simulator_register(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(256), name.encode())
    getattr(simulator.library, f"program_{program}")(
        ctypes.c_void_p(values.data_ptr()), ctypes.c_void_p(out.data_ptr())
    )
    return values, out, simulator.reports()


@pytest.mark.parametrize("program", CLEAN)
def test_nothing_is_found_in_a_good_program(simulator, program):
    values, out, reports = run(simulator, program)
    assert not reports
    assert_bit_equal(out, values, "out")


@pytest.mark.parametrize("program", WRONG)
def test_the_fault_of_a_bad_program_is_found(simulator, program):
    _, _, reports = run(simulator, program)
    assert any(WRONG[program] in report for report in reports), reports
