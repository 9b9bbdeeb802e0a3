"""Keys through the inverse of a chunk: what takes the old state out of its values."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel


@dataclass(frozen=True)
class Specialization:
    act: DType


@register_kernel
class WyFast:
    """``w = erase k``, so that ``write v + w S^T`` is what a chunk writes to a state S.

    Cube cores only; a task is a chunk of one value head. ``write v`` has no state to wait for either, but is never
    stored: `chunk_h` adds both products up in L0C in float32.
    """

    NAME = "wy_fast"
    CONSTANTS = {"chunk": 64, "head_dim": 128}
    SPECIALIZATIONS = tuple(Specialization(act) for act in (DType.BF16, DType.F16))

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("k", spec.act, Role.IN, "[T, H, 128], any pitch of T and H"),
            Tensor("erase", spec.act, Role.IN, "[NT, HV, 2, 64, 64] contiguous"),
            Tensor("query_start_loc", DType.I32, Role.IN, "[N+1], start_pitch words an offset"),
            Tensor("w", spec.act, Role.OUT, "[NT, HV, 64, 128] contiguous"),
        ]

    @staticmethod
    def generate_source(act: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile
        from gdn_aot.chunk import SQUARE, TOKENS, C, D, load_tokens, multiply_tokens

        tokens, k_pitch = T.symbolic("tokens"), T.symbolic("k_pitch")
        starts, chunks, heads = T.symbolic("starts"), T.symbolic("chunks"), T.symbolic("heads")

        @T.prim_func
        def main(
            k: T.Tensor((tokens, k_pitch), act),
            erase: T.Tensor((chunks, heads, 2, C, C), act),
            query_start_loc: T.Tensor((starts,), "int32"),
            w: T.Tensor((chunks, heads, C, D), act),
            blocks: T.int32,
            rows: T.int32,
            start_pitch: T.int32,
            k_head_pitch: T.int32,
            ratio: T.int32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, _):
                keys = T.alloc_L1((C, D), act)
                inverse = T.alloc_L1((2 * C, C), act)
                sums = T.alloc_L0C((C, D), "float32")
                with T.Scope("C"):
                    for n in T.serial(rows):
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        base = (begin // C + n) * heads
                        first = (cid + blocks - base % blocks) % blocks
                        for i in T.serial(T.ceildiv(T.ceildiv(length, C) * heads - first, blocks)):
                            c = (first + i * blocks) // heads
                            h = (first + i * blocks) % heads
                            load_tokens(
                                keys, tile.at(k, (begin + c * C) * k_pitch + h // ratio * k_head_pitch), k_pitch,
                                length - c * C,
                            )  # fmt: skip
                            for part in T.unroll(2):
                                tile.load_operand(
                                    tile.at(inverse, part * SQUARE),
                                    tile.at(erase, (base + first + i * blocks) * (2 * SQUARE) + part * SQUARE), C, C, C,
                                )  # fmt: skip
                            multiply_tokens(sums, inverse, keys, False)
                            tile.store_product(tile.at(w, (base + first + i * blocks) * TOKENS), sums, C, D, D)

        return lower(main)
