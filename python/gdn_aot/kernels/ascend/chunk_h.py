"""States before every chunk, and what every token writes to them."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel


@dataclass(frozen=True)
class Specialization:
    act: DType


@register_kernel
class ChunkH:
    """``v_new = write v + w S^T``; ``S <- e^G_last S + v_new^T diag(e^(G_last - G)) k``, chunk after chunk of a row.

    A task is (row, value head). Each vector core keeps half of the state in float32 in its unified buffer from the
    first chunk to the last; the cube core gets it rounded to the activation dtype, through ``h``. While the cube core
    works on chunk c, the vector cores in turns make the diagonal matrix that scales the keys of chunk c + 1, and the
    cube core loads what it needs of chunk c + 1 before it waits for its state. ``v_new`` and scaled keys are kept in
    two parts, rounded and rest. The two flags between the cores order every reuse of a buffer: a core that sees the
    writes of chunk c knows that all stores before its state are done.
    """

    NAME = "chunk_h"
    CONSTANTS = {"chunk": 64, "head_dim": 128}
    SPECIALIZATIONS = tuple(Specialization(act) for act in (DType.BF16, DType.F16))

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("k", spec.act, Role.IN, "[T, H, 128], any pitch of T and H"),
            Tensor("v", spec.act, Role.IN, "[T, HV, 128], any pitch of T and HV"),
            Tensor("head_gates", DType.F32, Role.IN, "[NT, HV, 64] contiguous"),
            Tensor("write", spec.act, Role.IN, "[NT, HV, 2, 64, 64] contiguous"),
            Tensor("w", spec.act, Role.IN, "[NT, HV, 64, 128] contiguous"),
            Tensor("ssm_pool", DType.F32, Role.INOUT, "[slots, HV, 128, 128], any pitch of slots"),
            Tensor("query_start_loc", DType.I32, Role.IN, "[N+1], start_pitch words an offset"),
            Tensor("cache_indices", DType.I32, Role.IN, "[N], index_pitch words an index"),
            Tensor("has_initial_state", DType.U8, Role.IN, "[N]; no effect if all_initial is 1"),
            Tensor("h", spec.act, Role.OUT, "[NT, HV, 128, 128] contiguous"),
            Tensor("v_new", spec.act, Role.OUT, "[NT, HV, 2, 64, 128] contiguous"),
            Tensor("diagonal_space", spec.act, Role.INOUT, "[blocks, 2, 2, 4, 16, 16]"),
            Tensor("state_space", DType.F32, Role.INOUT, "[blocks, 128, 128]"),
            Tensor("identity_space", spec.act, Role.INOUT, "[blocks, 64, 64]"),
        ]

    @staticmethod
    def generate_source(act: DType) -> str:
        import tilelang.language as T

        from gdn_aot import chunk, tile
        from gdn_aot.chunk import DIAGONAL, SQUARE, STATE, TOKENS, C, D, order

        loaded = tile.Event("mte2", "v", 1)
        inputs_known = tile.Event("mte2", "s", 1)  # what the scalar unit issues after it waited, waited too
        decay_ready = tile.Event("v", "s", 1)
        factors_ready = tile.Event("v", "mte3", 1)
        state_ready = tile.Event("v", "mte3", 2)
        state_free = tile.Event("mte3", "v", 1)
        state_unused = tile.Event("v", "mte2", 1)
        STATE_STORED, WRITES_STORED, IDENTITY_STORED = 1, 2, 3
        WRITE, KEY_FACTORS = 0, 2  # pairs of matrices in L1
        HALF = STATE // 2
        tokens, k_pitch, v_pitch = T.symbolic("tokens"), T.symbolic("k_pitch"), T.symbolic("v_pitch")
        starts, chunks, heads = T.symbolic("starts"), T.symbolic("chunks"), T.symbolic("heads")
        slots, pool_pitch = T.symbolic("slots"), T.symbolic("pool_pitch")
        indices, flags, buffers = T.symbolic("indices"), T.symbolic("flags"), T.symbolic("buffers")

        @T.prim_func
        def main(
            k: T.Tensor((tokens, k_pitch), act),
            v: T.Tensor((tokens, v_pitch), act),
            head_gates: T.Tensor((chunks, heads, C), "float32"),
            write: T.Tensor((chunks, heads, 2, C, C), act),
            w: T.Tensor((chunks, heads, C, D), act),
            ssm_pool: T.Tensor((slots, pool_pitch), "float32"),
            query_start_loc: T.Tensor((starts,), "int32"),
            cache_indices: T.Tensor((indices,), "int32"),
            has_initial_state: T.Tensor((flags,), "uint8"),
            h: T.Tensor((chunks, heads, D, D), act),
            v_new: T.Tensor((chunks, heads, 2, C, D), act),
            diagonal_space: T.Tensor((buffers, 2, 2, DIAGONAL), act),
            state_space: T.Tensor((buffers, D, D), "float32"),
            identity_space: T.Tensor((buffers, C, C), act),
            blocks: T.int32,
            rows: T.int32,
            start_pitch: T.int32,
            index_pitch: T.int32,
            k_head_pitch: T.int32,
            v_head_pitch: T.int32,
            ratio: T.int32,
            all_initial: T.int32,
            update_state: T.int32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                values_l1 = T.alloc_L1((C, D), act)
                w_l1 = T.alloc_L1((C, D), act)
                k_l1 = T.alloc_L1((C, D), act)
                state_l1 = T.alloc_L1((D, D), act)
                new_l1 = T.alloc_L1((2 * C, D), act)
                key_l1 = T.alloc_L1((2 * C, D), act)
                negative_identity = T.alloc_L1((C, C), act)
                matrices_l1 = T.alloc_L1((chunk.operand_rows(4), chunk.BLOCK), act)
                tokens_l0 = T.alloc_L0C((C, D), "float32")
                state_l0 = T.alloc_L0C((D, D), "float32")
                state = T.alloc_ub((D, 64), "float32")
                writes = T.alloc_ub((D, 64), "float32")
                state_raw = T.alloc_ub((HALF,), act)
                identity = T.alloc_ub((C, C), "float32")
                diagonals = T.alloc_ub((2 * DIAGONAL,), act)
                pattern = T.alloc_ub((DIAGONAL,), "float32")
                factor_offsets = T.alloc_ub((DIAGONAL,), "int32")
                space = T.alloc_ub((2 * DIAGONAL,), "float32")
                gates = T.alloc_ub((C,), "float32")
                decay = T.alloc_ub((C,), "float32")
                factors = T.alloc_ub((C,), "float32")
                with T.Scope("C"):
                    tile.wait_other_cores(IDENTITY_STORED)
                    tile.load_operand(negative_identity, tile.at(identity_space, cid * SQUARE), C, C, C)
                    tile.load_operand(
                        matrices_l1, tile.at(identity_space, cid * SQUARE), chunk.operand_rows(4), chunk.BLOCK,
                        chunk.BLOCK, 1,
                    )  # fmt: skip
                    for t in T.serial(T.ceildiv(rows * heads - cid, blocks)):
                        n = (cid + t * blocks) // heads
                        head = (cid + t * blocks) % heads
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        slot = cache_indices[n * index_pitch]
                        if slot >= 0 and slot < slots:
                            # one step more than chunks: step c loads the operands of chunk c and works on chunk c - 1
                            for c in T.serial(T.ceildiv(length, C) + 1):
                                if c > 0:
                                    matrix = (begin // C + n + c - 1) * heads + head
                                    tile.wait_other_cores(STATE_STORED)
                                    tile.load_operand(state_l1, tile.at(h, matrix * STATE), D, D, D)
                                    chunk.load_diagonal(
                                        chunk.operand(matrices_l1, KEY_FACTORS),
                                        tile.at(diagonal_space, (cid * 2 + (c - 1) % 2) * (2 * DIAGONAL)),
                                    )
                                    chunk.keep_multiplied(
                                        key_l1, tokens_l0, chunk.operand(matrices_l1, KEY_FACTORS), k_l1
                                    )
                                    chunk.keep_rest(tile.at(key_l1, TOKENS), tokens_l0, key_l1, negative_identity)
                                    chunk.multiply_tokens(
                                        tokens_l0, chunk.operand(matrices_l1, WRITE), values_l1, False
                                    )
                                    tile.product(tokens_l0, w_l1, state_l1, C, D, D, b_transposed=True, add=True)
                                    chunk.keep_tokens(new_l1, tokens_l0)
                                    tile.store_product(tile.at(v_new, matrix * (2 * TOKENS)), tokens_l0, C, D, D)
                                    chunk.keep_rest(tile.at(new_l1, TOKENS), tokens_l0, new_l1, negative_identity)
                                    tile.store_product(
                                        tile.at(v_new, matrix * (2 * TOKENS) + TOKENS), tokens_l0, C, D, D
                                    )
                                    chunk.multiply_writes(state_l0, new_l1, key_l1)
                                    tile.store_product(tile.at(state_space, cid * STATE), state_l0, D, D, D)
                                    tile.signal_other_cores("fix", WRITES_STORED)
                                if c * C < length:
                                    following = (begin // C + n + c) * heads + head
                                    chunk.load_lower_pair(
                                        chunk.operand(matrices_l1, WRITE), tile.at(write, following * (2 * SQUARE))
                                    )
                                    chunk.load_tokens(
                                        k_l1, tile.at(k, (begin + c * C) * k_pitch + head // ratio * k_head_pitch),
                                        k_pitch, length - c * C,
                                    )  # fmt: skip
                                    tile.load_operand(w_l1, tile.at(w, following * TOKENS), C, D, D)
                                    chunk.load_tokens(
                                        values_l1, tile.at(v, (begin + c * C) * v_pitch + head * v_head_pitch), v_pitch,
                                        length - c * C,
                                    )  # fmt: skip
                with T.Scope("V"):
                    chunk.make_identity(identity, writes)
                    tile.vector_barrier()
                    chunk.store_negative_identity(
                        tile.at(identity_space, cid * SQUARE), identity, writes, state_raw, vid
                    )
                    tile.signal_other_cores("mte3", IDENTITY_STORED)
                    chunk.make_diagonal_tables(pattern, factor_offsets, identity)
                    tile.signal(state_free)
                    for t in T.serial(T.ceildiv(rows * heads - cid, blocks)):
                        n = (cid + t * blocks) // heads
                        head = (cid + t * blocks) % heads
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        slot = cache_indices[n * index_pitch]
                        resumes = has_initial_state[n]
                        if slot >= 0 and slot < slots:
                            tile.wait(state_free)
                            if all_initial + resumes != 0:
                                order(state_unused)
                                tile.load(
                                    state, tile.at(ssm_pool, slot * pool_pitch + head * STATE + vid * HALF), HALF, HALF
                                )
                                order(loaded)
                            else:
                                tile.fill(state, 0.0, HALF)
                            # step c prepares chunk c and finishes chunk c - 1
                            for c in T.serial(T.ceildiv(length, C) + 1):
                                if c * C < length and (c + vid) % 2 == 0:
                                    tile.load(
                                        gates, tile.at(head_gates, ((begin // C + n + c) * heads + head) * C), C, C
                                    )
                                    order(inputs_known)
                                    chunk.key_factors(factors, gates, gates[C - 1])
                                    tile.vector_barrier()
                                    chunk.make_diagonal(diagonals, factors, pattern, factor_offsets, space)
                                    order(factors_ready)
                                    tile.store(
                                        tile.at(diagonal_space, (cid * 2 + c % 2) * (2 * DIAGONAL)), diagonals,
                                        2 * DIAGONAL, 2 * DIAGONAL,
                                    )  # fmt: skip
                                if c > 0:
                                    tile.load(
                                        decay, tile.at(head_gates, ((begin // C + n + c - 1) * heads + head) * C), C, C
                                    )
                                    tile.wait_other_cores(WRITES_STORED)
                                    tile.load(writes, tile.at(state_space, cid * STATE + vid * HALF), HALF, HALF)
                                    order(loaded)
                                    tile.exp(decay, decay, C)
                                    order(decay_ready)
                                    chunk.advance(state, writes, decay[C - 1])
                                if c * C < length:
                                    tile.vector_barrier()
                                    tile.convert(state_raw, state, HALF)
                                    order(state_ready)
                                    tile.store(
                                        tile.at(h, ((begin // C + n + c) * heads + head) * STATE + vid * HALF),
                                        state_raw, HALF, HALF,
                                    )  # fmt: skip
                                    tile.signal_other_cores("mte3", STATE_STORED)
                            if update_state != 0:
                                order(state_ready)
                                tile.store(
                                    tile.at(ssm_pool, slot * pool_pitch + head * STATE + vid * HALF), state, HALF, HALF
                                )
                            tile.signal(state_free)
                    tile.wait(state_free)

        return lower(main)
