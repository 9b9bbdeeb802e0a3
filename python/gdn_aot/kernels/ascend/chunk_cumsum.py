"""Log gates, added up inside every chunk."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel


@dataclass(frozen=True)
class Specialization:
    gates: DType


@register_kernel
class ChunkCumsum:
    """``G[i] = sum of max(g[j], -100) for j <= i`` inside a chunk, float32, for all heads at once.

    Vector cores only; a task is a chunk. Six steps of pairwise additions instead of 63 in a row. Tokens past the end of
    a row add nothing, so that the last of a chunk always is its total.
    """

    NAME = "chunk_cumsum"
    CONSTANTS = {"chunk": 64, "max_heads": 64}
    SPECIALIZATIONS = (Specialization(DType.F32),)

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("g", spec.gates, Role.IN, "[T, HV], any pitch of T"),
            Tensor("query_start_loc", DType.I32, Role.IN, "[N+1], start_pitch words an offset"),
            Tensor("gates", DType.F32, Role.OUT, "[NT, 64, HV] contiguous"),
        ]

    @staticmethod
    def generate_source(gates: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile
        from gdn_aot.chunk import MAX_HEADS, C, cumulate, order

        gates_loaded = tile.Event("mte2", "v", 1)
        sums_ready = tile.Event("v", "mte3", 1)
        sums_stored = tile.Event("mte3", "mte2", 1)
        tokens, g_pitch, heads = T.symbolic("tokens"), T.symbolic("g_pitch"), T.symbolic("heads")
        starts, chunks = T.symbolic("starts"), T.symbolic("chunks")
        TILE = C * MAX_HEADS

        @T.prim_func
        def main(
            g: T.Tensor((tokens, g_pitch), gates),
            query_start_loc: T.Tensor((starts,), "int32"),
            gates: T.Tensor((chunks, C, heads), "float32"),
            blocks: T.int32,
            rows: T.int32,
            start_pitch: T.int32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                sums = T.alloc_ub((2 * TILE,), "float32")
                with T.Scope("V"):
                    tile.signal(sums_stored)
                    for n in T.serial(rows):
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        chunk = begin // C + n
                        first = (cid * 2 + vid + blocks * 2 - chunk % (blocks * 2)) % (blocks * 2)
                        for i in T.serial(T.ceildiv(T.ceildiv(length, C) - first, blocks * 2)):
                            c = first + i * (blocks * 2)
                            tile.wait(sums_stored)
                            tile.load(
                                sums, tile.at(g, (begin + c * C) * g_pitch), heads, MAX_HEADS,
                                rows=tile.smaller(C, length - c * C), max_rows=C, pitch=g_pitch,
                            )  # fmt: skip
                            order(gates_loaded)
                            cumulate(sums, MAX_HEADS)
                            order(sums_ready)
                            tile.store(
                                tile.at(gates, (chunk + c) * C * heads), sums, heads, MAX_HEADS, rows=C, max_rows=C,
                                pitch=heads,
                            )  # fmt: skip
                            tile.signal(sums_stored)
                    tile.wait(sums_stored)

        return lower(main)
