"""Outputs of a chunk from the state before it and from what its tokens wrote."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel


@dataclass(frozen=True)
class Specialization:
    act: DType


@register_kernel
class ChunkO:
    """``o = scale (diag(e^G) q S^T + (exp(G_i - G_j) q_i k_j for j <= i) v_new)``.

    A task is a chunk of one value head. The cube core multiplies q and k; the vector cores take the chunks in turns,
    apply gates and scale to the products, of which both a rounded part and the rest are kept, and make the diagonal
    matrix that scales q. The cube core adds up both terms in L0C and stores them straight to ``out``. It multiplies q
    and k of a row's next task before it waits for the operands of this one. Rows without a slot and tokens past the
    last row become zero.
    """

    NAME = "chunk_o"
    CONSTANTS = {"chunk": 64, "head_dim": 128, "max_heads": 64}
    SPECIALIZATIONS = tuple(Specialization(act) for act in (DType.BF16, DType.F16))

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("q", spec.act, Role.IN, "[T, H, 128], any pitch of T and H"),
            Tensor("k", spec.act, Role.IN, "[T, H, 128], any pitch of T and H"),
            Tensor("head_gates", DType.F32, Role.IN, "[NT, HV, 64] contiguous"),
            Tensor("h", spec.act, Role.IN, "[NT, HV, 128, 128] contiguous"),
            Tensor("v_new", spec.act, Role.IN, "[NT, HV, 2, 64, 128] contiguous"),
            Tensor("query_start_loc", DType.I32, Role.IN, "[N+1], start_pitch words an offset"),
            Tensor("cache_indices", DType.I32, Role.IN, "[N], index_pitch words an index"),
            Tensor("out", spec.act, Role.OUT, "[T, HV, 128] contiguous"),
            Tensor("score_space", DType.F32, Role.INOUT, "[blocks, 2, 64, 64]"),
            Tensor("diagonal_space", spec.act, Role.INOUT, "[blocks, 2, 2, 4, 16, 16]"),
            Tensor("weight_space", spec.act, Role.INOUT, "[blocks, 2, 2, 64, 64]"),
        ]

    @staticmethod
    def generate_source(act: DType) -> str:
        import tilelang.language as T

        from gdn_aot import chunk, tile
        from gdn_aot.chunk import DIAGONAL, MAX_HEADS, SQUARE, STATE, TOKENS, C, D, order

        loaded = tile.Event("mte2", "v", 1)
        inputs_free = tile.Event("v", "mte2", 1)
        zeros_ready = tile.Event("v", "mte3", 2)
        operands_ready = tile.Event("v", "mte3", 1)
        SCORES_STORED, OPERANDS_STORED = 1, 2
        WEIGHTS, QUERY_FACTORS = 0, 2  # pairs of matrices in L1
        tokens, heads = T.symbolic("tokens"), T.symbolic("heads")
        q_pitch, k_pitch = T.symbolic("q_pitch"), T.symbolic("k_pitch")
        starts, chunks, indices = T.symbolic("starts"), T.symbolic("chunks"), T.symbolic("indices")
        buffers = T.symbolic("buffers")

        @T.prim_func
        def main(
            q: T.Tensor((tokens, q_pitch), act),
            k: T.Tensor((tokens, k_pitch), act),
            head_gates: T.Tensor((chunks, heads, C), "float32"),
            h: T.Tensor((chunks, heads, D, D), act),
            v_new: T.Tensor((chunks, heads, 2, C, D), act),
            query_start_loc: T.Tensor((starts,), "int32"),
            cache_indices: T.Tensor((indices,), "int32"),
            out: T.Tensor((tokens, heads, D), act),
            score_space: T.Tensor((buffers, 2, C, C), "float32"),
            diagonal_space: T.Tensor((buffers, 2, 2, DIAGONAL), act),
            weight_space: T.Tensor((buffers, 2, 2, C, C), act),
            blocks: T.int32,
            rows: T.int32,
            start_pitch: T.int32,
            index_pitch: T.int32,
            q_head_pitch: T.int32,
            k_head_pitch: T.int32,
            ratio: T.int32,
            slots: T.int32,
            scale: T.float32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                q_l1 = T.alloc_L1((C, D), act)
                k_l1 = T.alloc_L1((C, D), act)
                query_l1 = T.alloc_L1((C, D), act)
                state_l1 = T.alloc_L1((D, D), act)
                new_l1 = T.alloc_L1((2 * C, D), act)
                matrices_l1 = T.alloc_L1((chunk.operand_rows(4), chunk.BLOCK), act)
                scores_l0 = T.alloc_L0C((C, C), "float32")
                sums = T.alloc_L0C((C, D), "float32")
                mask = T.alloc_ub((C, C), "float32")
                identity = T.alloc_ub((C, C), "float32")
                scores = T.alloc_ub((C, C), "float32")
                decay = T.alloc_ub((C, C), "float32")
                rest = T.alloc_ub((C, C), "float32")
                weights = T.alloc_ub((2 * SQUARE,), act)
                diagonals = T.alloc_ub((2 * DIAGONAL,), act)
                pattern = T.alloc_ub((DIAGONAL,), "float32")
                factor_offsets = T.alloc_ub((DIAGONAL,), "int32")
                gates = T.alloc_ub((C,), "float32")
                minus_gates = T.alloc_ub((C,), "float32")
                factors = T.alloc_ub((C,), "float32")
                space = T.alloc_ub((C * 8,), "float32")
                zeros = T.alloc_ub((MAX_HEADS * D,), act)
                task = T.alloc_var("int32", init=0)
                with T.Scope("C"):
                    tile.load_operand(matrices_l1, q, chunk.operand_rows(4), chunk.BLOCK, chunk.BLOCK, 1)
                    for n in T.serial(rows):
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        base = (begin // C + n) * heads
                        first = (cid + blocks - base % blocks) % blocks
                        slot = cache_indices[n * index_pitch]
                        if slot >= 0 and slot < slots:
                            count = T.ceildiv(T.ceildiv(length, C) * heads - first, blocks)
                            # one step more than tasks: step i multiplies q and k of task i and finishes task i - 1
                            for i in T.serial(count + 1):
                                if i < count:
                                    c = (first + i * blocks) // heads
                                    head = (first + i * blocks) % heads // ratio
                                    chunk.load_tokens(
                                        q_l1, tile.at(q, (begin + c * C) * q_pitch + head * q_head_pitch), q_pitch,
                                        length - c * C,
                                    )  # fmt: skip
                                    chunk.load_tokens(
                                        k_l1, tile.at(k, (begin + c * C) * k_pitch + head * k_head_pitch), k_pitch,
                                        length - c * C,
                                    )  # fmt: skip
                                    tile.product(scores_l0, q_l1, k_l1, C, C, D, b_transposed=True)
                                    tile.store_product(
                                        tile.at(score_space, (cid * 2 + (task + i) % 2) * SQUARE), scores_l0, C, C, C
                                    )
                                    tile.signal_other_cores("fix", SCORES_STORED)
                                if i > 0:
                                    number = first + (i - 1) * blocks
                                    last = number // heads
                                    side = cid * 2 + (task + i - 1) % 2
                                    tile.load_operand(state_l1, tile.at(h, (base + number) * STATE), D, D, D)
                                    tile.load_operand(new_l1, tile.at(v_new, (base + number) * (2 * TOKENS)), C, D, D)
                                    tile.load_operand(
                                        tile.at(new_l1, TOKENS),
                                        tile.at(v_new, (base + number) * (2 * TOKENS) + TOKENS), C, D, D,
                                    )  # fmt: skip
                                    chunk.load_tokens(
                                        q_l1,
                                        tile.at(
                                            q, (begin + last * C) * q_pitch + number % heads // ratio * q_head_pitch
                                        ),
                                        q_pitch, length - last * C,
                                    )  # fmt: skip
                                    tile.wait_other_cores(OPERANDS_STORED)
                                    chunk.load_diagonal(
                                        chunk.operand(matrices_l1, QUERY_FACTORS),
                                        tile.at(diagonal_space, side * (2 * DIAGONAL)),
                                    )
                                    chunk.load_lower_pair(
                                        chunk.operand(matrices_l1, WEIGHTS), tile.at(weight_space, side * (2 * SQUARE))
                                    )
                                    chunk.keep_multiplied(
                                        query_l1, sums, chunk.operand(matrices_l1, QUERY_FACTORS), q_l1
                                    )
                                    tile.product(sums, query_l1, state_l1, C, D, D, b_transposed=True)
                                    chunk.multiply_weights(sums, chunk.operand(matrices_l1, WEIGHTS), new_l1)
                                    tile.store_product(
                                        tile.at(out, ((begin + last * C) * heads + number % heads) * D), sums, C, D,
                                        heads * D, tile.smaller(C, length - last * C),
                                    )  # fmt: skip
                            task = task + count
                with T.Scope("V"):
                    chunk.make_identity(identity, scores)
                    tile.vector_barrier()
                    chunk.make_diagonal_tables(pattern, factor_offsets, identity)
                    tile.fill(scores, 0.0, SQUARE)
                    chunk.make_mask(mask, 1)
                    tile.convert(zeros, scores, SQUARE)
                    tile.convert(tile.at(zeros, SQUARE), scores, SQUARE)
                    order(zeros_ready)
                    tile.signal(inputs_free)
                    for n in T.serial(rows):
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        base = (begin // C + n) * heads
                        first = (cid + blocks - base % blocks) % blocks
                        slot = cache_indices[n * index_pitch]
                        if slot >= 0 and slot < slots:
                            for i in T.serial(T.ceildiv(T.ceildiv(length, C) * heads - first, blocks)):
                                c = (first + i * blocks) // heads
                                head = (first + i * blocks) % heads // ratio
                                tile.wait_other_cores(SCORES_STORED)
                                if (task + vid) % 2 == 0:
                                    tile.wait(inputs_free)
                                    tile.load(
                                        scores, tile.at(score_space, (cid * 2 + task % 2) * SQUARE), SQUARE, SQUARE
                                    )
                                    tile.load(gates, tile.at(head_gates, (base + first + i * blocks) * C), C, C)
                                    order(loaded)
                                    tile.mul_scalar(minus_gates, gates, -1.0, C)
                                    chunk.query_factors(factors, gates, scale)
                                    tile.vector_barrier()
                                    chunk.make_diagonal(diagonals, factors, pattern, factor_offsets, rest)
                                    chunk.decay_between(decay, minus_gates, mask, space)
                                    tile.vector_barrier()
                                    tile.mul(decay, decay, scores, SQUARE)
                                    tile.signal(inputs_free)
                                    tile.vector_barrier()
                                    tile.mul_scalar(decay, decay, scale, SQUARE)
                                    tile.vector_barrier()
                                    chunk.split(weights, tile.at(weights, SQUARE), decay, rest, SQUARE)
                                    order(operands_ready)
                                    side = cid * 2 + task % 2
                                    tile.store(
                                        tile.at(diagonal_space, side * (2 * DIAGONAL)), diagonals, 2 * DIAGONAL,
                                        2 * DIAGONAL,
                                    )  # fmt: skip
                                    chunk.store_lower_pair(tile.at(weight_space, side * (2 * SQUARE)), weights)
                                tile.signal_other_cores("mte3", OPERANDS_STORED)
                                task = task + 1
                        else:
                            chunk.store_zero_tokens(out, zeros, begin, length, cid * 2 + vid, blocks * 2, heads)
                    end = query_start_loc[rows * start_pitch]
                    chunk.store_zero_tokens(out, zeros, end, tokens - end, cid * 2 + vid, blocks * 2, heads)
                    tile.wait(inputs_free)

        return lower(main)
