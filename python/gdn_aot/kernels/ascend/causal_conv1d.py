"""Causal depthwise convolution over packed sequences, on windows in slots."""

from dataclasses import dataclass
from itertools import product

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel

CHANNELS = 256  # channels a task
TOKENS = 16  # tokens a step
MAX_WIDTH = 4
HISTORY = MAX_WIDTH - 1 + TOKENS


@dataclass(frozen=True)
class Specialization:
    act: DType
    window: DType


@register_kernel
class CausalConv1d:
    """``y[t, c] = act(bias[c] + sum_j weight[c, j] * x[t - (W-1) + j, c])``; a row is preceded by its slot's window.

    Vector cores only. A task is (row, 256 channels), walked in steps of 16 tokens by one core, because its last step
    overwrites the window that its first one reads. The last W-1 inputs of a step are copied in front of the next, so
    that every input is read once. The next step is loaded while this one is worked on and the one before is stored.
    The window after the last token, raw inputs, goes to the slot, and one from inside the row to another slot on
    request. Rows without a slot and tokens after the last row become zero and read nothing. Without a pool the offsets
    stand in for the slots, of which every one counts.
    """

    NAME = "causal_conv1d"
    CONSTANTS = {"channels": CHANNELS}
    SPECIALIZATIONS = tuple(
        Specialization(act, window)
        for act, window in product((DType.BF16, DType.F16), (DType.F32, DType.BF16, DType.F16))
    )

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("x", spec.act, Role.IN, "[T, D], any pitch of T"),
            Tensor("weight", spec.act, Role.IN, "[D, W] contiguous"),
            Tensor("bias", spec.act, Role.IN, "[D]; not read if has_bias is 0"),
            Tensor("conv_pool", spec.window, Role.INOUT, "[slots, W-1, D], any pitch of slots"),
            Tensor("query_start_loc", DType.I32, Role.IN, "[N+1], start_pitch words an offset"),
            Tensor("cache_indices", DType.I32, Role.IN, "[N], index_pitch words an index"),
            Tensor("has_initial_state", DType.U8, Role.IN, "[N]; no effect if all_initial is 1"),
            Tensor("track_slots", DType.I32, Role.IN, "[N], track_pitch words an index; no effect if tracks is 0"),
            Tensor("track_lens", DType.I32, Role.IN, "[N], track_len_pitch words a count; no effect if tracks is 0"),
            Tensor("out", spec.act, Role.OUT, "[T, D] contiguous"),
        ]

    @staticmethod
    def generate_source(act: DType, window: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile

        taps_loaded = tile.Event("mte2", "v", 1)
        taps_free = tile.Event("v", "mte2", 1)
        window_loaded = tile.Event("mte2", "v", 2)
        window_free = tile.Event("v", "mte2", 2)
        window_ready = tile.Event("v", "mte3", 1)
        window_stored = tile.Event("mte3", "v", 1)
        zeros_ready = tile.Event("v", "mte3", 2)
        inputs_loaded = tile.Event("mte2", "v", 5)

        def step_loaded(buffer):
            return tile.Event("mte2", "v", 3 + buffer)

        def step_free(buffer):
            return tile.Event("v", "mte2", 3 + buffer)

        def outputs_ready(buffer):
            return tile.Event("v", "mte3", 3 + buffer)

        def outputs_stored(buffer):
            return tile.Event("mte3", "v", 3 + buffer)

        tokens, x_pitch = T.symbolic("tokens"), T.symbolic("x_pitch")
        slots, pool_pitch = T.symbolic("slots"), T.symbolic("pool_pitch")
        channels, taps_size = T.symbolic("channels"), T.symbolic("taps_size")
        starts, indices, flags = T.symbolic("starts"), T.symbolic("indices"), T.symbolic("flags")

        @T.prim_func
        def main(
            x: T.Tensor((tokens, x_pitch), act),
            weight: T.Tensor((taps_size,), act),
            bias: T.Tensor((channels,), act),
            conv_pool: T.Tensor((slots, pool_pitch), window),
            query_start_loc: T.Tensor((starts,), "int32"),
            cache_indices: T.Tensor((indices,), "int32"),
            has_initial_state: T.Tensor((flags,), "uint8"),
            track_slots: T.Tensor((indices,), "int32"),
            track_lens: T.Tensor((indices,), "int32"),
            out: T.Tensor((tokens, channels), act),
            blocks: T.int32,
            channel_lanes: T.int32,
            row_lanes: T.int32,
            rows: T.int32,
            width: T.int32,
            start_pitch: T.int32,
            index_pitch: T.int32,
            track_pitch: T.int32,
            track_len_pitch: T.int32,
            tracks: T.int32,
            has_bias: T.int32,
            has_pool: T.int32,
            all_initial: T.int32,
            silu: T.int32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                order = T.alloc_ub((CHANNELS,), "int32")
                taps_raw = T.alloc_ub((CHANNELS * MAX_WIDTH,), act)
                taps_flat = T.alloc_ub((CHANNELS * MAX_WIDTH,), "float32")
                taps = T.alloc_ub((MAX_WIDTH * CHANNELS,), "float32")
                bias_raw = T.alloc_ub((CHANNELS,), act)
                bias_f32 = T.alloc_ub((CHANNELS,), "float32")
                x_raw = T.alloc_ub((2 * TOKENS * CHANNELS,), act)
                window_raw = T.alloc_ub(((MAX_WIDTH - 1) * CHANNELS,), window)
                history = T.alloc_ub((HISTORY * CHANNELS,), "float32")
                y = T.alloc_ub((TOKENS * CHANNELS,), "float32")
                denominator = T.alloc_ub((TOKENS * CHANNELS,), "float32")
                y_raw = T.alloc_ub((2 * TOKENS * CHANNELS,), act)
                new_window = T.alloc_ub(((MAX_WIDTH - 1) * CHANNELS,), window)
                inputs_raw = T.alloc_ub(((MAX_WIDTH - 1) * CHANNELS,), act)
                inputs = T.alloc_ub(((MAX_WIDTH - 1) * CHANNELS,), "float32")
                zeros = T.alloc_ub((CHANNELS,), act)
                with T.Scope("V"):
                    lane = (cid * 2 + vid) % channel_lanes
                    first_row = (cid * 2 + vid) // channel_lanes
                    tile.sequence(order, CHANNELS)
                    tile.fill(y, 0.0, CHANNELS)
                    tile.vector_barrier()
                    tile.mul_scalar(order, order, width * 4, CHANNELS)
                    tile.convert(zeros, y, CHANNELS)
                    tile.signal(zeros_ready)
                    tile.wait(zeros_ready)
                    tile.signal(taps_free)
                    tile.signal(window_free)
                    tile.signal(window_stored)
                    for buffer in T.serial(2):
                        tile.signal(step_free(buffer))
                        tile.signal(outputs_stored(buffer))
                    # Cores that do not make up another set of lanes stay idle.
                    last_row = tile.select(first_row < row_lanes, rows, 0)
                    last_token = tile.select(first_row < row_lanes, tokens, 0)
                    for c in T.serial(T.ceildiv(T.ceildiv(channels, CHANNELS) - lane, channel_lanes)):
                        begin = (lane + c * channel_lanes) * CHANNELS
                        count = tile.smaller(CHANNELS, channels - begin)
                        tile.wait(taps_free)
                        tile.load(taps_raw, tile.at(weight, begin * width), count * width, CHANNELS * MAX_WIDTH)
                        if has_bias != 0:
                            tile.load(bias_raw, tile.at(bias, begin), count, CHANNELS)
                        tile.signal(taps_loaded)
                        tile.wait(taps_loaded)
                        tile.vector_barrier()
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
                            first = query_start_loc[row * start_pitch]
                            length = query_start_loc[(row + 1) * start_pitch] - first
                            slot = cache_indices[row * index_pitch]
                            resumes = has_initial_state[row]
                            destination = tile.select(tracks != 0, track_slots[row * track_pitch], -1)
                            taken = track_lens[row * track_len_pitch]
                            if slot >= 0 and slot < slots:
                                tile.wait(window_free)
                                if has_pool * (all_initial + resumes) != 0:
                                    for j in T.serial(width - 1):
                                        tile.load(
                                            tile.at(window_raw, j * CHANNELS),
                                            tile.at(conv_pool, slot * pool_pitch + j * channels + begin),
                                            count, CHANNELS,
                                        )  # fmt: skip
                                tile.signal(window_loaded)
                                if length > 0:
                                    tile.wait(step_free(0))
                                    tile.load(
                                        x_raw, tile.at(x, first * x_pitch + begin), count, CHANNELS,
                                        rows=tile.smaller(TOKENS, length), max_rows=TOKENS, pitch=x_pitch,
                                    )  # fmt: skip
                                    tile.signal(step_loaded(0))
                                tile.wait(window_loaded)
                                tile.vector_barrier()
                                if has_pool * (all_initial + resumes) != 0:
                                    for j in T.serial(width - 1):
                                        tile.convert(
                                            tile.at(history, j * CHANNELS), tile.at(window_raw, j * CHANNELS), CHANNELS
                                        )
                                else:
                                    tile.fill(history, 0.0, (MAX_WIDTH - 1) * CHANNELS)
                                tile.signal(window_free)
                                if destination >= 0 and destination < slots and taken >= 0 and taken <= length:
                                    # Its inputs are those of the row, or of the window before the row.
                                    tile.vector_barrier()
                                    for j in T.serial(width - 1):
                                        if taken + j >= width - 1:
                                            tile.load(
                                                tile.at(inputs_raw, j * CHANNELS),
                                                tile.at(x, (first + taken + j - (width - 1)) * x_pitch + begin),
                                                count, CHANNELS,
                                            )  # fmt: skip
                                    tile.signal(inputs_loaded)
                                    tile.wait(inputs_loaded)
                                    for j in T.serial(width - 1):
                                        if taken + j >= width - 1:
                                            tile.convert(
                                                tile.at(inputs, j * CHANNELS), tile.at(inputs_raw, j * CHANNELS),
                                                CHANNELS,
                                            )  # fmt: skip
                                        else:
                                            tile.convert(
                                                tile.at(inputs, j * CHANNELS),
                                                tile.at(history, (taken + j) * CHANNELS), CHANNELS,
                                            )  # fmt: skip
                                    tile.wait(window_stored)
                                    tile.vector_barrier()
                                    tile.convert(new_window, inputs, (MAX_WIDTH - 1) * CHANNELS)
                                    tile.signal(window_ready)
                                    tile.wait(window_ready)
                                    for j in T.serial(width - 1):
                                        tile.store(
                                            tile.at(conv_pool, destination * pool_pitch + j * channels + begin),
                                            tile.at(new_window, j * CHANNELS), count, CHANNELS,
                                        )  # fmt: skip
                                    tile.signal(window_stored)
                                for s in T.serial(T.ceildiv(length, TOKENS)):
                                    buffer = s % 2
                                    size = tile.smaller(TOKENS, length - s * TOKENS)
                                    if length - s * TOKENS > TOKENS:
                                        tile.wait(step_free(1 - buffer))
                                        tile.load(
                                            tile.at(x_raw, (1 - buffer) * (TOKENS * CHANNELS)),
                                            tile.at(x, (first + (s + 1) * TOKENS) * x_pitch + begin), count, CHANNELS,
                                            rows=tile.smaller(TOKENS, length - (s + 1) * TOKENS), max_rows=TOKENS,
                                            pitch=x_pitch,
                                        )  # fmt: skip
                                        tile.signal(step_loaded(1 - buffer))
                                    tile.wait(step_loaded(buffer))
                                    tile.vector_barrier()
                                    tile.convert(
                                        tile.at(history, (width - 1) * CHANNELS),
                                        tile.at(x_raw, buffer * (TOKENS * CHANNELS)), TOKENS * CHANNELS,
                                    )  # fmt: skip
                                    tile.signal(step_free(buffer))
                                    for t in T.serial(TOKENS):
                                        tile.convert(tile.at(y, t * CHANNELS), bias_f32, CHANNELS)
                                    for j in T.serial(width):
                                        tile.vector_barrier()
                                        for t in T.serial(TOKENS):
                                            tile.multiply_add(
                                                tile.at(y, t * CHANNELS), tile.at(taps, j * CHANNELS),
                                                tile.at(history, (t + j) * CHANNELS), CHANNELS,
                                            )  # fmt: skip
                                    tile.vector_barrier()
                                    if silu != 0:
                                        tile.mul_scalar(denominator, y, -1.0, TOKENS * CHANNELS)
                                        tile.vector_barrier()
                                        tile.exp(denominator, denominator, TOKENS * CHANNELS)
                                        tile.vector_barrier()
                                        tile.add_scalar(denominator, denominator, 1.0, TOKENS * CHANNELS)
                                        tile.vector_barrier()
                                        tile.div(y, y, denominator, TOKENS * CHANNELS)
                                        tile.vector_barrier()
                                    tile.wait(outputs_stored(buffer))
                                    tile.convert(tile.at(y_raw, buffer * (TOKENS * CHANNELS)), y, TOKENS * CHANNELS)
                                    tile.signal(outputs_ready(buffer))
                                    tile.wait(outputs_ready(buffer))
                                    tile.store(
                                        tile.at(out, (first + s * TOKENS) * channels + begin),
                                        tile.at(y_raw, buffer * (TOKENS * CHANNELS)), count, CHANNELS,
                                        rows=size, max_rows=TOKENS, pitch=channels,
                                    )  # fmt: skip
                                    tile.signal(outputs_stored(buffer))
                                    # A short step may move the window by less than its length: row by row.
                                    for j in T.serial(width - 1):
                                        tile.vector_barrier()
                                        tile.convert(
                                            tile.at(history, j * CHANNELS), tile.at(history, (size + j) * CHANNELS),
                                            CHANNELS,
                                        )  # fmt: skip
                                if has_pool != 0:
                                    tile.wait(window_stored)
                                    tile.vector_barrier()
                                    tile.convert(new_window, history, (MAX_WIDTH - 1) * CHANNELS)
                                    tile.signal(window_ready)
                                    tile.wait(window_ready)
                                    for j in T.serial(width - 1):
                                        tile.store(
                                            tile.at(conv_pool, slot * pool_pitch + j * channels + begin),
                                            tile.at(new_window, j * CHANNELS), count, CHANNELS,
                                        )  # fmt: skip
                                    tile.signal(window_stored)
                            else:
                                for t in T.serial(length):
                                    tile.store(tile.at(out, (first + t) * channels + begin), zeros, count, CHANNELS)
                        end = query_start_loc[rows * start_pitch]
                        for t in T.serial(T.ceildiv(last_token - end - first_row, row_lanes)):
                            tile.store(
                                tile.at(out, (end + first_row + t * row_lanes) * channels + begin),
                                zeros,
                                count,
                                CHANNELS,
                            )
                    tile.wait(taps_free)
                    tile.wait(window_free)
                    tile.wait(window_stored)
                    for buffer in T.serial(2):
                        tile.wait(step_free(buffer))
                        tile.wait(outputs_stored(buffer))

        return lower(main)
