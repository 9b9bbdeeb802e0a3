"""Causal depthwise convolution of one or a few new tokens a row, on windows in slots."""

from dataclasses import dataclass
from itertools import product

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel

CHANNELS = 512  # channels a task
MAX_WIDTH = 4
MAX_TOKENS = 16
HISTORY = MAX_WIDTH - 1 + MAX_TOKENS


@dataclass(frozen=True)
class Specialization:
    act: DType
    window: DType


@register_kernel
class CausalConv1dUpdate:
    """``y[n, t, c] = act(bias[c] + sum_j weight[c, j] * history[t + j, c])``, history = window of the slot, then x.

    Vector cores only. A task is (row, 512 channels); a core keeps one block of channels as long as it can, so that the
    taps are loaded and transposed once. Per task it reads the window and the tokens once and writes the outputs, the
    new window and, for drafts, the window after each token: no byte moves twice. Rows without a slot read nothing and
    write zeros. Copies in, arithmetic and copies out overlap only between rows.
    """

    NAME = "causal_conv1d_update"
    CONSTANTS = {"channels": CHANNELS}

    SPECIALIZATIONS = tuple(
        Specialization(act, window)
        for act, window in product((DType.BF16, DType.F16), (DType.F32, DType.BF16, DType.F16))
    )

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("x", spec.act, Role.IN, "[N, T_d, D], any pitch of N and T_d"),
            Tensor("weight", spec.act, Role.IN, "[D, W] contiguous"),
            Tensor("bias", spec.act, Role.IN, "[D]; not read if has_bias is 0"),
            Tensor("conv_pool", spec.window, Role.INOUT, "[slots, W-1, D], any pitch of slots"),
            Tensor("cache_indices", DType.I32, Role.IN, "[N], index_pitch words an index"),
            Tensor("windows", spec.window, Role.OUT, "[spec_slots, T_d, W-1, D], any pitch of the first two"),
            Tensor("window_indices", DType.I32, Role.IN, "[N]; neither is used if store_windows is 0"),
            Tensor("out", spec.act, Role.OUT, "[N, T_d, D] contiguous"),
        ]

    @staticmethod
    def generate_source(act: DType, window: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile

        taps_loaded = tile.Event("mte2", "v", 1)
        taps_free = tile.Event("v", "mte2", 1)
        row_loaded = tile.Event("mte2", "v", 2)
        row_free = tile.Event("v", "mte2", 2)
        results_ready = tile.Event("v", "mte3", 1)
        results_free = tile.Event("mte3", "v", 1)

        rows, x_pitch = T.symbolic("rows"), T.symbolic("x_pitch")
        slots, pool_pitch = T.symbolic("slots"), T.symbolic("pool_pitch")
        spec_slots, windows_pitch = T.symbolic("spec_slots"), T.symbolic("windows_pitch")
        indices, out_pitch = T.symbolic("indices"), T.symbolic("out_pitch")
        channels, taps_size = T.symbolic("channels"), T.symbolic("taps_size")

        @T.prim_func
        def main(
            x: T.Tensor((rows, x_pitch), act),
            weight: T.Tensor((taps_size,), act),
            bias: T.Tensor((channels,), act),
            conv_pool: T.Tensor((slots, pool_pitch), window),
            cache_indices: T.Tensor((indices,), "int32"),
            windows: T.Tensor((spec_slots, windows_pitch), window),
            window_indices: T.Tensor((indices,), "int32"),
            out: T.Tensor((rows, out_pitch), act),
            blocks: T.int32,
            channel_lanes: T.int32,
            row_lanes: T.int32,
            tokens: T.int32,
            width: T.int32,
            x_token_pitch: T.int32,
            window_token_pitch: T.int32,
            index_pitch: T.int32,
            has_bias: T.int32,
            silu: T.int32,
            update_state: T.int32,
            store_windows: T.int32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                order = T.alloc_ub((CHANNELS,), "int32")
                taps_raw = T.alloc_ub((CHANNELS * MAX_WIDTH,), act)
                taps_flat = T.alloc_ub((CHANNELS * MAX_WIDTH,), "float32")
                taps = T.alloc_ub((MAX_WIDTH * CHANNELS,), "float32")
                bias_raw = T.alloc_ub((CHANNELS,), act)
                bias_f32 = T.alloc_ub((CHANNELS,), "float32")
                x_raw = T.alloc_ub((MAX_TOKENS * CHANNELS,), act)
                window_raw = T.alloc_ub(((MAX_WIDTH - 1) * CHANNELS,), window)
                history = T.alloc_ub((HISTORY * CHANNELS,), "float32")
                history_raw = T.alloc_ub((HISTORY * CHANNELS,), window)
                y = T.alloc_ub((CHANNELS,), "float32")
                denominator = T.alloc_ub((CHANNELS,), "float32")
                y_raw = T.alloc_ub((MAX_TOKENS * CHANNELS,), act)
                with T.Scope("V"):
                    lane = (cid * 2 + vid) % channel_lanes
                    first_row = (cid * 2 + vid) // channel_lanes
                    tile.sequence(order, CHANNELS)
                    tile.vector_barrier()
                    tile.mul_scalar(order, order, width * 4, CHANNELS)
                    tile.signal(taps_free)
                    tile.signal(row_free)
                    tile.signal(results_free)
                    # Cores that do not make up another set of lanes stay idle.
                    last_row = tile.select(first_row < row_lanes, rows, 0)
                    for c in T.serial(T.ceildiv(T.ceildiv(channels, CHANNELS) - lane, channel_lanes)):
                        begin = (lane + c * channel_lanes) * CHANNELS
                        count = tile.smaller(CHANNELS, channels - begin)
                        tile.wait(taps_free)
                        tile.load(taps_raw, tile.at(weight, begin * width), count * width, CHANNELS * MAX_WIDTH)
                        if has_bias != 0:
                            tile.load(bias_raw, tile.at(bias, begin), count, CHANNELS)
                        tile.signal(taps_loaded)
                        tile.wait(taps_loaded)
                        tile.convert(taps_flat, taps_raw, CHANNELS * MAX_WIDTH)
                        if has_bias != 0:
                            tile.convert(bias_f32, bias_raw, CHANNELS)
                        else:
                            tile.fill(bias_f32, 0.0, CHANNELS)
                        tile.signal(taps_free)
                        tile.vector_barrier()
                        for j in T.serial(width):
                            tile.gather(tile.at(taps, j * CHANNELS), taps_flat, order, j * 4, CHANNELS)
                        for r in T.serial(T.ceildiv(last_row - first_row, row_lanes)):
                            row = first_row + r * row_lanes
                            slot = cache_indices[row * index_pitch]
                            tile.wait(row_free)
                            if slot >= 0 and slot < slots:
                                for t in T.serial(tokens):
                                    tile.load(
                                        tile.at(x_raw, t * CHANNELS),
                                        tile.at(x, row * x_pitch + t * x_token_pitch + begin), count, CHANNELS,
                                    )  # fmt: skip
                                for j in T.serial(width - 1):
                                    tile.load(
                                        tile.at(window_raw, j * CHANNELS),
                                        tile.at(conv_pool, slot * pool_pitch + j * channels + begin), count, CHANNELS,
                                    )  # fmt: skip
                            tile.signal(row_loaded)
                            tile.wait(row_loaded)
                            tile.wait(results_free)
                            if slot >= 0 and slot < slots:
                                for j in T.serial(width - 1):
                                    tile.convert(
                                        tile.at(history, j * CHANNELS), tile.at(window_raw, j * CHANNELS), CHANNELS
                                    )
                                for t in T.serial(tokens):
                                    tile.convert(
                                        tile.at(history, (width - 1 + t) * CHANNELS),
                                        tile.at(x_raw, t * CHANNELS),
                                        CHANNELS,
                                    )
                                for t in T.serial(tokens):
                                    tile.convert(y, bias_f32, CHANNELS)
                                    for j in T.serial(width):
                                        tile.vector_barrier()
                                        tile.multiply_add(
                                            y,
                                            tile.at(taps, j * CHANNELS),
                                            tile.at(history, (t + j) * CHANNELS),
                                            CHANNELS,
                                        )
                                    tile.vector_barrier()
                                    if silu != 0:
                                        tile.mul_scalar(denominator, y, -1.0, CHANNELS)
                                        tile.vector_barrier()
                                        tile.exp(denominator, denominator, CHANNELS)
                                        tile.vector_barrier()
                                        tile.add_scalar(denominator, denominator, 1.0, CHANNELS)
                                        tile.vector_barrier()
                                        tile.div(y, y, denominator, CHANNELS)
                                        tile.vector_barrier()
                                    tile.convert(tile.at(y_raw, t * CHANNELS), y, CHANNELS)
                                    tile.vector_barrier()
                                for j in T.serial(width - 1 + tokens):
                                    tile.convert(
                                        tile.at(history_raw, j * CHANNELS), tile.at(history, j * CHANNELS), CHANNELS
                                    )
                            else:
                                tile.fill(y, 0.0, CHANNELS)
                                tile.vector_barrier()
                                for t in T.serial(tokens):
                                    tile.convert(tile.at(y_raw, t * CHANNELS), y, CHANNELS)
                            tile.signal(row_free)
                            tile.signal(results_ready)
                            tile.wait(results_ready)
                            for t in T.serial(tokens):
                                tile.store(
                                    tile.at(out, row * out_pitch + t * channels + begin),
                                    tile.at(y_raw, t * CHANNELS), count, CHANNELS,
                                )  # fmt: skip
                            if slot >= 0 and slot < slots:
                                if update_state != 0:
                                    for j in T.serial(width - 1):
                                        tile.store(
                                            tile.at(conv_pool, slot * pool_pitch + j * channels + begin),
                                            tile.at(history_raw, (tokens + j) * CHANNELS), count, CHANNELS,
                                        )  # fmt: skip
                                if store_windows != 0:
                                    window_slot = window_indices[row * index_pitch]
                                    if window_slot >= 0 and window_slot < spec_slots:
                                        for t in T.serial(tokens):
                                            for j in T.serial(width - 1):
                                                tile.store(
                                                    tile.at(
                                                        windows,
                                                        window_slot * windows_pitch + t * window_token_pitch
                                                        + j * channels + begin,
                                                    ),
                                                    tile.at(history_raw, (t + 1 + j) * CHANNELS), count, CHANNELS,
                                                )  # fmt: skip
                            tile.signal(results_free)
                    tile.wait(taps_free)
                    tile.wait(row_free)
                    tile.wait(results_free)

        return lower(main)
