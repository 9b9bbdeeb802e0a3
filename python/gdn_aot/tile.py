"""Vector, cube, copy and synchronisation statements on slices of buffers, for use inside ``T.prim_func``.

A slice is ``at(buffer, offset)``, in elements, or a whole buffer. Counts and offsets may be run-time expressions, which
the operators of ``T.tile`` do not take. Offsets into global memory are 64-bit where they contain a size of a tensor,
because the generated code declares those as int64_t.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tvm import tir

C_TYPES = {"float32": "float", "bfloat16": "bfloat16_t", "float16": "half", "int32": "int", "uint8": "uint8_t"}


class Slice(NamedTuple):
    buffer: Any
    offset: Any


class Event(NamedTuple):
    """One hardware event: ``consumer`` waits until ``producer`` has finished what it was given before the signal."""

    producer: str
    consumer: str
    number: int


def at(operand, offset) -> Slice:
    """What lies ``offset`` elements further on."""
    buffer, begin = _slice(operand)
    return Slice(buffer, begin + offset)


def _slice(operand) -> Slice:
    return operand if isinstance(operand, Slice) else Slice(operand, 0)


def _pointer(operand, mode: str):
    buffer, offset = _slice(operand)
    return buffer.access_ptr(mode, offset=offset)


def _c_type(operand) -> str:
    return C_TYPES[_slice(operand).buffer.dtype]


def select(condition, a, b):
    return tir.Select(condition, a, b)


def smaller(a, b):
    """The smaller of two integers, which may differ in width in the generated code."""
    return select(a <= b, a, b)


def _intrinsic(name: str, *arguments):
    return tir.call_intrin("handle", tir.op.Op.get(f"tl.ascend_{name}"), *arguments)


# --- synchronisation -----------------------------------------------------------------------------------------------


def signal(event: Event):
    return _intrinsic("set_flag", event.producer.upper(), event.consumer.upper(), event.number)


def wait(event: Event):
    return _intrinsic("wait_flag", event.producer.upper(), event.consumer.upper(), event.number)


def vector_barrier():
    """Orders the vector instructions before it against those after it."""
    return _intrinsic("pipe_barrier", "V")


def signal_other_cores(pipe: str, flag: int):
    """From the cube core to both vector cores of its block, or from both to the cube core, after what ``pipe`` has."""
    return _intrinsic("set_cross_flag", pipe.upper(), flag, 2)


def wait_other_cores(flag: int):
    return _intrinsic("wait_cross_flag", flag, "")


# --- copies --------------------------------------------------------------------------------------------------------


def load(dst, src, count, tile: int, rows=1, max_rows: int = 1, pitch=None):
    """Global memory -> unified buffer: ``rows`` rows of ``count`` <= ``tile`` elements, ``pitch`` elements apart.

    Rows lie ``tile`` elements apart in ``dst``. Fewer rows than ``max_rows`` or a shorter row leave the rest zero.
    """
    c_type = _c_type(dst)
    return tir.call_extern(
        "handle", f"tl::ascend::copy_gm_to_ub<{c_type}, {tile}, {max_rows}>", _pointer(src, "r"), _pointer(dst, "w"),
        tile if pitch is None else pitch, rows, count, tir.const(0, _slice(dst).buffer.dtype),
    )  # fmt: skip


def store(dst, src, count, tile: int, rows=1, max_rows: int = 1, pitch=None):
    """Unified buffer -> global memory: the opposite of ``load``."""
    name = f"tl::ascend::copy_ub_to_gm<{_c_type(src)}, {tile}, {max_rows}>"
    return tir.call_extern(
        "handle", name, _pointer(src, "r"), _pointer(dst, "w"), tile if pitch is None else pitch, rows, count
    )


def load_operand(dst, src, rows: int, columns: int, pitch, count=0):
    """Global memory -> L1, in the cube's blocks: ``rows`` x ``columns`` elements, rows ``pitch`` elements apart.

    A ``count`` of rows other than 0 leaves the rest zero, but only where ``dst`` is the start of a buffer.
    """
    assert isinstance(count, int) or not isinstance(dst, Slice), "a short operand needs a buffer of its own"
    name = f"tl::ascend::copy_gm_to_l1<{_c_type(dst)}, {rows}, {columns}>"
    return tir.call_extern("handle", name, _pointer(src, "r"), _pointer(dst, "w"), pitch, count, 0)


def load_block(dst, src, matrix_rows: int, rows: int, columns: int, pitch):
    """Global memory -> L1: a block of a matrix that has ``matrix_rows`` rows there, from ``dst`` on.

    The rest of the matrix stays, but only where ``dst`` is not the start of a buffer.
    """
    assert isinstance(dst, Slice), "a block at the start of a buffer clears what is around it"
    name = f"tl::ascend::copy_gm_to_l1<{_c_type(dst)}, {matrix_rows}, {columns}>"
    return tir.call_extern("handle", name, _pointer(src, "r"), _pointer(dst, "w"), pitch, rows, columns)


def in_columns(matrix_rows: int, row: int, column: int) -> int:
    """Where element (row, column), a corner of a block of 16 x 16, lies in L1 and L0C."""
    return column * matrix_rows + row * 16


def store_product(dst, src, rows: int, columns: int, pitch, count=0, width=0):
    """L0C -> global memory, rounded to the element type there; ``count`` rows of ``width`` elements, 0 for all.

    ``rows`` is how many the matrix in L0C has, of which ``src`` may be a later one.
    """
    name = f"tl::ascend::copy_l0c_to_gm<float, {_c_type(dst)}, layout::RowMajor, {rows}, {columns}>"
    return tir.call_extern("handle", name, _pointer(src, "r"), _pointer(dst, "w"), pitch, count, width)


def keep_product(dst, src, rows: int, columns: int):
    """L0C -> L1, rounded to the element type there."""
    # The code generator prints a call to a function it does not know only if the name mentions one that it knows.
    name = f"gdn::ascend::device::copy_l0c_to_l1</*tl::ascend::copy_l0c_to_gm*/ {_c_type(dst)}>"
    return tir.call_extern("handle", name, _pointer(src, "r"), _pointer(dst, "w"), rows, rows, columns)


def convert(dst, src, count: int):
    """Copy inside the unified buffer, to nearest even where the element type narrows."""
    name = f"tl::ascend::copy_ub_to_ub<{_c_type(dst)}, {_c_type(src)}, {count}>"
    return tir.call_extern("handle", name, _pointer(src, "r"), _pointer(dst, "w"), 1, count, count, 1, count, count)


# --- matrices ------------------------------------------------------------------------------------------------------


def product(dst, a, b, rows: int, columns: int, inner: int, a_transposed=False, b_transposed=False, add=False):
    """``dst = a b``, or ``dst += a b``: L1 times L1 into L0C, with all flags between the cube core's own pipes.

    ``a_transposed`` and ``b_transposed`` say that the operand lies in L1 as its transpose.
    """
    flags = ", ".join(str(flag).lower() for flag in (a_transposed, b_transposed))
    name = f"gemm_v0<{_c_type(a)}, float, {rows}, {columns}, {inner}, {flags}>"
    return _intrinsic("gemm_v0", name, _pointer(a, "r"), _pointer(b, "r"), _pointer(dst, "rw"), not add)


# --- vectors -------------------------------------------------------------------------------------------------------


def add(dst, a, b, count):
    return _intrinsic("add", _pointer(dst, "w"), _pointer(a, "r"), _pointer(b, "r"), count)


def sub(dst, a, b, count):
    return _intrinsic("sub", _pointer(dst, "w"), _pointer(a, "r"), _pointer(b, "r"), count)


def mul(dst, a, b, count):
    return _intrinsic("mul", _pointer(dst, "w"), _pointer(a, "r"), _pointer(b, "r"), count)


def div(dst, a, b, count):
    return _intrinsic("div", _pointer(dst, "w"), _pointer(a, "r"), _pointer(b, "r"), count)


def multiply_add(dst, a, b, count):
    """``dst += a * b``."""
    return _intrinsic("mul_add_dst", _pointer(dst, "rw"), _pointer(a, "r"), _pointer(b, "r"), count)


def add_scalar(dst, a, scalar, count):
    return _intrinsic("adds", _pointer(dst, "w"), _pointer(a, "r"), scalar, count)


def mul_scalar(dst, a, scalar, count):
    return _intrinsic("muls", _pointer(dst, "w"), _pointer(a, "r"), scalar, count)


def exp(dst, a, count):
    return _intrinsic("exp", _pointer(dst, "w"), _pointer(a, "r"), count)


def fill(dst, value, count):
    return _intrinsic("fill", f"Fill<{_c_type(dst)}>", _pointer(dst, "w"), value, count)


def sequence(dst, count):
    """0, 1, 2, ..."""
    return _intrinsic("createvecindex", f"CreateVecIndex<{_c_type(dst)}>", _pointer(dst, "w"), 0, count)


def gather(dst, src, byte_offsets, base_bytes, count):
    """``dst[i] = src[(byte_offsets[i] + base_bytes) / size of an element]``."""
    return _intrinsic("gather", _pointer(dst, "w"), _pointer(src, "r"), _pointer(byte_offsets, "r"), base_bytes, count)


def sqrt(dst, a, count):
    return _intrinsic("sqrt", _pointer(dst, "w"), _pointer(a, "r"), count)


def absolute(dst, a, count):
    return _intrinsic("abs", _pointer(dst, "w"), _pointer(a, "r"), count)


def max_scalar(dst, a, scalar, count):
    return _intrinsic("maxs", _pointer(dst, "w"), _pointer(a, "r"), scalar, count)


def shift_right(dst, a, bits, count):
    return _intrinsic("bitwise_rshift", _pointer(dst, "w"), _pointer(a, "r"), bits, count)


def sum_rows(dst, src, rows: int, row_blocks: int):
    """``dst[i]`` = sum of the first 64 floats of row i; rows lie ``row_blocks`` blocks of 32 bytes apart."""
    return _intrinsic("wholereducesum", _pointer(dst, "w"), _pointer(src, "r"), 64, rows, 1, 1, row_blocks)


def _with_rows(name: str, dst, src, factors, space, rows: int):
    def pointer(operand, mode, count):
        buffer, offset = _slice(operand)
        return buffer.access_ptr(mode, offset=offset, extent=count)

    snake = "_".join(["row_expand", name, "experiment"])
    return _intrinsic(
        snake, f"RowExpand{name.capitalize()}Experiment<{_c_type(dst)}>", pointer(dst, "w", rows * 64),
        pointer(src, "r", rows * 64), pointer(factors, "r", rows), pointer(space, "rw", rows * 8),
    )  # fmt: skip


def scale_rows(dst, src, factors, space, rows: int):
    """``dst[i, j] = src[i, j] * factors[i]`` for ``rows`` rows of 64 floats, a multiple of 8.

    ``space`` receives every factor eight times. Contains one barrier.
    """
    return _with_rows("mul", dst, src, factors, space, rows)


def subtract_from_rows(dst, src, values, space, rows: int):
    """``dst[i, j] = src[i, j] - values[i]``, otherwise as ``scale_rows``."""
    return _with_rows("sub", dst, src, values, space, rows)
