"""Gates, l2 norm and the gated delta rule for one or a few tokens a row, on float32 states in slots."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel

K = V = 128
HALF = V // 2  # rows of the state that are worked on at a time
STATE = HALF * K
MAX_TOKENS = 16
MAX_HEADS = 64
GATES = MAX_TOKENS * MAX_HEADS
SLOT = 8  # floats between two results that are read one by one
LOG_DECAY, Y, Z, SERIES = range(4)  # spaces for the gates


@dataclass(frozen=True)
class Specialization:
    act: DType
    dt_bias: DType


@register_kernel
class FusedSigmoidGatingDeltaRuleUpdate:
    """``S <- e^g S; d = beta (v - S k); S <- S + d k^T; o = scale S q`` with g and beta from a, b, A_log and dt_bias.

    Vector cores only; a task is (row, value head). The state of a head is read once and written once a call: both
    products with the old state are taken in one pass, since o = scale (e^g S_old q + (k q) d). Its two halves of 64
    rows have a buffer each, so that the second half is loaded while the first is worked on. k and q are spread over 64
    rows so that products are whole tiles; d k^T scales rows of the spread k. Gates are computed for all heads and
    tokens of a row at once, because a vector instruction costs the same for 1 and for 64. Rows without a slot read
    nothing but their slot and write zeros. For drafts the state after each token is stored, float32, before the next
    token.
    """

    NAME = "fused_sigmoid_gating_delta_rule_update"
    CONSTANTS = {"head_dim": K, "max_heads": MAX_HEADS}
    SPECIALIZATIONS = tuple(
        Specialization(act, dt_bias) for act in (DType.BF16, DType.F16) for dt_bias in (DType.F32, act)
    )

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        pitches = "any pitch of all but the last"
        return [
            Tensor("q", spec.act, Role.IN, f"[N, T_d, H, 128], {pitches}"),
            Tensor("k", spec.act, Role.IN, f"[N, T_d, H, 128], {pitches}"),
            Tensor("v", spec.act, Role.IN, f"[N, T_d, HV, 128], {pitches}"),
            Tensor("a", spec.act, Role.IN, f"[N, T_d, HV], {pitches}"),
            Tensor("b", spec.act, Role.IN, f"[N, T_d, HV], {pitches}"),
            Tensor("A_log", DType.F32, Role.IN, "[HV]"),
            Tensor("dt_bias_weight", spec.dt_bias, Role.IN, "[HV]"),
            Tensor("ssm_pool", DType.F32, Role.INOUT, "[slots, HV, 128, 128], any pitch of slots"),
            Tensor("cache_indices", DType.I32, Role.IN, "[N], index_pitch words an index"),
            Tensor("states", DType.F32, Role.OUT, "[spec_slots, T_d, HV, 128, 128], any pitch of the first two"),
            Tensor("state_indices", DType.I32, Role.IN, "[N]; neither is used if store_states is 0"),
            Tensor("out", spec.act, Role.OUT, "[N, T_d, HV, 128] contiguous"),
        ]

    @staticmethod
    def generate_source(act: DType, dt_bias: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile
        from gdn_aot.gates import gates

        weights_loaded = tile.Event("mte2", "v", 1)
        tokens_loaded = tile.Event("mte2", "v", 1)
        tokens_free = tile.Event("v", "mte2", 1)
        scalars_ready = tile.Event("v", "s", 1)
        output_ready = tile.Event("v", "mte3", 1)  # and the state, which is finished before
        output_free = tile.Event("mte3", "v", 1)
        draft_stored = tile.Event("mte3", "v", 2)

        def half_loaded(half):
            return tile.Event("mte2", "v", 2 + half)

        def half_stored(half):
            return tile.Event("mte3", "mte2", 1 + half)

        # Gates are worked out in the second half of the buffer of the spread queries.
        def gates_at(queries, part):
            return tile.at(queries, STATE // 2 + part * GATES)

        rows, q_pitch, k_pitch = T.symbolic("rows"), T.symbolic("q_pitch"), T.symbolic("k_pitch")
        v_pitch, a_pitch, b_pitch = T.symbolic("v_pitch"), T.symbolic("a_pitch"), T.symbolic("b_pitch")
        slots, pool_pitch, heads = T.symbolic("slots"), T.symbolic("pool_pitch"), T.symbolic("heads")
        spec_slots, states_pitch = T.symbolic("spec_slots"), T.symbolic("states_pitch")
        indices, out_pitch = T.symbolic("indices"), T.symbolic("out_pitch")
        state_token_pitch = T.symbolic("state_token_pitch")

        @T.prim_func
        def main(
            q: T.Tensor((rows, q_pitch), act),
            k: T.Tensor((rows, k_pitch), act),
            v: T.Tensor((rows, v_pitch), act),
            a: T.Tensor((rows, a_pitch), act),
            b: T.Tensor((rows, b_pitch), act),
            A_log: T.Tensor((heads,), "float32"),
            dt_bias_weight: T.Tensor((heads,), dt_bias),
            ssm_pool: T.Tensor((slots, pool_pitch), "float32"),
            cache_indices: T.Tensor((indices,), "int32"),
            states: T.Tensor((spec_slots, states_pitch, state_token_pitch), "float32"),
            state_indices: T.Tensor((indices,), "int32"),
            out: T.Tensor((rows, out_pitch), act),
            blocks: T.int32,
            tokens: T.int32,
            ratio: T.int32,
            q_token_pitch: T.int32,
            q_head_pitch: T.int32,
            k_token_pitch: T.int32,
            k_head_pitch: T.int32,
            v_token_pitch: T.int32,
            v_head_pitch: T.int32,
            a_token_pitch: T.int32,
            b_token_pitch: T.int32,
            index_pitch: T.int32,
            l2norm: T.int32,
            update_state: T.int32,
            store_states: T.int32,
            scale: T.float32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                state = T.alloc_ub((2 * STATE,), "float32")
                keys = T.alloc_ub((2 * HALF, 64), "float32")
                queries = T.alloc_ub((STATE,), "float32")
                products = T.alloc_ub((2 * HALF, 64), "float32")
                q_raw = T.alloc_ub((MAX_TOKENS * K,), act)
                k_raw = T.alloc_ub((MAX_TOKENS * K,), act)
                v_raw = T.alloc_ub((MAX_TOKENS * V,), act)
                o_raw = T.alloc_ub((V,), act)
                gate_raw = T.alloc_ub((GATES,), act)
                beta_raw = T.alloc_ub((GATES,), act)
                gate = T.alloc_ub((GATES,), "float32")
                beta = T.alloc_ub((GATES,), "float32")
                minus_rate = T.alloc_ub((MAX_HEADS,), "float32")
                bias_raw = T.alloc_ub((MAX_HEADS,), dt_bias)
                bias = T.alloc_ub((MAX_HEADS,), "float32")
                row = T.alloc_ub((K,), "float32")
                key = T.alloc_ub((K,), "float32")
                dots = T.alloc_ub((3 * MAX_TOKENS * SLOT,), "float32")
                pairs = T.alloc_ub((2 * HALF,), "int32")
                sums = T.alloc_ub((HALF,), "float32")
                old_k = T.alloc_ub((HALF,), "float32")
                old_q = T.alloc_ub((HALF,), "float32")
                delta = T.alloc_ub((HALF,), "float32")
                delta_twice = T.alloc_ub((2 * HALF,), "float32")
                spread = T.alloc_ub((2 * HALF * 8,), "float32")
                o = T.alloc_ub((HALF,), "float32")
                value = T.alloc_ub((HALF,), "float32")
                with T.Scope("V"):
                    core = cid * 2 + vid
                    # byte offsets 0, 0, 4, 4, 8, 8, ..
                    tile.sequence(pairs, 2 * HALF)
                    tile.vector_barrier()
                    tile.shift_right(pairs, pairs, 1, 2 * HALF)
                    tile.vector_barrier()
                    tile.mul_scalar(pairs, pairs, 4, 2 * HALF)
                    tile.load(minus_rate, A_log, heads, MAX_HEADS)
                    tile.load(bias_raw, dt_bias_weight, heads, MAX_HEADS)
                    tile.signal(weights_loaded)
                    tile.wait(weights_loaded)
                    tile.exp(minus_rate, minus_rate, MAX_HEADS)
                    tile.convert(bias, bias_raw, MAX_HEADS)
                    tile.vector_barrier()
                    tile.mul_scalar(minus_rate, minus_rate, -1.0, MAX_HEADS)
                    tile.signal(tokens_free)
                    tile.signal(output_free)
                    for half in T.serial(2):
                        tile.signal(half_stored(half))
                    for i in T.serial(T.ceildiv(rows * heads - core, blocks * 2)):
                        n = (core + i * blocks * 2) // heads
                        h = (core + i * blocks * 2) % heads
                        slot = cache_indices[n * index_pitch]
                        if slot >= 0 and slot < slots:
                            tile.wait(tokens_free)
                            for t in T.serial(tokens):
                                tile.load(
                                    tile.at(q_raw, t * K),
                                    tile.at(q, n * q_pitch + t * q_token_pitch + (h // ratio) * q_head_pitch), K, K,
                                )  # fmt: skip
                                tile.load(
                                    tile.at(k_raw, t * K),
                                    tile.at(k, n * k_pitch + t * k_token_pitch + (h // ratio) * k_head_pitch), K, K,
                                )  # fmt: skip
                                tile.load(
                                    tile.at(v_raw, t * V),
                                    tile.at(v, n * v_pitch + t * v_token_pitch + h * v_head_pitch), V, V,
                                )  # fmt: skip
                                tile.load(
                                    tile.at(gate_raw, t * MAX_HEADS),
                                    tile.at(a, n * a_pitch + t * a_token_pitch), heads, MAX_HEADS,
                                )  # fmt: skip
                                tile.load(
                                    tile.at(beta_raw, t * MAX_HEADS),
                                    tile.at(b, n * b_pitch + t * b_token_pitch), heads, MAX_HEADS,
                                )  # fmt: skip
                            tile.signal(tokens_loaded)
                            for half in T.serial(2):
                                tile.wait(half_stored(half))
                                tile.load(
                                    tile.at(state, half * STATE),
                                    tile.at(ssm_pool, slot * pool_pitch + h * (2 * STATE) + half * STATE), STATE, STATE,
                                )  # fmt: skip
                                tile.signal(half_loaded(half))
                            tile.wait(tokens_loaded)
                            tile.convert(gates_at(queries, LOG_DECAY), gate_raw, GATES)
                            tile.convert(beta, beta_raw, GATES)
                            tile.vector_barrier()
                            gates(
                                gates_at(queries, LOG_DECAY), beta, gates_at(queries, Y), gates_at(queries, Z),
                                gates_at(queries, SERIES), bias, minus_rate, tokens, MAX_TOKENS,
                            )  # fmt: skip
                            tile.vector_barrier()
                            tile.exp(gate, gates_at(queries, LOG_DECAY), GATES)
                            # |q|^2, |k|^2 and k q of every token
                            for t in T.serial(tokens):
                                tile.convert(row, tile.at(q_raw, t * K), K)
                                tile.convert(key, tile.at(k_raw, t * K), K)
                                tile.vector_barrier()
                                tile.mul(queries, row, row, K)
                                tile.mul(tile.at(queries, K), key, key, K)
                                tile.mul(tile.at(queries, 2 * K), row, key, K)
                                tile.vector_barrier()
                                for j in T.serial(3):
                                    tile.add(
                                        tile.at(queries, j * K), tile.at(queries, j * K),
                                        tile.at(queries, j * K + 64), 64,
                                    )  # fmt: skip
                                tile.vector_barrier()
                                for j in T.serial(3):
                                    tile.sum_rows(
                                        tile.at(dots, (j * MAX_TOKENS + t) * SLOT), tile.at(queries, j * K), 1, 16
                                    )
                            tile.vector_barrier()
                            # 1 / sqrt(|x|^2 + 1e-6)
                            tile.fill(gates_at(queries, Y), 1.0, 2 * MAX_TOKENS * SLOT)
                            if l2norm != 0:
                                tile.add_scalar(dots, dots, 1e-6, 2 * MAX_TOKENS * SLOT)
                                tile.vector_barrier()
                                tile.sqrt(dots, dots, 2 * MAX_TOKENS * SLOT)
                                tile.vector_barrier()
                                tile.div(dots, gates_at(queries, Y), dots, 2 * MAX_TOKENS * SLOT)
                            else:
                                tile.vector_barrier()
                                tile.convert(dots, gates_at(queries, Y), 2 * MAX_TOKENS * SLOT)
                            tile.signal(scalars_ready)
                            tile.wait(scalars_ready)
                            for half in T.serial(2):
                                tile.wait(half_loaded(half))
                                for t in T.serial(tokens):
                                    decay = gate[t * MAX_HEADS + h]
                                    strength = beta[t * MAX_HEADS + h]
                                    q_norm = dots[t * SLOT]
                                    k_norm = dots[(MAX_TOKENS + t) * SLOT]
                                    k_dot_q = dots[(2 * MAX_TOKENS + t) * SLOT]
                                    tile.convert(row, tile.at(q_raw, t * K), K)
                                    tile.convert(key, tile.at(k_raw, t * K), K)
                                    tile.convert(value, tile.at(v_raw, t * V + half * HALF), HALF)
                                    tile.vector_barrier()
                                    tile.mul_scalar(queries, row, q_norm, K)
                                    tile.mul_scalar(keys, key, k_norm, K)
                                    for step in T.serial(6):
                                        tile.vector_barrier()
                                        for copy in T.serial(1 << step):
                                            tile.convert(
                                                tile.at(queries, ((1 << step) + copy) * K),
                                                tile.at(queries, copy * K), K,
                                            )  # fmt: skip
                                            tile.convert(
                                                tile.at(keys, ((1 << step) + copy) * K), tile.at(keys, copy * K), K
                                            )
                                    tile.vector_barrier()
                                    # S k and S q
                                    tile.mul(products, tile.at(state, half * STATE), keys, STATE)
                                    tile.vector_barrier()
                                    tile.sum_rows(old_k, products, HALF, 16)
                                    tile.sum_rows(sums, tile.at(products, 64), HALF, 16)
                                    tile.vector_barrier()
                                    tile.add(old_k, old_k, sums, HALF)
                                    tile.mul(products, tile.at(state, half * STATE), queries, STATE)
                                    tile.vector_barrier()
                                    tile.sum_rows(old_q, products, HALF, 16)
                                    tile.sum_rows(sums, tile.at(products, 64), HALF, 16)
                                    tile.mul_scalar(delta, old_k, decay * -1.0, HALF)
                                    tile.vector_barrier()
                                    tile.add(old_q, old_q, sums, HALF)
                                    # d = beta (v - e^g S k)
                                    tile.add(delta, delta, value, HALF)
                                    tile.vector_barrier()
                                    tile.mul_scalar(delta, delta, strength, HALF)
                                    tile.mul_scalar(o, old_q, decay * scale, HALF)
                                    tile.vector_barrier()
                                    # o = scale (e^g S q + (k q) d)
                                    tile.mul_scalar(sums, delta, k_dot_q * q_norm * k_norm * scale, HALF)
                                    tile.gather(delta_twice, delta, pairs, 0, 2 * HALF)
                                    tile.mul_scalar(
                                        tile.at(state, half * STATE), tile.at(state, half * STATE), decay, STATE
                                    )
                                    tile.vector_barrier()
                                    tile.add(o, o, sums, HALF)
                                    # S = e^g S + d k^T
                                    tile.scale_rows(products, keys, delta_twice, spread, 2 * HALF)
                                    tile.vector_barrier()
                                    tile.add(
                                        tile.at(state, half * STATE), tile.at(state, half * STATE), products, STATE
                                    )
                                    tile.wait(output_free)
                                    tile.convert(o_raw, o, HALF)
                                    tile.signal(output_ready)
                                    tile.wait(output_ready)
                                    tile.store(
                                        tile.at(out, n * out_pitch + (t * heads + h) * V + half * HALF), o_raw,
                                        HALF, HALF,
                                    )  # fmt: skip
                                    tile.signal(output_free)
                                    if store_states != 0:
                                        state_slot = state_indices[n * index_pitch]
                                        if state_slot >= 0 and state_slot < spec_slots:
                                            tile.store(
                                                tile.at(
                                                    states,
                                                    state_slot * states_pitch + t * state_token_pitch
                                                    + h * (2 * STATE) + half * STATE,
                                                ),
                                                tile.at(state, half * STATE), STATE, STATE,
                                            )  # fmt: skip
                                        tile.signal(draft_stored)
                                        tile.wait(draft_stored)
                                if update_state != 0:
                                    tile.store(
                                        tile.at(ssm_pool, slot * pool_pitch + h * (2 * STATE) + half * STATE),
                                        tile.at(state, half * STATE), STATE, STATE,
                                    )  # fmt: skip
                                tile.signal(half_stored(half))
                            tile.signal(tokens_free)
                        else:
                            tile.wait(output_free)
                            tile.fill(o, 0.0, HALF)
                            tile.vector_barrier()
                            tile.convert(o_raw, o, HALF)
                            tile.convert(tile.at(o_raw, HALF), o, HALF)
                            tile.signal(output_ready)
                            tile.wait(output_ready)
                            for t in T.serial(tokens):
                                tile.store(tile.at(out, n * out_pitch + (t * heads + h) * V), o_raw, V, V)
                            tile.signal(output_free)
                    tile.wait(tokens_free)
                    tile.wait(output_free)
                    for half in T.serial(2):
                        tile.wait(half_stored(half))

        return lower(main)
