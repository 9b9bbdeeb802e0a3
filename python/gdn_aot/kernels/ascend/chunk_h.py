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
    works on chunk c, the vector cores in turns prepare the keys of chunk c + 1 in the other of two buffers, and the
    cube core loads what it needs of chunk c + 1 before it waits for its state. The two flags between the cores order
    every reuse of a buffer: a core that sees the writes of chunk c knows that all stores before its state are done.
    """

    NAME = "chunk_h"
    CONSTANTS = {"chunk": 64, "head_dim": 128}  # noqa: RUF012
    SPECIALIZATIONS = tuple(Specialization(act) for act in (DType.BF16, DType.F16))

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("k", spec.act, Role.IN, "[T, H, 128], any pitch of T and H"),
            Tensor("v", spec.act, Role.IN, "[T, HV, 128], any pitch of T and HV"),
            Tensor("head_gates", DType.F32, Role.IN, "[NT, HV, 64] contiguous"),
            Tensor("write", spec.act, Role.IN, "[NT, HV, 64, 64] contiguous"),
            Tensor("w", spec.act, Role.IN, "[NT, HV, 64, 128] contiguous"),
            Tensor("ssm_pool", DType.F32, Role.INOUT, "[slots, HV, 128, 128], any pitch of slots"),
            Tensor("query_start_loc", DType.I32, Role.IN, "[N+1], start_pitch words an offset"),
            Tensor("cache_indices", DType.I32, Role.IN, "[N], index_pitch words an index"),
            Tensor("has_initial_state", DType.U8, Role.IN, "[N]; no effect if all_initial is 1"),
            Tensor("h", spec.act, Role.OUT, "[NT, HV, 128, 128] contiguous"),
            Tensor("v_new", spec.act, Role.OUT, "[NT, HV, 64, 128] contiguous"),
            Tensor("key_space", spec.act, Role.INOUT, "[blocks, 2, 64, 128]"),
            Tensor("state_space", DType.F32, Role.INOUT, "[blocks, 128, 128]"),
        ]

    @staticmethod
    def generate_source(act: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile
        from gdn_aot.chunk import SQUARE, STATE, TOKENS, C, D, advance, key_factors, make_pairs, order, scale_tokens

        product_stored = tile.Event("fix", "mte2", 1)
        loaded = tile.Event("mte2", "v", 1)
        inputs_known = tile.Event("mte2", "s", 1)  # what the scalar unit issues after it waited, waited too
        decay_ready = tile.Event("v", "s", 1)
        keys_ready = tile.Event("v", "mte3", 1)
        state_ready = tile.Event("v", "mte3", 2)
        state_free = tile.Event("mte3", "v", 1)
        state_unused = tile.Event("v", "mte2", 1)
        STATE_STORED, WRITES_STORED = 1, 2
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
            write: T.Tensor((chunks, heads, C, C), act),
            w: T.Tensor((chunks, heads, C, D), act),
            ssm_pool: T.Tensor((slots, pool_pitch), "float32"),
            query_start_loc: T.Tensor((starts,), "int32"),
            cache_indices: T.Tensor((indices,), "int32"),
            has_initial_state: T.Tensor((flags,), "uint8"),
            h: T.Tensor((chunks, heads, D, D), act),
            v_new: T.Tensor((chunks, heads, C, D), act),
            key_space: T.Tensor((buffers, 2, C, D), act),
            state_space: T.Tensor((buffers, D, D), "float32"),
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
                write_l1 = T.alloc_L1((C, C), act)
                values_l1 = T.alloc_L1((C, D), act)
                w_l1 = T.alloc_L1((C, D), act)
                state_l1 = T.alloc_L1((D, D), act)
                new_l1 = T.alloc_L1((C, D), act)
                keys_l1 = T.alloc_L1((C, D), act)
                new_sums = T.alloc_L0C((C, D), "float32")
                state_sums = T.alloc_L0C((D, D), "float32")
                state = T.alloc_ub((D, 64), "float32")
                writes = T.alloc_ub((D, 64), "float32")
                state_raw = T.alloc_ub((HALF,), act)
                keys = T.alloc_ub((D, 64), "float32")
                keys_raw = T.alloc_ub((TOKENS,), act)
                keys_out = T.alloc_ub((TOKENS,), act)
                gates = T.alloc_ub((C,), "float32")
                decay = T.alloc_ub((C,), "float32")
                factors = T.alloc_ub((C,), "float32")
                factors_twice = T.alloc_ub((2 * C,), "float32")
                pairs = T.alloc_ub((2 * C,), "int32")
                space = T.alloc_ub((2 * C * 8,), "float32")
                with T.Scope("C"):
                    for t in T.serial(T.ceildiv(rows * heads - cid, blocks)):
                        n = (cid + t * blocks) // heads
                        head = (cid + t * blocks) % heads
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        slot = cache_indices[n * index_pitch]
                        if slot >= 0:
                            # one step more than chunks: step c loads the operands of chunk c and works on chunk c - 1
                            for c in T.serial(T.ceildiv(length, C) + 1):
                                if c > 0:
                                    matrix = (begin // C + n + c - 1) * heads + head
                                    tile.wait_other_cores(STATE_STORED)
                                    tile.load_operand(state_l1, tile.at(h, matrix * STATE), D, D, D)
                                    tile.load_operand(
                                        keys_l1, tile.at(key_space, (cid * 2 + (c - 1) % 2) * TOKENS), C, D, D
                                    )
                                    tile.product(new_sums, write_l1, values_l1, C, D, C)
                                    tile.product(new_sums, w_l1, state_l1, C, D, D, b_transposed=True, add=True)
                                    tile.store_product(tile.at(v_new, matrix * TOKENS), new_sums, C, D, D)
                                    order(product_stored)
                                    tile.load_operand(new_l1, tile.at(v_new, matrix * TOKENS), C, D, D)
                                    tile.product(state_sums, new_l1, keys_l1, D, D, C, a_transposed=True)
                                    tile.store_product(tile.at(state_space, cid * STATE), state_sums, D, D, D)
                                    tile.signal_other_cores("fix", WRITES_STORED)
                                if c * C < length:
                                    following = (begin // C + n + c) * heads + head
                                    tile.load_operand(write_l1, tile.at(write, following * SQUARE), C, C, C)
                                    tile.load_operand(w_l1, tile.at(w, following * TOKENS), C, D, D)
                                    tile.load_operand(
                                        values_l1, tile.at(v, (begin + c * C) * v_pitch + head * v_head_pitch), C, D,
                                        v_pitch, tile.smaller(C, length - c * C),
                                    )  # fmt: skip
                with T.Scope("V"):
                    make_pairs(pairs)
                    tile.signal(state_free)
                    for t in T.serial(T.ceildiv(rows * heads - cid, blocks)):
                        n = (cid + t * blocks) // heads
                        head = (cid + t * blocks) % heads
                        begin = query_start_loc[n * start_pitch]
                        length = query_start_loc[(n + 1) * start_pitch] - begin
                        slot = cache_indices[n * index_pitch]
                        resumes = has_initial_state[n]
                        if slot >= 0:
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
                                        keys_raw, tile.at(k, (begin + c * C) * k_pitch + head // ratio * k_head_pitch),
                                        D, D, rows=tile.smaller(C, length - c * C), max_rows=C, pitch=k_pitch,
                                    )  # fmt: skip
                                    tile.load(
                                        gates, tile.at(head_gates, ((begin // C + n + c) * heads + head) * C), C, C
                                    )
                                    order(inputs_known)
                                    last_gate = gates[C - 1]
                                    tile.convert(keys, keys_raw, TOKENS)
                                    key_factors(factors, gates, last_gate)
                                    tile.vector_barrier()
                                    scale_tokens(keys, factors, pairs, factors_twice, space)
                                    tile.vector_barrier()
                                    tile.convert(keys_out, keys, TOKENS)
                                    order(keys_ready)
                                    tile.store(tile.at(key_space, (cid * 2 + c % 2) * TOKENS), keys_out, TOKENS, TOKENS)
                                if c > 0:
                                    tile.load(
                                        decay, tile.at(head_gates, ((begin // C + n + c - 1) * heads + head) * C), C, C
                                    )
                                    tile.wait_other_cores(WRITES_STORED)
                                    tile.load(writes, tile.at(state_space, cid * STATE + vid * HALF), HALF, HALF)
                                    order(loaded)
                                    tile.exp(decay, decay, C)
                                    order(decay_ready)
                                    advance(state, writes, decay[C - 1])
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
