"""Shapes and inputs of the benchmarks: one GDN layer and a batch, the same tensors for every implementation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

CONV_WIDTH = 4
CHUNK = 64
ACT = torch.bfloat16
# States are taken from a ring of batches of at least this size, so that a step finds none of them in a cache.
RING_BYTES = 256 << 20


@dataclass(frozen=True)
class Heads:
    """H key heads and HV value heads, all of size ``dim``."""

    k: int
    v: int
    dim: int = 128

    @property
    def channels(self) -> int:
        return (2 * self.k + self.v) * self.dim

    @property
    def state_bytes(self) -> int:
        return self.v * self.dim * self.dim * 4

    @property
    def window_bytes(self) -> int:
        return self.channels * (CONV_WIDTH - 1) * ACT.itemsize

    def split(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[..., D] -> q, k [..., H, dim] and v [..., HV, dim], as views."""
        q, k, v = y.split([self.k * self.dim, self.k * self.dim, self.v * self.dim], dim=-1)
        return q.unflatten(-1, (self.k, -1)), k.unflatten(-1, (self.k, -1)), v.unflatten(-1, (self.v, -1))


@dataclass(frozen=True)
class Workload:
    """A batch of rows with ``lens`` tokens each; ``label`` is the name of the shape in results."""

    heads: Heads
    lens: tuple[int, ...]
    phase: str
    label: str

    @property
    def shape(self) -> dict[str, Any]:
        shape: dict[str, Any] = {"hk": self.heads.k, "hv": self.heads.v, "d": self.heads.dim}
        if self.phase == "prefill":
            return shape | {"lens": list(self.lens), "label": self.label}
        if self.phase == "verify":
            return shape | {"batch": self.rows, "drafts": self.lens[0]}
        return shape | {"batch": self.rows}

    @property
    def rows(self) -> int:
        return len(self.lens)

    @property
    def tokens(self) -> int:
        return sum(self.lens)

    @property
    def ring(self) -> int:
        """Number of batches of states."""
        return 1 if self.phase == "prefill" else max(1, -(-RING_BYTES // (self.rows * self.heads.state_bytes)))

    @property
    def parts(self) -> list[slice]:
        """Tokens of each row."""
        ends = torch.tensor(self.lens).cumsum(0).tolist()
        return [slice(end - length, end) for end, length in zip(ends, self.lens, strict=True)]

    @cached_property
    def inputs(self) -> Inputs:
        return Inputs(self)


class Inputs:
    """The tensors of a workload. Gates are those of trained models: A in [1, 16), softplus(dt_bias) in [1e-3, 0.1)."""

    def __init__(self, workload: Workload) -> None:
        heads, random = workload.heads, torch.Generator().manual_seed(0)

        def normal(*shape: int, factor: float = 1.0, dtype: torch.dtype = ACT) -> Tensor:
            return (torch.randn(shape, generator=random) * factor).to(dtype)

        self.mixed_qkv = normal(workload.tokens, heads.channels)
        self.a, self.b = normal(workload.tokens, heads.v), normal(workload.tokens, heads.v)
        self.conv_weight = normal(heads.channels, CONV_WIDTH, factor=0.5)
        self.A_log = torch.empty(heads.v).uniform_(1, 16, generator=random).log_()
        step = torch.empty(heads.v).uniform_(1e-3, 0.1, generator=random)
        self.dt_bias = step.expm1().log()
        slots = workload.ring * workload.rows
        self.conv_pool = normal(slots, heads.channels, CONV_WIDTH - 1)
        self.ssm_pool = normal(slots, heads.v, heads.dim, heads.dim, factor=0.1, dtype=torch.float32)
        self.query_start_loc = torch.tensor((0, *workload.lens)).cumsum(0).to(torch.int32)
        self.batches = torch.arange(slots, dtype=torch.int32).view(workload.ring, workload.rows)


def prefill(heads: Heads, label: str, lens: tuple[int, ...]) -> Workload:
    return Workload(heads, lens, "prefill", label)


def decode(heads: Heads, batch: int) -> Workload:
    return Workload(heads, (1,) * batch, "decode", f"batch {batch}")


def verify(heads: Heads, batch: int, drafts: int) -> Workload:
    return Workload(heads, (drafts,) * batch, "verify", f"batch {batch}, {drafts} drafts")
