"""What the simulator must find, and must not find, in small programs."""

from __future__ import annotations

import ctypes

import pytest
import torch

from cases import BF16
from compare import assert_bit_equal, assert_close
from problems import randn

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

CUBE_CLEAN = {"good": 32, "good_pipe_by_pipe": 32, "good_with_vector_core": 32, "good_with_a_tail": 20}  # rows read
CUBE_WRONG = {
    "operands_before_the_load_is_done": "race: read after write in L1: LoadData into L0A (cube, MTE1)",
    "product_before_its_operands": "race: read after write in L0A: Mmad (cube, M)",
    "store_before_the_product_is_done": "race: read after write in L0C: Fixpipe (cube, FIX)",
    "load_over_an_operand_in_use": "race: write after read in L1: DataCopy into L1 (cube, MTE2)",
    "operand_over_one_in_use": "race: write after read in L0A: LoadData into L0A (cube, MTE1)",
    "product_over_a_sum_being_stored": "race: write after read in L0C: Mmad (cube, M)",
    "sums_without_barrier": "race: read after write in L0C: Mmad (cube, M)",
    "loads_what_it_has_just_stored": "race: read after write in global memory of out: DataCopy into L1 (cube, MTE2)",
    "vector_core_does_not_wait": "in global memory of out",
    "flag_of_the_wrong_pipe": "race: read after write in global memory of out: DataCopyPad (vector 0, MTE2)",
    "waits_for_cores_that_wait": "flag: cross-core flag 3 waited for but not set: hangs",
    "reads_past_global_memory": "bounds: DataCopy into L1 (cube, MTE2) reads outside global memory",
    "stores_past_global_memory": "bounds: Fixpipe (cube, FIX) writes outside global memory",
    "operand_larger_than_its_buffer": "bounds: DataCopy into L1 leaves its buffer in L1",
    "operand_larger_than_l0a": "bounds: LoadData into L0A leaves its buffer in L0A",
    "sum_larger_than_l0c": "capacity: a buffer ends past L0C",
    "operand_before_it_is_kept": "race: read after write in L1: LoadData into L0A (cube, MTE1)",
    "kept_before_the_product_is_done": "race: read after write in L0C: Fixpipe into L1 (cube, FIX)",
    "kept_in_another_type": "repeat: Fixpipe must round to the element type of its destination",
    "does_a_vector_instruction": "core: Duplicate on a cube core, which has no V",
    "product_on_a_vector_core": "core: Mmad on a vector core, which has no M",
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


def run_cube(simulator, program: str) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    values, out = randn(torch.Generator().manual_seed(0), 32, 32, dtype=BF16), torch.full((32, 32), torch.nan)
    simulator.library.simulator_reset()
    for name, tensor in (("in", values), ("out", out)):
        simulator.library.simulator_register(
            ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes), name.encode()
        )
    getattr(simulator.library, f"cube_{program}")(ctypes.c_void_p(values.data_ptr()), ctypes.c_void_p(out.data_ptr()))
    return values, out, simulator.reports()


@pytest.mark.parametrize("program", CUBE_CLEAN)
def test_nothing_is_found_in_a_good_program_of_the_cube_core(simulator, program):
    values, out, reports = run_cube(simulator, program)
    assert not reports
    values[CUBE_CLEAN[program] :] = 0
    a = values.double()
    assert_close(out, a @ a.T + a.T @ a, 1e-6, "out")
    rows = CUBE_CLEAN[program]
    vector_core = 2 * 32 * 32 * 4 if program == "good_with_vector_core" else 0
    assert sum(simulator.bytes_moved().values()) == rows * 32 * 2 + 32 * 32 * 4 + vector_core


def test_a_product_becomes_an_operand(simulator):
    values, out, reports = run_cube(simulator, "kept")
    assert not reports
    a = values.double()
    kept = (a @ a.T).to(BF16).double()
    assert_close(out, kept @ kept.T, 1e-6, "out")
    assert sum(simulator.bytes_moved().values()) == 32 * 32 * (2 + 4)


@pytest.mark.parametrize("program", CUBE_WRONG)
def test_the_fault_of_a_bad_program_of_the_cube_core_is_found(simulator, program):
    _, _, reports = run_cube(simulator, program)
    assert any(CUBE_WRONG[program] in report for report in reports), reports


def test_a_matrix_is_multiplied_in_pieces_of_its_inner_dimension(simulator):
    """gemm_v0 with 320 inner elements, both operands transposed or not: two pieces of 128 and a rest."""
    gen = torch.Generator().manual_seed(0)
    for program, transposed in (("plain", False), ("transposed", True)):
        a, b = randn(gen, 48, 320, dtype=BF16), randn(gen, 320, 80, dtype=BF16)
        out = torch.full((48, 80), torch.nan)
        stored = [a.T.contiguous(), b.T.contiguous()] if transposed else [a, b]
        simulator.library.simulator_reset()
        for tensor in (*stored, out):
            simulator.library.simulator_register(
                ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes), b"memory"
            )
        function = getattr(simulator.library, f"cube_pieces_{program}")
        function(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in (*stored, out)))
        assert not simulator.reports()
        assert_close(out, a.double() @ b.double(), 1e-6, "out")
