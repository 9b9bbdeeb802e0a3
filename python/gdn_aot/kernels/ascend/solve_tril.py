"""The inverse that makes the tokens of a chunk one product."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel


@dataclass(frozen=True)
class Specialization:
    act: DType


@register_kernel
class SolveTril:
    """``X = (I + A)^-1`` of a chunk, as the two operands that later products take of it.

    ``write = X diag(beta)`` multiplies values, ``erase = -X diag(beta e^G)`` multiplies keys; both end as two parts,
    rounded to the activation dtype and what that left out, because keys that repeat make later sums cancel. Vector
    cores only; a task is a chunk of one value head. Forward substitution in float32 over whole rows: no product inside
    the inverse is rounded to 16 bits.
    """

    NAME = "solve_tril"
    CONSTANTS = {"chunk": 64}
    SPECIALIZATIONS = tuple(Specialization(act) for act in (DType.BF16, DType.F16))

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("lower_", DType.F32, Role.IN, "[NT, HV, 64, 64] contiguous"),
            Tensor("head_gates", DType.F32, Role.IN, "[NT, HV, 64] contiguous"),
            Tensor("head_beta", DType.F32, Role.IN, "[NT, HV, 64] contiguous"),
            Tensor("query_start_loc", DType.I32, Role.IN, "[N+1], start_pitch words an offset"),
            Tensor("write", spec.act, Role.OUT, "[NT, HV, 2, 64, 64] contiguous"),
            Tensor("erase", spec.act, Role.OUT, "[NT, HV, 2, 64, 64] contiguous"),
        ]

    @staticmethod
    def generate_source(act: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile
        from gdn_aot.chunk import SQUARE, C, invert, make_identity, order, scale_columns, split

        inputs_loaded = tile.Event("mte2", "v", 1)
        inputs_free = tile.Event("v", "mte2", 1)
        results_ready = tile.Event("v", "mte3", 1)
        results_stored = tile.Event("mte3", "v", 1)
        starts, chunks, heads = T.symbolic("starts"), T.symbolic("chunks"), T.symbolic("heads")

        @T.prim_func
        def main(
            lower_: T.Tensor((chunks, heads, C, C), "float32"),
            head_gates: T.Tensor((chunks, heads, C), "float32"),
            head_beta: T.Tensor((chunks, heads, C), "float32"),
            query_start_loc: T.Tensor((starts,), "int32"),
            write: T.Tensor((chunks, heads, 2, C, C), act),
            erase: T.Tensor((chunks, heads, 2, C, C), act),
            blocks: T.int32,
            rows: T.int32,
            start_pitch: T.int32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                identity = T.alloc_ub((C, C), "float32")
                matrix = T.alloc_ub((C, C), "float32")
                inverse = T.alloc_ub((C, C), "float32")
                products = T.alloc_ub((C, C), "float32")
                space = T.alloc_ub((C * 8,), "float32")
                beta = T.alloc_ub((C,), "float32")
                factors = T.alloc_ub((C,), "float32")
                write_parts = T.alloc_ub((2 * SQUARE,), act)
                erase_parts = T.alloc_ub((2 * SQUARE,), act)
                with T.Scope("V"):
                    make_identity(identity, products)
                    tile.signal(inputs_free)
                    tile.signal(results_stored)
                    for n in T.serial(rows):
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        base = (begin // C + n) * heads
                        first = (cid * 2 + vid + blocks * 2 - base % (blocks * 2)) % (blocks * 2)
                        for i in T.serial(T.ceildiv(T.ceildiv(length, C) * heads - first, blocks * 2)):
                            number = base + first + i * (blocks * 2)
                            tile.wait(inputs_free)
                            tile.load(matrix, tile.at(lower_, number * SQUARE), SQUARE, SQUARE)
                            tile.load(factors, tile.at(head_gates, number * C), C, C)
                            tile.load(beta, tile.at(head_beta, number * C), C, C)
                            order(inputs_loaded)
                            invert(inverse, matrix, identity, products, space)
                            tile.exp(factors, factors, C)
                            tile.vector_barrier()
                            tile.mul(factors, factors, beta, C)
                            scale_columns(products, inverse, beta)
                            tile.vector_barrier()
                            tile.mul_scalar(factors, factors, -1.0, C)
                            tile.wait(results_stored)
                            split(write_parts, tile.at(write_parts, SQUARE), products, matrix, SQUARE)
                            scale_columns(inverse, inverse, factors)
                            tile.vector_barrier()
                            split(erase_parts, tile.at(erase_parts, SQUARE), inverse, matrix, SQUARE)
                            tile.signal(inputs_free)
                            order(results_ready)
                            tile.store(tile.at(write, number * (2 * SQUARE)), write_parts, 2 * SQUARE, 2 * SQUARE)
                            tile.store(tile.at(erase, number * (2 * SQUARE)), erase_parts, 2 * SQUARE, 2 * SQUARE)
                            tile.signal(results_stored)
                    tile.wait(inputs_free)
                    tile.wait(results_stored)

        return lower(main)
