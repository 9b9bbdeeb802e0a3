"""Log gates and write strengths of a Gated DeltaNet layer."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel

MAX_HEADS = 64
TOKENS = 16  # tokens a task
TILE = TOKENS * MAX_HEADS


@dataclass(frozen=True)
class Specialization:
    act: DType
    dt_bias: DType


@register_kernel
class GdnGating:
    """``g = -exp(A_log) softplus(a + dt_bias)`` and ``beta = sigmoid(b)``, float32.

    Vector cores only; a task is 16 tokens of all heads, whose gates lie 64 elements apart in the unified buffer.
    Everything is read and written once. A task is loaded as soon as the one before is converted, and worked on when
    that one is stored.
    """

    NAME = "gdn_gating"
    CONSTANTS = {"max_heads": MAX_HEADS, "tokens": TOKENS}
    SPECIALIZATIONS = tuple(
        Specialization(act, dt_bias) for act in (DType.BF16, DType.F16) for dt_bias in (DType.F32, act)
    )

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("A_log", DType.F32, Role.IN, "[HV]"),
            Tensor("a", spec.act, Role.IN, "[T, HV], any pitch of T"),
            Tensor("b", spec.act, Role.IN, "[T, HV], any pitch of T"),
            Tensor("dt_bias_weight", spec.dt_bias, Role.IN, "[HV]"),
            Tensor("g", DType.F32, Role.OUT, "[T, HV] contiguous"),
            Tensor("beta", DType.F32, Role.OUT, "[T, HV] contiguous"),
        ]

    @staticmethod
    def generate_source(act: DType, dt_bias: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile
        from gdn_aot.gates import gates

        weights_loaded = tile.Event("mte2", "v", 1)
        inputs_loaded = tile.Event("mte2", "v", 2)
        inputs_free = tile.Event("v", "mte2", 1)
        outputs_ready = tile.Event("v", "mte3", 1)
        outputs_free = tile.Event("mte3", "v", 1)
        tokens, heads = T.symbolic("tokens"), T.symbolic("heads")
        a_pitch, b_pitch = T.symbolic("a_pitch"), T.symbolic("b_pitch")

        @T.prim_func
        def main(
            A_log: T.Tensor((heads,), "float32"),
            a: T.Tensor((tokens, a_pitch), act),
            b: T.Tensor((tokens, b_pitch), act),
            dt_bias_weight: T.Tensor((heads,), dt_bias),
            g: T.Tensor((tokens, heads), "float32"),
            beta: T.Tensor((tokens, heads), "float32"),
            blocks: T.int32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                a_raw = T.alloc_ub((TILE,), act)
                b_raw = T.alloc_ub((TILE,), act)
                bias_raw = T.alloc_ub((MAX_HEADS,), dt_bias)
                bias = T.alloc_ub((MAX_HEADS,), "float32")
                minus_rate = T.alloc_ub((MAX_HEADS,), "float32")
                log_decay = T.alloc_ub((TILE,), "float32")
                strength = T.alloc_ub((TILE,), "float32")
                y = T.alloc_ub((TILE,), "float32")
                z = T.alloc_ub((TILE,), "float32")
                series = T.alloc_ub((TILE,), "float32")
                with T.Scope("V"):
                    core = cid * 2 + vid
                    tile.load(minus_rate, A_log, heads, MAX_HEADS)
                    tile.load(bias_raw, dt_bias_weight, heads, MAX_HEADS)
                    tile.signal(weights_loaded)
                    tile.wait(weights_loaded)
                    tile.exp(minus_rate, minus_rate, MAX_HEADS)
                    tile.convert(bias, bias_raw, MAX_HEADS)
                    tile.vector_barrier()
                    tile.mul_scalar(minus_rate, minus_rate, -1.0, MAX_HEADS)
                    tile.signal(inputs_free)
                    tile.signal(outputs_free)
                    for i in T.serial(T.ceildiv(T.ceildiv(tokens, TOKENS) - core, blocks * 2)):
                        begin = (core + i * blocks * 2) * TOKENS
                        count = tile.smaller(TOKENS, tokens - begin)
                        tile.wait(inputs_free)
                        tile.load(
                            a_raw, tile.at(a, begin * a_pitch), heads, MAX_HEADS, rows=count, max_rows=TOKENS,
                            pitch=a_pitch,
                        )  # fmt: skip
                        tile.load(
                            b_raw, tile.at(b, begin * b_pitch), heads, MAX_HEADS, rows=count, max_rows=TOKENS,
                            pitch=b_pitch,
                        )  # fmt: skip
                        tile.signal(inputs_loaded)
                        tile.wait(inputs_loaded)
                        tile.wait(outputs_free)
                        tile.convert(log_decay, a_raw, TILE)
                        tile.convert(strength, b_raw, TILE)
                        tile.signal(inputs_free)
                        tile.vector_barrier()
                        gates(log_decay, strength, y, z, series, bias, minus_rate, TOKENS, TOKENS)
                        tile.signal(outputs_ready)
                        tile.wait(outputs_ready)
                        tile.store(
                            tile.at(g, begin * heads),
                            log_decay,
                            heads,
                            MAX_HEADS,
                            rows=count,
                            max_rows=TOKENS,
                            pitch=heads,
                        )
                        tile.store(
                            tile.at(beta, begin * heads), strength, heads, MAX_HEADS, rows=count, max_rows=TOKENS,
                            pitch=heads,
                        )  # fmt: skip
                        tile.signal(outputs_free)
                    tile.wait(inputs_free)
                    tile.wait(outputs_free)

        return lower(main)
