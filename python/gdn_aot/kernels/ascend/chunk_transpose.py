"""Gates and write strengths of a chunk, head by head."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel


@dataclass(frozen=True)
class Specialization:
    gates: DType


@register_kernel
class ChunkTranspose:
    """``[64, HV]`` of a chunk to ``[HV, 64]``, for summed gates and for write strengths, float32.

    Vector cores only; a task is a chunk. One gather moves all heads. Strengths of tokens past the end of a row become
    zero, which makes those tokens write nothing later on.
    """

    NAME = "chunk_transpose"
    CONSTANTS = {"chunk": 64, "max_heads": 64}
    SPECIALIZATIONS = (Specialization(DType.F32),)

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("gates", spec.gates, Role.IN, "[NT, 64, HV] contiguous"),
            Tensor("beta", DType.F32, Role.IN, "[T, HV], any pitch of T"),
            Tensor("query_start_loc", DType.I32, Role.IN, "[N+1], start_pitch words an offset"),
            Tensor("head_gates", DType.F32, Role.OUT, "[NT, HV, 64] contiguous"),
            Tensor("head_beta", DType.F32, Role.OUT, "[NT, HV, 64] contiguous"),
        ]

    @staticmethod
    def generate_source(gates: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile
        from gdn_aot.chunk import MAX_HEADS, C, order

        inputs_loaded = tile.Event("mte2", "v", 1)
        inputs_free = tile.Event("v", "mte2", 1)
        outputs_ready = tile.Event("v", "mte3", 1)
        outputs_stored = tile.Event("mte3", "v", 1)
        tokens, beta_pitch, heads = T.symbolic("tokens"), T.symbolic("beta_pitch"), T.symbolic("heads")
        starts, chunks = T.symbolic("starts"), T.symbolic("chunks")
        TILE = C * MAX_HEADS

        @T.prim_func
        def main(
            gates: T.Tensor((chunks, C, heads), gates),
            beta: T.Tensor((tokens, beta_pitch), "float32"),
            query_start_loc: T.Tensor((starts,), "int32"),
            head_gates: T.Tensor((chunks, heads, C), "float32"),
            head_beta: T.Tensor((chunks, heads, C), "float32"),
            blocks: T.int32,
            rows: T.int32,
            start_pitch: T.int32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                by_token = T.alloc_ub((2 * TILE,), "float32")
                by_head = T.alloc_ub((2 * TILE,), "float32")
                offsets = T.alloc_ub((TILE,), "int32")
                head_numbers = T.alloc_ub((TILE,), "int32")
                with T.Scope("V"):
                    # Element i of the result is token i % 64 of head i / 64: 256 (i - 64 h) + 4 h bytes from the start.
                    tile.sequence(offsets, TILE)
                    tile.vector_barrier()
                    tile.shift_right(head_numbers, offsets, 6, TILE)
                    tile.mul_scalar(offsets, offsets, 4 * MAX_HEADS, TILE)
                    tile.vector_barrier()
                    tile.mul_scalar(head_numbers, head_numbers, 4 - 4 * MAX_HEADS * C, TILE)
                    tile.vector_barrier()
                    tile.add(offsets, offsets, head_numbers, TILE)
                    tile.signal(inputs_free)
                    tile.signal(outputs_stored)
                    for n in T.serial(rows):
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        chunk = begin // C + n
                        first = (cid * 2 + vid + blocks * 2 - chunk % (blocks * 2)) % (blocks * 2)
                        for i in T.serial(T.ceildiv(T.ceildiv(length, C) - first, blocks * 2)):
                            c = first + i * (blocks * 2)
                            tile.wait(inputs_free)
                            tile.load(
                                by_token, tile.at(gates, (chunk + c) * C * heads), heads, MAX_HEADS, rows=C,
                                max_rows=C, pitch=heads,
                            )  # fmt: skip
                            tile.load(
                                tile.at(by_token, TILE), tile.at(beta, (begin + c * C) * beta_pitch), heads, MAX_HEADS,
                                rows=tile.smaller(C, length - c * C), max_rows=C, pitch=beta_pitch,
                            )  # fmt: skip
                            order(inputs_loaded)
                            tile.wait(outputs_stored)
                            tile.gather(by_head, by_token, offsets, 0, TILE)
                            tile.gather(tile.at(by_head, TILE), by_token, offsets, 4 * TILE, TILE)
                            tile.signal(inputs_free)
                            order(outputs_ready)
                            tile.store(tile.at(head_gates, (chunk + c) * heads * C), by_head, heads * C, TILE)
                            tile.store(
                                tile.at(head_beta, (chunk + c) * heads * C), tile.at(by_head, TILE), heads * C, TILE
                            )
                            tile.signal(outputs_stored)
                    tile.wait(inputs_free)
                    tile.wait(outputs_stored)

        return lower(main)
