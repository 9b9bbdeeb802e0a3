"""What the tokens of a chunk overwrite of each other."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel


@dataclass(frozen=True)
class Specialization:
    act: DType


@register_kernel
class ScaledDotKkt:
    """``A[i, j] = beta_i exp(G_i - G_j) k_i k_j`` for j < i, else 0; float32.

    A task is a chunk of one key head: the cube core multiplies its keys once and stores the products to one of two
    buffers of its block in global memory; the vector cores take its value heads in turns. Only differences of gates are
    exponentiated, none of them positive.
    """

    NAME = "scaled_dot_kkt"
    CONSTANTS = {"chunk": 64, "head_dim": 128}
    SPECIALIZATIONS = tuple(Specialization(act) for act in (DType.BF16, DType.F16))

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("k", spec.act, Role.IN, "[T, H, 128], any pitch of T and H"),
            Tensor("head_gates", DType.F32, Role.IN, "[NT, HV, 64] contiguous"),
            Tensor("head_beta", DType.F32, Role.IN, "[NT, HV, 64] contiguous"),
            Tensor("query_start_loc", DType.I32, Role.IN, "[N+1], start_pitch words an offset"),
            Tensor("lower_", DType.F32, Role.OUT, "[NT, HV, 64, 64] contiguous"),
            Tensor("workspace", DType.F32, Role.INOUT, "[blocks, 2, 64, 64]"),
        ]

    @staticmethod
    def generate_source(act: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile
        from gdn_aot.chunk import SQUARE, C, D, decay_between, load_tokens, make_mask, order

        products_loaded = tile.Event("mte2", "v", 1)
        products_free = tile.Event("v", "mte2", 1)
        result_ready = tile.Event("v", "mte3", 1)
        result_stored = tile.Event("mte3", "v", 1)
        PRODUCTS_STORED, PRODUCTS_TAKEN = 1, 2
        tokens, k_pitch = T.symbolic("tokens"), T.symbolic("k_pitch")
        starts, chunks, heads = T.symbolic("starts"), T.symbolic("chunks"), T.symbolic("heads")
        buffers = T.symbolic("buffers")

        @T.prim_func
        def main(
            k: T.Tensor((tokens, k_pitch), act),
            head_gates: T.Tensor((chunks, heads, C), "float32"),
            head_beta: T.Tensor((chunks, heads, C), "float32"),
            query_start_loc: T.Tensor((starts,), "int32"),
            lower_: T.Tensor((chunks, heads, C, C), "float32"),
            workspace: T.Tensor((buffers, C, C), "float32"),
            blocks: T.int32,
            rows: T.int32,
            start_pitch: T.int32,
            k_head_pitch: T.int32,
            key_heads: T.int32,
            ratio: T.int32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                keys = T.alloc_L1((C, D), act)
                sums = T.alloc_L0C((C, C), "float32")
                mask = T.alloc_ub((C, C), "float32")
                products = T.alloc_ub((C, C), "float32")
                decay = T.alloc_ub((C, C), "float32")
                minus_gates = T.alloc_ub((C,), "float32")
                beta = T.alloc_ub((C,), "float32")
                space = T.alloc_ub((C * 8,), "float32")
                task = T.alloc_var("int32", init=0)
                with T.Scope("C"):
                    for n in T.serial(rows):
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        first = (cid + blocks - (begin // C + n) * key_heads % blocks) % blocks
                        for i in T.serial(T.ceildiv(T.ceildiv(length, C) * key_heads - first, blocks)):
                            c = (first + i * blocks) // key_heads
                            h = (first + i * blocks) % key_heads
                            load_tokens(
                                keys, tile.at(k, (begin + c * C) * k_pitch + h * k_head_pitch), k_pitch, length - c * C
                            )
                            tile.product(sums, keys, keys, C, C, D, b_transposed=True)
                            tile.wait_other_cores(PRODUCTS_TAKEN)
                            tile.store_product(tile.at(workspace, (cid * 2 + task % 2) * SQUARE), sums, C, C, C)
                            tile.signal_other_cores("fix", PRODUCTS_STORED)
                            task = task + 1
                    for _ in T.serial(2):
                        tile.wait_other_cores(PRODUCTS_TAKEN)
                with T.Scope("V"):
                    make_mask(mask, 0)
                    tile.signal(products_free)
                    tile.signal(result_stored)
                    for _ in T.serial(2):
                        tile.signal_other_cores("mte2", PRODUCTS_TAKEN)
                    for n in T.serial(rows):
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        chunk = begin // C + n
                        first = (cid + blocks - chunk * key_heads % blocks) % blocks
                        for i in T.serial(T.ceildiv(T.ceildiv(length, C) * key_heads - first, blocks)):
                            c = (first + i * blocks) // key_heads
                            h = (first + i * blocks) % key_heads * ratio
                            tile.wait_other_cores(PRODUCTS_STORED)
                            turn = (vid + task * ratio) % 2
                            for j in T.serial(T.ceildiv(ratio - turn, 2)):
                                matrix = (chunk + c) * heads + h + turn + j * 2
                                tile.wait(products_free)
                                tile.load(products, tile.at(workspace, (cid * 2 + task % 2) * SQUARE), SQUARE, SQUARE)
                                tile.load(minus_gates, tile.at(head_gates, matrix * C), C, C)
                                tile.load(beta, tile.at(head_beta, matrix * C), C, C)
                                order(products_loaded)
                                tile.mul_scalar(minus_gates, minus_gates, -1.0, C)
                                tile.wait(result_stored)
                                tile.vector_barrier()
                                decay_between(decay, minus_gates, mask, space)
                                tile.vector_barrier()
                                tile.mul(decay, decay, products, SQUARE)
                                tile.scale_rows(decay, decay, beta, space, C)
                                tile.signal(products_free)
                                order(result_ready)
                                tile.store(tile.at(lower_, matrix * SQUARE), decay, SQUARE, SQUARE)
                                tile.signal(result_stored)
                            tile.signal_other_cores("mte2", PRODUCTS_TAKEN)
                            task = task + 1
                    tile.wait(products_free)
                    tile.wait(result_stored)

        return lower(main)
