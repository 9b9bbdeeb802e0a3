"""``out = x + factor * y``: the smallest complete kernel."""

from dataclasses import dataclass

from gdn_aot.lowering import lower
from gdn_aot.registry import DType, Role, Tensor, register_kernel

ELEMENTS = 1024  # a task


@dataclass(frozen=True)
class Specialization:
    act: DType


@register_kernel
class ScaledAdd:
    """Vector cores only; a task is 1,024 elements, the last one shorter. Every element is read and written once."""

    NAME = "scaled_add"
    CONSTANTS = {"elements": ELEMENTS}  # noqa: RUF012
    SPECIALIZATIONS = (Specialization(DType.BF16),)

    @staticmethod
    def tensors(spec: Specialization) -> list[Tensor]:
        return [
            Tensor("x", spec.act, Role.IN, "[N]"),
            Tensor("y", spec.act, Role.IN, "[N]"),
            Tensor("out", spec.act, Role.OUT, "[N]"),
        ]

    @staticmethod
    def generate_source(act: DType) -> str:
        import tilelang.language as T

        from gdn_aot import tile

        loaded = tile.Event("mte2", "v", 1)
        inputs_free = tile.Event("v", "mte2", 1)
        ready = tile.Event("v", "mte3", 1)
        output_free = tile.Event("mte3", "v", 1)
        size = T.symbolic("size")

        @T.prim_func
        def main(
            x: T.Tensor((size,), act),
            y: T.Tensor((size,), act),
            out: T.Tensor((size,), act),
            blocks: T.int32,
            factor: T.float32,
        ):
            with T.Kernel(blocks, is_npu=True) as (cid, vid):
                x_raw = T.alloc_ub((ELEMENTS,), act)
                y_raw = T.alloc_ub((ELEMENTS,), act)
                x_f32 = T.alloc_ub((ELEMENTS,), "float32")
                y_f32 = T.alloc_ub((ELEMENTS,), "float32")
                out_raw = T.alloc_ub((ELEMENTS,), act)
                with T.Scope("V"):
                    core = cid * 2 + vid
                    tile.signal(inputs_free)
                    tile.signal(output_free)
                    for i in T.serial(T.ceildiv(T.ceildiv(size, ELEMENTS) - core, blocks * 2)):
                        begin = (core + i * blocks * 2) * ELEMENTS
                        count = tile.smaller(ELEMENTS, size - begin)
                        tile.wait(inputs_free)
                        tile.load(x_raw, tile.at(x, begin), count, ELEMENTS)
                        tile.load(y_raw, tile.at(y, begin), count, ELEMENTS)
                        tile.signal(loaded)
                        tile.wait(loaded)
                        tile.convert(x_f32, x_raw, ELEMENTS)
                        tile.convert(y_f32, y_raw, ELEMENTS)
                        tile.signal(inputs_free)
                        tile.vector_barrier()
                        tile.mul_scalar(y_f32, y_f32, factor, ELEMENTS)
                        tile.vector_barrier()
                        tile.add(x_f32, x_f32, y_f32, ELEMENTS)
                        tile.vector_barrier()
                        tile.wait(output_free)
                        tile.convert(out_raw, x_f32, ELEMENTS)
                        tile.signal(ready)
                        tile.wait(ready)
                        tile.store(tile.at(out, begin), out_raw, count, ELEMENTS)
                        tile.signal(output_free)
                    tile.wait(inputs_free)
                    tile.wait(output_free)

        return lower(main)
