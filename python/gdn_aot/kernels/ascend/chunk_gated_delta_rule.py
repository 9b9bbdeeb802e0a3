"""The chunked gated delta rule in one launch."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel


@dataclass(frozen=True)
class Specialization:
    act: DType


@register_kernel
class ChunkGatedDeltaRule:
    """All seven stages, chunk by chunk; a task is (row, value head), and a block does all chunks of its tasks.

    The vector cores take the chunks in turns for what does not depend on the state (gates, A, its inverse, weights),
    one chunk ahead of the cube core; both advance half of the float32 state each, which never leaves their unified
    buffers between chunks. Tokens stay with the cube core: norms are the diagonals of k k^T and q q^T, and rows are
    scaled by products with diagonal matrices. What it multiplies again (w, v_new, scaled keys and queries) goes from
    L0C to L1; what the cores exchange goes through a workspace of the block that fits the L2 cache. No tensor of T
    tokens is written but ``out``, nothing is zeroed before, and no launch follows another.

    Products round their operands to the activation dtype. What sums of values that cancel are made of (the inverse,
    v_new, scaled keys, weights) is kept in two parts, rounded and rest, and multiplied twice.

    ``stop_after`` ends every chunk after that stage (1 to 7); below 7 the results of the stages are stored in the
    layouts of the stand-alone kernels, to be looked at.
    """

    NAME = "chunk_gated_delta_rule"
    CONSTANTS = {"chunk": 64, "head_dim": 128, "max_heads": 64}
    SPECIALIZATIONS = tuple(Specialization(act) for act in (DType.BF16, DType.F16))

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("q", spec.act, Role.IN, "[T, H, 128], any pitch of T and H"),
            Tensor("k", spec.act, Role.IN, "[T, H, 128], any pitch of T and H"),
            Tensor("v", spec.act, Role.IN, "[T, HV, 128], any pitch of T and HV"),
            Tensor("g", DType.F32, Role.IN, "[T, HV], any pitch of T"),
            Tensor("beta", DType.F32, Role.IN, "[T, HV], any pitch of T"),
            Tensor("ssm_pool", DType.F32, Role.INOUT, "[slots, HV, 128, 128], any pitch of slots"),
            Tensor("query_start_loc", DType.I32, Role.IN, "[N+1], start_pitch words an offset"),
            Tensor("cache_indices", DType.I32, Role.IN, "[N], index_pitch words an index"),
            Tensor("has_initial_state", DType.U8, Role.IN, "[N]; no effect if all_initial is 1"),
            Tensor("track_state", DType.F32, Role.OUT, "[N, HV, 128, 128], only if tracks is 1"),
            Tensor("track_chunk_idx", DType.I32, Role.IN, "[N], track_pitch words an index; no effect if tracks is 0"),
            Tensor("chunk_states", DType.F32, Role.OUT, "[chunks of all rows, HV, 128, 128], only if keeps is 1"),
            Tensor("out", spec.act, Role.OUT, "[T, HV, 128] contiguous"),
            Tensor("head_gates", DType.F32, Role.OUT, "[NT, HV, 64], only if inspect"),
            Tensor("head_beta", DType.F32, Role.OUT, "[NT, HV, 64], only if inspect"),
            Tensor("lower_", DType.F32, Role.OUT, "[NT, HV, 64, 64], only if inspect"),
            Tensor("write", spec.act, Role.OUT, "[NT, HV, 2, 64, 64] if inspect, else [blocks, 2, 2, 64, 64]"),
            Tensor("erase", spec.act, Role.OUT, "[NT, HV, 2, 64, 64] if inspect, else [blocks, 2, 2, 64, 64]"),
            Tensor("w", spec.act, Role.OUT, "[NT, HV, 64, 128], only if inspect"),
            Tensor("h", spec.act, Role.OUT, "[NT, HV, 128, 128] if inspect, else [blocks, 2, 128, 128]"),
            Tensor("v_new", spec.act, Role.OUT, "[NT, HV, 2, 64, 128], only if inspect"),
            Tensor("product_space", DType.F32, Role.INOUT, "[blocks, 2, 2, 64, 64]"),
            Tensor("norm_space", DType.F32, Role.INOUT, "[blocks, 2, 4, 16, 16]"),
            Tensor("diagonal_space", spec.act, Role.INOUT, "[blocks, 2, 2, 2, 4, 16, 16]"),
            Tensor("weight_space", spec.act, Role.INOUT, "[blocks, 2, 2, 64, 64]"),
            Tensor("state_space", DType.F32, Role.INOUT, "[blocks, 128, 128]"),
            Tensor("identity_space", spec.act, Role.INOUT, "[blocks, 64, 64]"),
        ]

    @staticmethod
    def generate_source(act: DType) -> str:
        import tilelang.language as T

        from gdn_aot import chunk, tile
        from gdn_aot.chunk import DIAGONAL, SQUARE, STATE, TOKENS, C, D, order

        loaded = tile.Event("mte2", "v", 1)
        stored = tile.Event("mte3", "v", 1)
        ready = tile.Event("v", "mte3", 1)
        free = tile.Event("v", "mte2", 1)
        known = tile.Event("v", "s", 1)  # orders whatever the scalar unit issues later, too
        PRODUCTS_STORED, WRITES_STORED, OPERANDS_STORED, STATE_STORED, IDENTITY_STORED = 1, 2, 3, 4, 5
        KEYS, QUERIES = 0, 1
        WRITE, ERASE, WEIGHTS, KEY_FACTORS, QUERY_FACTORS = 0, 2, 4, 6, 8  # pairs of matrices in L1
        HALF = STATE // 2
        FLOATS = 8  # of a block of 32 bytes, of which a gate takes one
        KKT, WY, STATES, OUTPUTS = 3, 5, 6, 7  # numbers of stages
        tokens, heads = T.symbolic("tokens"), T.symbolic("heads")
        q_pitch, k_pitch, v_pitch = T.symbolic("q_pitch"), T.symbolic("k_pitch"), T.symbolic("v_pitch")
        g_pitch, beta_pitch = T.symbolic("g_pitch"), T.symbolic("beta_pitch")
        slots, pool_pitch = T.symbolic("slots"), T.symbolic("pool_pitch")
        starts, indices, flags = T.symbolic("starts"), T.symbolic("indices"), T.symbolic("flags")
        places, buffers = T.symbolic("places"), T.symbolic("buffers")

        @T.prim_func
        def main(
            q: T.Tensor((tokens, q_pitch), act),
            k: T.Tensor((tokens, k_pitch), act),
            v: T.Tensor((tokens, v_pitch), act),
            g: T.Tensor((tokens, g_pitch), "float32"),
            beta: T.Tensor((tokens, beta_pitch), "float32"),
            ssm_pool: T.Tensor((slots, pool_pitch), "float32"),
            query_start_loc: T.Tensor((starts,), "int32"),
            cache_indices: T.Tensor((indices,), "int32"),
            has_initial_state: T.Tensor((flags,), "uint8"),
            track_state: T.Tensor((tokens, heads, D, D), "float32"),
            track_chunk_idx: T.Tensor((indices,), "int32"),
            chunk_states: T.Tensor((tokens, heads, D, D), "float32"),
            out: T.Tensor((tokens, heads, D), act),
            head_gates: T.Tensor((places, C), "float32"),
            head_beta: T.Tensor((places, C), "float32"),
            lower_: T.Tensor((places, C, C), "float32"),
            write: T.Tensor((places, 2, C, C), act),
            erase: T.Tensor((places, 2, C, C), act),
            w: T.Tensor((places, C, D), act),
            h: T.Tensor((places, D, D), act),
            v_new: T.Tensor((places, 2, C, D), act),
            product_space: T.Tensor((buffers, 2, 2, C, C), "float32"),
            norm_space: T.Tensor((buffers, 2, DIAGONAL), "float32"),
            diagonal_space: T.Tensor((buffers, 2, 2, 2, DIAGONAL), act),
            weight_space: T.Tensor((buffers, 2, 2, C, C), act),
            state_space: T.Tensor((buffers, D, D), "float32"),
            identity_space: T.Tensor((buffers, C, C), act),
            blocks: T.int32,
            rows: T.int32,
            start_pitch: T.int32,
            index_pitch: T.int32,
            track_pitch: T.int32,
            q_head_pitch: T.int32,
            k_head_pitch: T.int32,
            v_head_pitch: T.int32,
            ratio: T.int32,
            all_initial: T.int32,
            update_state: T.int32,
            tracks: T.int32,
            keeps: T.int32,
            l2norm: T.int32,
            stop_after: T.int32,
            scale: T.float32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                q_l1 = T.alloc_L1((C, D), act)
                k_l1 = T.alloc_L1((C, D), act)
                v_l1 = T.alloc_L1((C, D), act)
                w_l1 = T.alloc_L1((C, D), act)
                state_l1 = T.alloc_L1((D, D), act)
                new_l1 = T.alloc_L1((2 * C, D), act)
                key_l1 = T.alloc_L1((2 * C, D), act)
                query_l1 = T.alloc_L1((C, D), act)
                negative_identity = T.alloc_L1((C, C), act)
                matrices_l1 = T.alloc_L1((chunk.operand_rows(10), chunk.BLOCK), act)
                products_l0 = T.alloc_L0C((C, C), "float32")
                tokens_l0 = T.alloc_L0C((C, D), "float32")
                state_l0 = T.alloc_L0C((D, D), "float32")
                state = T.alloc_ub((D, 64), "float32")
                mask = T.alloc_ub((C, C), "float32")
                identity = T.alloc_ub((C, C), "float32")
                values = T.alloc_ub((D, 64), "float32")  # half a state, two matrices, or what diagonals are made of
                matrices = T.alloc_ub((2 * C, C), "float32")  # products, then A; decay
                inverse = T.alloc_ub((C, C), "float32")
                results = T.alloc_ub((TOKENS,), act)
                diagonals = T.alloc_ub((4 * DIAGONAL,), act)
                pattern = T.alloc_ub((DIAGONAL,), "float32")
                factor_offsets = T.alloc_ub((DIAGONAL,), "int32")
                gate_blocks = T.alloc_ub((2 * C * FLOATS,), "float32")
                beta_blocks = T.alloc_ub((C * FLOATS,), "float32")
                gates = T.alloc_ub((2 * C,), "float32")  # of this chunk and of the last
                strengths = T.alloc_ub((C,), "float32")
                minus_gates = T.alloc_ub((C,), "float32")
                factors = T.alloc_ub((C,), "float32")
                squares = T.alloc_ub((C,), "float32")
                k_norms = T.alloc_ub((C,), "float32")
                q_norms = T.alloc_ub((C,), "float32")
                decay_rate = T.alloc_ub((C,), "float32")
                first_of_block = T.alloc_ub((C,), "int32")
                k_diagonal = T.alloc_ub((C,), "int32")  # offsets of the diagonal of a matrix, and of one in blocks
                q_diagonal = T.alloc_ub((C,), "int32")
                space = T.alloc_ub((C * 8,), "float32")
                base = T.alloc_var("int32", init=0)
                with T.Scope("C"):
                    tile.wait_other_cores(IDENTITY_STORED)
                    tile.load_operand(negative_identity, tile.at(identity_space, cid * SQUARE), C, C, C)
                    tile.load_operand(
                        matrices_l1, tile.at(identity_space, cid * SQUARE), chunk.operand_rows(10), chunk.BLOCK,
                        chunk.BLOCK, 1,
                    )  # fmt: skip
                    for t in T.serial(T.ceildiv(rows * heads - cid, blocks)):
                        n = (cid + t * blocks) // heads
                        head = (cid + t * blocks) % heads
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        slot = cache_indices[n * index_pitch]
                        if slot >= 0 and slot < slots and stop_after >= KKT:
                            # Step c multiplies the inputs of chunk c and finishes chunk c - 1.
                            for c in T.serial(T.ceildiv(length, C) + 1):
                                place = tile.select(
                                    stop_after < OUTPUTS, (begin // C + n + c - 1) * heads + head, cid * 2 + (c + 1) % 2
                                )
                                side = cid * 2 + (c + 1) % 2
                                first = begin + (c - 1) * C
                                if c > 0:
                                    tile.wait_other_cores(OPERANDS_STORED)
                                    if stop_after >= WY:
                                        chunk.load_lower_pair(
                                            chunk.operand(matrices_l1, ERASE), tile.at(erase, place * (2 * SQUARE))
                                        )
                                        chunk.keep_multiplied(w_l1, tokens_l0, chunk.operand(matrices_l1, ERASE), k_l1)
                                        if stop_after < OUTPUTS:
                                            tile.store_product(tile.at(w, place * TOKENS), tokens_l0, C, D, D)
                                    if stop_after >= STATES:
                                        chunk.load_diagonal(
                                            chunk.operand(matrices_l1, KEY_FACTORS),
                                            tile.at(diagonal_space, (side * 2 + KEYS) * (2 * DIAGONAL)),
                                        )
                                        chunk.keep_multiplied(
                                            key_l1, tokens_l0, chunk.operand(matrices_l1, KEY_FACTORS), k_l1
                                        )
                                        chunk.keep_rest(tile.at(key_l1, TOKENS), tokens_l0, key_l1, negative_identity)
                                    if stop_after >= OUTPUTS:
                                        chunk.load_diagonal(
                                            chunk.operand(matrices_l1, QUERY_FACTORS),
                                            tile.at(diagonal_space, (side * 2 + QUERIES) * (2 * DIAGONAL)),
                                        )
                                        chunk.keep_multiplied(
                                            query_l1, tokens_l0, chunk.operand(matrices_l1, QUERY_FACTORS), q_l1
                                        )
                                if c * C < length:
                                    chunk.load_tokens(
                                        k_l1, tile.at(k, (first + C) * k_pitch + head // ratio * k_head_pitch), k_pitch,
                                        length - c * C,
                                    )  # fmt: skip
                                    tile.product(products_l0, k_l1, k_l1, C, C, D, b_transposed=True)
                                    chunk.store_lower_product(
                                        tile.at(product_space, (cid * 4 + c % 2 * 2 + KEYS) * SQUARE), products_l0
                                    )
                                    if stop_after >= OUTPUTS:
                                        chunk.load_tokens(
                                            q_l1, tile.at(q, (first + C) * q_pitch + head // ratio * q_head_pitch),
                                            q_pitch, length - c * C,
                                        )  # fmt: skip
                                        tile.product(products_l0, q_l1, k_l1, C, C, D, b_transposed=True)
                                        chunk.store_lower_product(
                                            tile.at(product_space, (cid * 4 + c % 2 * 2 + QUERIES) * SQUARE),
                                            products_l0,
                                        )
                                        tile.product(products_l0, q_l1, q_l1, C, C, D, b_transposed=True)
                                        chunk.store_diagonal_product(
                                            tile.at(norm_space, (cid * 2 + c % 2) * DIAGONAL), products_l0
                                        )
                                    tile.signal_other_cores("fix", PRODUCTS_STORED)
                                if c > 0 and stop_after >= STATES:
                                    chunk.load_lower_pair(
                                        chunk.operand(matrices_l1, WRITE), tile.at(write, place * (2 * SQUARE))
                                    )
                                    chunk.load_tokens(
                                        v_l1, tile.at(v, first * v_pitch + head * v_head_pitch), v_pitch,
                                        length - (c - 1) * C,
                                    )  # fmt: skip
                                    if stop_after >= OUTPUTS:
                                        chunk.load_lower_pair(
                                            chunk.operand(matrices_l1, WEIGHTS),
                                            tile.at(weight_space, side * (2 * SQUARE)),
                                        )
                                    chunk.multiply_tokens(tokens_l0, chunk.operand(matrices_l1, WRITE), v_l1, False)
                                    tile.wait_other_cores(STATE_STORED)
                                    tile.load_operand(state_l1, tile.at(h, place * STATE), D, D, D)
                                    tile.product(tokens_l0, w_l1, state_l1, C, D, D, b_transposed=True, add=True)
                                    chunk.keep_tokens(new_l1, tokens_l0)
                                    if stop_after < OUTPUTS:
                                        tile.store_product(tile.at(v_new, place * (2 * TOKENS)), tokens_l0, C, D, D)
                                    chunk.keep_rest(tile.at(new_l1, TOKENS), tokens_l0, new_l1, negative_identity)
                                    if stop_after < OUTPUTS:
                                        tile.store_product(
                                            tile.at(v_new, place * (2 * TOKENS) + TOKENS), tokens_l0, C, D, D
                                        )
                                    chunk.multiply_writes(state_l0, new_l1, key_l1)
                                    tile.store_product(tile.at(state_space, cid * STATE), state_l0, D, D, D)
                                    tile.signal_other_cores("fix", WRITES_STORED)
                                    if stop_after >= OUTPUTS:
                                        tile.product(tokens_l0, query_l1, state_l1, C, D, D, b_transposed=True)
                                        chunk.multiply_weights(tokens_l0, chunk.operand(matrices_l1, WEIGHTS), new_l1)
                                        tile.store_product(
                                            tile.at(out, (first * heads + head) * D), tokens_l0, C, D, heads * D,
                                            tile.smaller(C, length - (c - 1) * C),
                                        )  # fmt: skip
                with T.Scope("V"):
                    chunk.make_identity(identity, mask)
                    tile.vector_barrier()
                    chunk.store_negative_identity(tile.at(identity_space, cid * SQUARE), identity, values, results, vid)
                    tile.signal_other_cores("mte3", IDENTITY_STORED)
                    order(stored)
                    chunk.make_mask(mask, 1)
                    chunk.make_diagonal_tables(pattern, factor_offsets, identity)
                    chunk.make_diagonal_offsets(k_diagonal, q_diagonal, first_of_block)
                    tile.vector_barrier()
                    tile.sequence(first_of_block, C)
                    tile.vector_barrier()
                    tile.mul_scalar(first_of_block, first_of_block, FLOATS * chunk.FLOAT_BYTES, C)
                    if stop_after >= OUTPUTS:
                        tile.fill(values, 0.0, TOKENS)
                        tile.vector_barrier()
                        tile.convert(results, values, TOKENS)
                        order(ready)
                        for n in T.serial(rows):
                            begin = query_start_loc[n * start_pitch]
                            length = query_start_loc[(n + 1) * start_pitch] - begin
                            slot = cache_indices[n * index_pitch]
                            if slot < 0 or slot >= slots:
                                chunk.store_zero_tokens(out, results, begin, length, cid * 2 + vid, blocks * 2, heads)
                        end = query_start_loc[rows * start_pitch]
                        chunk.store_zero_tokens(out, results, end, tokens - end, cid * 2 + vid, blocks * 2, heads)
                    tile.signal(stored)
                    for t in T.serial(T.ceildiv(rows * heads - cid, blocks)):
                        n = (cid + t * blocks) // heads
                        head = (cid + t * blocks) % heads
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        slot = cache_indices[n * index_pitch]
                        resumes = has_initial_state[n]
                        wanted = tile.select(tracks != 0, track_chunk_idx[n * track_pitch], -1)
                        tile.wait(stored)
                        tile.vector_barrier()
                        base = 0
                        for m in T.serial(n * keeps):
                            base = base + T.ceildiv(
                                query_start_loc[(m + 1) * start_pitch] - query_start_loc[m * start_pitch], C
                            )
                        if slot >= 0 and slot < slots:
                            if all_initial + resumes != 0:
                                order(free)
                                tile.load(
                                    state, tile.at(ssm_pool, slot * pool_pitch + head * STATE + vid * HALF), HALF, HALF
                                )
                                order(loaded)
                            else:
                                tile.fill(state, 0.0, HALF)
                            # Step c prepares chunk c and finishes chunk c - 1.
                            for c in T.serial(T.ceildiv(length, C) + 1):
                                number = (begin // C + n + c) * heads + head
                                side = cid * 2 + c % 2
                                place = tile.select(stop_after < OUTPUTS, number, side)
                                first = begin + c * C
                                count = tile.smaller(C, length - c * C)
                                if c * C < length:
                                    # These copies clear their buffers first, with flags that also order what follows.
                                    tile.vector_barrier()
                                    tile.load(
                                        gate_blocks, tile.at(g, first * g_pitch + head), 1, FLOATS, rows=count,
                                        max_rows=C, pitch=g_pitch,
                                    )  # fmt: skip
                                    tile.load(
                                        beta_blocks, tile.at(beta, first * beta_pitch + head), 1, FLOATS, rows=count,
                                        max_rows=C, pitch=beta_pitch,
                                    )  # fmt: skip
                                    order(loaded)
                                    chunk.cumulate(gate_blocks, FLOATS)
                                    tile.vector_barrier()
                                    tile.gather(tile.at(gates, c % 2 * C), gate_blocks, first_of_block, 0, C)
                                    tile.gather(strengths, beta_blocks, first_of_block, 0, C)
                                    if stop_after >= KKT:
                                        tile.wait_other_cores(PRODUCTS_STORED)
                                    if (c + vid) % 2 == 0:
                                        order(known)
                                        if stop_after < OUTPUTS:
                                            tile.store(tile.at(head_gates, number * C), tile.at(gates, c % 2 * C), C, C)
                                            tile.store(tile.at(head_beta, number * C), strengths, C, C)
                                        if stop_after >= KKT:
                                            # A
                                            chunk.load_lower(
                                                matrices, tile.at(product_space, (side * 2 + KEYS) * SQUARE)
                                            )
                                            order(loaded)
                                            tile.fill(k_norms, 1.0, C)
                                            tile.mul_scalar(minus_gates, tile.at(gates, c % 2 * C), -1.0, C)
                                            if l2norm != 0:
                                                tile.gather(squares, matrices, k_diagonal, 0, C)
                                                tile.vector_barrier()
                                                chunk.inverse_roots(k_norms, squares)
                                            tile.vector_barrier()
                                            chunk.decay_between(tile.at(matrices, SQUARE), minus_gates, mask, space)
                                            tile.mul(factors, strengths, k_norms, C)
                                            tile.vector_barrier()
                                            tile.mul(matrices, matrices, tile.at(matrices, SQUARE), SQUARE)
                                            tile.scale_rows(matrices, matrices, factors, space, C)
                                            if l2norm != 0:
                                                tile.vector_barrier()
                                                chunk.scale_columns(matrices, matrices, k_norms)
                                            if stop_after < OUTPUTS:
                                                order(ready)
                                                tile.store(tile.at(lower_, number * SQUARE), matrices, SQUARE, SQUARE)
                                            tile.vector_barrier()
                                            chunk.invert(inverse, matrices, identity, values, space)
                                            # its products with strengths
                                            tile.exp(minus_gates, tile.at(gates, c % 2 * C), C)
                                            tile.vector_barrier()
                                            tile.mul(factors, factors, minus_gates, C)
                                            chunk.scale_columns(values, inverse, strengths)
                                            tile.vector_barrier()
                                            tile.mul_scalar(factors, factors, -1.0, C)
                                            order(stored)
                                            chunk.split(
                                                results, tile.at(results, SQUARE), values, tile.at(values, SQUARE),
                                                SQUARE,
                                            )  # fmt: skip
                                            order(ready)
                                            chunk.store_lower_pair(tile.at(write, place * (2 * SQUARE)), results)
                                            tile.vector_barrier()
                                            chunk.scale_columns(values, inverse, factors)
                                            order(stored)
                                            tile.vector_barrier()
                                            chunk.split(
                                                results, tile.at(results, SQUARE), values, tile.at(values, SQUARE),
                                                SQUARE,
                                            )  # fmt: skip
                                            order(ready)
                                            chunk.store_lower_pair(tile.at(erase, place * (2 * SQUARE)), results)
                                            # what keys are scaled by
                                            chunk.key_factors(
                                                factors, tile.at(gates, c % 2 * C), gates[c % 2 * C + C - 1]
                                            )
                                            tile.vector_barrier()
                                            tile.mul(factors, factors, k_norms, C)
                                            tile.vector_barrier()
                                            chunk.make_diagonal(diagonals, factors, pattern, factor_offsets, values)
                                            order(ready)
                                            tile.store(
                                                tile.at(diagonal_space, (side * 2 + KEYS) * (2 * DIAGONAL)), diagonals,
                                                2 * DIAGONAL, 2 * DIAGONAL,
                                            )  # fmt: skip
                                        if stop_after >= OUTPUTS:
                                            # what queries are scaled by
                                            chunk.load_lower(
                                                matrices, tile.at(product_space, (side * 2 + QUERIES) * SQUARE)
                                            )
                                            tile.load(values, tile.at(norm_space, side * DIAGONAL), DIAGONAL, DIAGONAL)
                                            order(loaded)
                                            tile.fill(q_norms, 1.0, C)
                                            tile.exp(factors, tile.at(gates, c % 2 * C), C)
                                            if l2norm != 0:
                                                tile.gather(squares, values, q_diagonal, 0, C)
                                                tile.vector_barrier()
                                                chunk.inverse_roots(q_norms, squares)
                                            tile.vector_barrier()
                                            tile.mul_scalar(q_norms, q_norms, scale, C)
                                            tile.vector_barrier()
                                            tile.mul(factors, factors, q_norms, C)
                                            tile.vector_barrier()
                                            chunk.make_diagonal(
                                                tile.at(diagonals, 2 * DIAGONAL), factors, pattern, factor_offsets,
                                                values,
                                            )  # fmt: skip
                                            order(ready)
                                            tile.store(
                                                tile.at(diagonal_space, (side * 2 + QUERIES) * (2 * DIAGONAL)),
                                                tile.at(diagonals, 2 * DIAGONAL), 2 * DIAGONAL, 2 * DIAGONAL,
                                            )  # fmt: skip
                                            # weights
                                            tile.mul(matrices, matrices, tile.at(matrices, SQUARE), SQUARE)
                                            tile.scale_rows(matrices, matrices, q_norms, space, C)
                                            if l2norm != 0:
                                                tile.vector_barrier()
                                                chunk.scale_columns(matrices, matrices, k_norms)
                                            order(stored)
                                            tile.vector_barrier()
                                            chunk.split(results, tile.at(results, SQUARE), matrices, values, SQUARE)
                                            order(ready)
                                            chunk.store_lower_pair(tile.at(weight_space, side * (2 * SQUARE)), results)
                                    if stop_after >= KKT:
                                        tile.signal_other_cores("mte3", OPERANDS_STORED)
                                if stop_after >= STATES:
                                    if c > 0:
                                        order(free)
                                        tile.wait_other_cores(WRITES_STORED)
                                        tile.load(values, tile.at(state_space, cid * STATE + vid * HALF), HALF, HALF)
                                        order(loaded)
                                        tile.exp(decay_rate, tile.at(gates, (c + 1) % 2 * C), C)
                                        order(known)
                                        chunk.advance(state, values, decay_rate[C - 1])
                                    if c == wanted:
                                        order(ready)
                                        tile.store(
                                            tile.at(track_state, (n * heads + head) * STATE + vid * HALF), state, HALF,
                                            HALF,
                                        )  # fmt: skip
                                        order(stored)
                                    if c * C < length:
                                        if keeps != 0:
                                            order(ready)
                                            tile.store(
                                                tile.at(
                                                    chunk_states, ((base + c) * heads + head) * STATE + vid * HALF
                                                ),
                                                state, HALF, HALF,
                                            )  # fmt: skip
                                        order(stored)
                                        tile.vector_barrier()
                                        tile.convert(results, state, HALF)
                                        order(ready)
                                        tile.store(tile.at(h, place * STATE + vid * HALF), results, HALF, HALF)
                                        tile.signal_other_cores("mte3", STATE_STORED)
                            if update_state != 0 and stop_after >= STATES:
                                order(ready)
                                tile.store(
                                    tile.at(ssm_pool, slot * pool_pitch + head * STATE + vid * HALF), state, HALF, HALF
                                )
                        else:
                            tile.fill(state, 0.0, HALF)
                            order(ready)
                            if wanted >= 0 and wanted <= T.ceildiv(length, C):
                                tile.store(
                                    tile.at(track_state, (n * heads + head) * STATE + vid * HALF), state, HALF, HALF
                                )
                            for c in T.serial(T.ceildiv(length, C) * keeps):
                                tile.store(
                                    tile.at(chunk_states, ((base + c) * heads + head) * STATE + vid * HALF), state,
                                    HALF, HALF,
                                )  # fmt: skip
                        tile.signal(stored)
                    tile.wait(stored)

        return lower(main)
