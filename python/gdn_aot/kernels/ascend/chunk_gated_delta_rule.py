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

    The vector cores take the chunks in turns for what does not depend on the state (norms, gates, A, its inverse,
    scaled keys and queries, weights), one chunk ahead of the cube core; both advance half of the float32 state each,
    which never leaves their unified buffers between chunks. What the cores exchange goes through a workspace of the
    block that fits the L2 cache: no tensor of T tokens is written but ``out``, nothing is zeroed before, and no launch
    follows another. ``write v + w S^T`` and both terms of ``o`` are summed in L0C.

    ``stop_after`` ends every chunk after that stage (1 to 7); below 7 the results of the stages are stored in the
    layouts of the stand-alone kernels, to be looked at.
    """

    NAME = "chunk_gated_delta_rule"
    CONSTANTS = {"chunk": 64, "head_dim": 128, "max_heads": 64}  # noqa: RUF012
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
            Tensor("out", spec.act, Role.OUT, "[T, HV, 128] contiguous"),
            Tensor("head_gates", DType.F32, Role.OUT, "[NT, HV, 64], only if inspect"),
            Tensor("head_beta", DType.F32, Role.OUT, "[NT, HV, 64], only if inspect"),
            Tensor("lower_", DType.F32, Role.OUT, "[NT, HV, 64, 64], only if inspect"),
            Tensor("write", spec.act, Role.OUT, "[NT, HV, 64, 64] if inspect, else [blocks, 2, 64, 64]"),
            Tensor("erase", spec.act, Role.OUT, "[NT, HV, 64, 64] if inspect, else [blocks, 2, 64, 64]"),
            Tensor("w", spec.act, Role.OUT, "[NT, HV, 64, 128] if inspect, else [blocks, 2, 64, 128]"),
            Tensor("h", spec.act, Role.OUT, "[NT, HV, 128, 128] if inspect, else [blocks, 2, 128, 128]"),
            Tensor("v_new", spec.act, Role.OUT, "[NT, HV, 64, 128] if inspect, else [blocks, 2, 64, 128]"),
            Tensor("product_space", DType.F32, Role.INOUT, "[blocks, 2, 2, 64, 64]"),
            Tensor("token_space", spec.act, Role.INOUT, "[blocks, 2, 2, 64, 128]"),
            Tensor("weight_space", spec.act, Role.INOUT, "[blocks, 2, 64, 64]"),
            Tensor("state_space", DType.F32, Role.INOUT, "[blocks, 128, 128]"),
        ]

    @staticmethod
    def generate_source(act: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile
        from gdn_aot.chunk import (
            SQUARE,
            STATE,
            TOKENS,
            C,
            D,
            advance,
            cumulate,
            decay_between,
            inverse_norms,
            invert,
            key_factors,
            make_identity,
            make_mask,
            make_pairs,
            order,
            scale_columns,
            scale_tokens,
            store_zero_tokens,
        )

        product_stored = tile.Event("fix", "mte2", 1)
        loaded = tile.Event("mte2", "v", 1)
        stored = tile.Event("mte3", "v", 1)
        ready = tile.Event("v", "mte3", 1)
        free = tile.Event("v", "mte2", 1)
        known = tile.Event("v", "s", 1)  # orders whatever the scalar unit issues later, too
        PRODUCTS_STORED, WRITES_STORED, OPERANDS_STORED, STATE_STORED = 1, 2, 3, 4
        KEYS, QUERIES = 0, 1
        HALF = STATE // 2
        BLOCK = 8  # floats of a block of 32 bytes, of which a gate takes one
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
            out: T.Tensor((tokens, heads, D), act),
            head_gates: T.Tensor((places, C), "float32"),
            head_beta: T.Tensor((places, C), "float32"),
            lower_: T.Tensor((places, C, C), "float32"),
            write: T.Tensor((places, C, C), act),
            erase: T.Tensor((places, C, C), act),
            w: T.Tensor((places, C, D), act),
            h: T.Tensor((places, D, D), act),
            v_new: T.Tensor((places, C, D), act),
            product_space: T.Tensor((buffers, 2, 2, C, C), "float32"),
            token_space: T.Tensor((buffers, 2, 2, C, D), act),
            weight_space: T.Tensor((buffers, 2, C, C), act),
            state_space: T.Tensor((buffers, D, D), "float32"),
            blocks: T.int32,
            rows: T.int32,
            start_pitch: T.int32,
            index_pitch: T.int32,
            q_head_pitch: T.int32,
            k_head_pitch: T.int32,
            v_head_pitch: T.int32,
            ratio: T.int32,
            all_initial: T.int32,
            update_state: T.int32,
            l2norm: T.int32,
            stop_after: T.int32,
            scale: T.float32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                q_l1 = T.alloc_L1((C, D), act)
                k_l1 = T.alloc_L1((C, D), act)
                v_l1 = T.alloc_L1((C, D), act)
                write_l1 = T.alloc_L1((C, C), act)
                erase_l1 = T.alloc_L1((C, C), act)
                w_l1 = T.alloc_L1((C, D), act)
                state_l1 = T.alloc_L1((D, D), act)
                new_l1 = T.alloc_L1((C, D), act)
                key_l1 = T.alloc_L1((C, D), act)
                query_l1 = T.alloc_L1((C, D), act)
                weight_l1 = T.alloc_L1((C, C), act)
                products_l0 = T.alloc_L0C((C, C), "float32")
                tokens_l0 = T.alloc_L0C((C, D), "float32")
                state_l0 = T.alloc_L0C((D, D), "float32")
                state = T.alloc_ub((D, 64), "float32")
                mask = T.alloc_ub((C, C), "float32")
                identity = T.alloc_ub((C, C), "float32")
                values = T.alloc_ub((D, 64), "float32")  # C tokens, half a state, or two matrices
                matrices = T.alloc_ub((2 * C, C), "float32")  # products, then A; decay
                inverse = T.alloc_ub((C, C), "float32")
                raw = T.alloc_ub((TOKENS,), act)
                results = T.alloc_ub((TOKENS,), act)
                gate_blocks = T.alloc_ub((2 * C * BLOCK,), "float32")
                beta_blocks = T.alloc_ub((C * BLOCK,), "float32")
                gates = T.alloc_ub((2 * C,), "float32")  # of this chunk and of the last
                strengths = T.alloc_ub((C,), "float32")
                minus_gates = T.alloc_ub((C,), "float32")
                factors = T.alloc_ub((C,), "float32")
                k_norms = T.alloc_ub((C,), "float32")
                q_norms = T.alloc_ub((C,), "float32")
                decay_rate = T.alloc_ub((C,), "float32")
                factors_twice = T.alloc_ub((2 * C,), "float32")
                pairs = T.alloc_ub((2 * C,), "int32")
                first_of_block = T.alloc_ub((C,), "int32")
                space = T.alloc_ub((2 * C * 8,), "float32")
                with T.Scope("C"):
                    for t in T.serial(T.ceildiv(rows * heads - cid, blocks)):
                        n = (cid + t * blocks) // heads
                        head = (cid + t * blocks) % heads
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        slot = cache_indices[n * index_pitch]
                        if slot >= 0 and stop_after >= KKT:
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
                                        tile.load_operand(erase_l1, tile.at(erase, place * SQUARE), C, C, C)
                                        tile.product(tokens_l0, erase_l1, k_l1, C, D, C)
                                        tile.store_product(tile.at(w, place * TOKENS), tokens_l0, C, D, D)
                                if c * C < length:
                                    tile.load_operand(
                                        k_l1, tile.at(k, (first + C) * k_pitch + head // ratio * k_head_pitch), C, D,
                                        k_pitch, tile.smaller(C, length - c * C),
                                    )  # fmt: skip
                                    tile.product(products_l0, k_l1, k_l1, C, C, D, b_transposed=True)
                                    tile.store_product(
                                        tile.at(product_space, (cid * 4 + c % 2 * 2 + KEYS) * SQUARE),
                                        products_l0,
                                        C,
                                        C,
                                        C,
                                    )
                                    if stop_after >= OUTPUTS:
                                        tile.load_operand(
                                            q_l1, tile.at(q, (first + C) * q_pitch + head // ratio * q_head_pitch), C,
                                            D, q_pitch, tile.smaller(C, length - c * C),
                                        )  # fmt: skip
                                        tile.product(products_l0, q_l1, k_l1, C, C, D, b_transposed=True)
                                        tile.store_product(
                                            tile.at(product_space, (cid * 4 + c % 2 * 2 + QUERIES) * SQUARE),
                                            products_l0, C, C, C,
                                        )  # fmt: skip
                                    tile.signal_other_cores("fix", PRODUCTS_STORED)
                                if c > 0 and stop_after >= STATES:
                                    order(product_stored)
                                    tile.load_operand(w_l1, tile.at(w, place * TOKENS), C, D, D)
                                    tile.load_operand(write_l1, tile.at(write, place * SQUARE), C, C, C)
                                    tile.load_operand(
                                        v_l1, tile.at(v, first * v_pitch + head * v_head_pitch), C, D, v_pitch,
                                        tile.smaller(C, length - (c - 1) * C),
                                    )  # fmt: skip
                                    tile.load_operand(key_l1, tile.at(token_space, (side * 2 + KEYS) * TOKENS), C, D, D)
                                    if stop_after >= OUTPUTS:
                                        tile.load_operand(
                                            query_l1, tile.at(token_space, (side * 2 + QUERIES) * TOKENS), C, D, D
                                        )
                                        tile.load_operand(weight_l1, tile.at(weight_space, side * SQUARE), C, C, C)
                                    tile.product(tokens_l0, write_l1, v_l1, C, D, C)
                                    tile.wait_other_cores(STATE_STORED)
                                    tile.load_operand(state_l1, tile.at(h, place * STATE), D, D, D)
                                    tile.product(tokens_l0, w_l1, state_l1, C, D, D, b_transposed=True, add=True)
                                    tile.store_product(tile.at(v_new, place * TOKENS), tokens_l0, C, D, D)
                                    order(product_stored)
                                    tile.load_operand(new_l1, tile.at(v_new, place * TOKENS), C, D, D)
                                    tile.product(state_l0, new_l1, key_l1, D, D, C, a_transposed=True)
                                    tile.store_product(tile.at(state_space, cid * STATE), state_l0, D, D, D)
                                    tile.signal_other_cores("fix", WRITES_STORED)
                                    if stop_after >= OUTPUTS:
                                        tile.product(tokens_l0, query_l1, state_l1, C, D, D, b_transposed=True)
                                        tile.product(tokens_l0, weight_l1, new_l1, C, D, C, add=True)
                                        tile.store_product(
                                            tile.at(out, (first * heads + head) * D), tokens_l0, C, D, heads * D,
                                            tile.smaller(C, length - (c - 1) * C),
                                        )  # fmt: skip
                with T.Scope("V"):
                    make_identity(identity, mask)
                    tile.vector_barrier()
                    make_mask(mask, 1)
                    make_pairs(pairs)
                    tile.sequence(first_of_block, C)
                    tile.vector_barrier()
                    tile.mul_scalar(first_of_block, first_of_block, BLOCK * 4, C)
                    if stop_after >= OUTPUTS:
                        tile.fill(values, 0.0, TOKENS)
                        tile.vector_barrier()
                        tile.convert(raw, values, TOKENS)
                        order(ready)
                        for n in T.serial(rows):
                            begin = query_start_loc[n * start_pitch]
                            length = query_start_loc[(n + 1) * start_pitch] - begin
                            slot = cache_indices[n * index_pitch]
                            if slot < 0:
                                store_zero_tokens(out, raw, begin, length, cid * 2 + vid, blocks * 2, heads)
                        end = query_start_loc[rows * start_pitch]
                        store_zero_tokens(out, raw, end, tokens - end, cid * 2 + vid, blocks * 2, heads)
                    tile.signal(stored)
                    for t in T.serial(T.ceildiv(rows * heads - cid, blocks)):
                        n = (cid + t * blocks) // heads
                        head = (cid + t * blocks) % heads
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        slot = cache_indices[n * index_pitch]
                        resumes = has_initial_state[n]
                        if slot >= 0:
                            tile.wait(stored)
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
                                        gate_blocks, tile.at(g, first * g_pitch + head), 1, BLOCK, rows=count,
                                        max_rows=C, pitch=g_pitch,
                                    )  # fmt: skip
                                    tile.load(
                                        beta_blocks, tile.at(beta, first * beta_pitch + head), 1, BLOCK, rows=count,
                                        max_rows=C, pitch=beta_pitch,
                                    )  # fmt: skip
                                    if (c + vid) % 2 == 0:
                                        tile.load(
                                            raw, tile.at(k, first * k_pitch + head // ratio * k_head_pitch), D, D,
                                            rows=count, max_rows=C, pitch=k_pitch,
                                        )  # fmt: skip
                                    order(loaded)
                                    cumulate(gate_blocks, BLOCK)
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
                                            # keys
                                            tile.convert(values, raw, TOKENS)
                                            tile.fill(k_norms, 1.0, C)
                                            tile.mul_scalar(minus_gates, tile.at(gates, c % 2 * C), -1.0, C)
                                            tile.vector_barrier()
                                            if l2norm != 0:
                                                inverse_norms(k_norms, values, matrices, factors_twice)
                                            key_factors(factors, tile.at(gates, c % 2 * C), gates[c % 2 * C + C - 1])
                                            tile.vector_barrier()
                                            tile.mul(factors, factors, k_norms, C)
                                            tile.vector_barrier()
                                            scale_tokens(values, factors, pairs, factors_twice, space)
                                            tile.vector_barrier()
                                            tile.convert(results, values, TOKENS)
                                            order(ready)
                                            tile.store(
                                                tile.at(token_space, (side * 2 + KEYS) * TOKENS),
                                                results,
                                                TOKENS,
                                                TOKENS,
                                            )
                                            # A
                                            order(free)
                                            tile.load(
                                                matrices, tile.at(product_space, (side * 2 + KEYS) * SQUARE), SQUARE,
                                                SQUARE,
                                            )  # fmt: skip
                                            if stop_after >= OUTPUTS:
                                                tile.load(
                                                    raw, tile.at(q, first * q_pitch + head // ratio * q_head_pitch), D,
                                                    D, rows=count, max_rows=C, pitch=q_pitch,
                                                )  # fmt: skip
                                            order(loaded)
                                            decay_between(tile.at(matrices, SQUARE), minus_gates, mask, space)
                                            tile.mul(factors, strengths, k_norms, C)
                                            tile.vector_barrier()
                                            tile.mul(matrices, matrices, tile.at(matrices, SQUARE), SQUARE)
                                            tile.scale_rows(matrices, matrices, factors, space, C)
                                            if l2norm != 0:
                                                tile.vector_barrier()
                                                scale_columns(matrices, matrices, k_norms)
                                            if stop_after < OUTPUTS:
                                                order(ready)
                                                tile.store(tile.at(lower_, number * SQUARE), matrices, SQUARE, SQUARE)
                                            tile.vector_barrier()
                                            invert(inverse, matrices, identity, values, space)
                                            # its products with strengths
                                            tile.exp(minus_gates, tile.at(gates, c % 2 * C), C)
                                            tile.vector_barrier()
                                            tile.mul(factors, factors, minus_gates, C)
                                            scale_columns(values, inverse, strengths)
                                            tile.vector_barrier()
                                            tile.mul_scalar(factors, factors, -1.0, C)
                                            tile.vector_barrier()
                                            scale_columns(tile.at(values, SQUARE), inverse, factors)
                                            order(stored)
                                            tile.vector_barrier()
                                            tile.convert(results, values, TOKENS)
                                            order(ready)
                                            tile.store(tile.at(write, place * SQUARE), results, SQUARE, SQUARE)
                                            tile.store(
                                                tile.at(erase, place * SQUARE), tile.at(results, SQUARE), SQUARE, SQUARE
                                            )
                                        if stop_after >= OUTPUTS:
                                            # queries
                                            order(free)
                                            tile.load(
                                                matrices, tile.at(product_space, (side * 2 + QUERIES) * SQUARE), SQUARE,
                                                SQUARE,
                                            )  # fmt: skip
                                            tile.vector_barrier()
                                            tile.convert(values, raw, TOKENS)
                                            tile.fill(q_norms, 1.0, C)
                                            tile.vector_barrier()
                                            if l2norm != 0:
                                                inverse_norms(q_norms, values, inverse, factors_twice)
                                                tile.vector_barrier()
                                            tile.mul_scalar(q_norms, q_norms, scale, C)
                                            tile.exp(factors, tile.at(gates, c % 2 * C), C)
                                            tile.vector_barrier()
                                            tile.mul(factors, factors, q_norms, C)
                                            tile.vector_barrier()
                                            scale_tokens(values, factors, pairs, factors_twice, space)
                                            order(stored)
                                            tile.vector_barrier()
                                            tile.convert(results, values, TOKENS)
                                            order(ready)
                                            tile.store(
                                                tile.at(token_space, (side * 2 + QUERIES) * TOKENS), results, TOKENS,
                                                TOKENS,
                                            )  # fmt: skip
                                            # weights
                                            order(loaded)
                                            tile.mul(matrices, matrices, tile.at(matrices, SQUARE), SQUARE)
                                            tile.scale_rows(matrices, matrices, q_norms, space, C)
                                            if l2norm != 0:
                                                tile.vector_barrier()
                                                scale_columns(matrices, matrices, k_norms)
                                            tile.vector_barrier()
                                            tile.convert(raw, matrices, SQUARE)
                                            order(ready)
                                            tile.store(tile.at(weight_space, side * SQUARE), raw, SQUARE, SQUARE)
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
                                        advance(state, values, decay_rate[C - 1])
                                    if c * C < length:
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
                            tile.signal(stored)
                    tile.wait(stored)

        return lower(main)
