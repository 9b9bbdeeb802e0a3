"""The stages of the chunked gated delta rule on the simulated NPU, and what each must compute, in float64."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ascend.simulated import SimulatedModule
from cases import F32
from compare import GuardedPool
from problems import DeltaRule
from sglang_gdn import stages
from sglang_gdn.stages import STAGES

C, D = stages.CHUNK, 128
TWO_PARTS = ("write", "erase", "v_new")  # a rounded one, and what rounding left out


@dataclass
class Chunk:
    """One chunk of one row: its number, tokens and row."""

    number: int
    tokens: slice
    row: int
    index: int

    @property
    def valid(self) -> int:
        return self.tokens.stop - self.tokens.start


@dataclass
class Stages:
    """Launches stages of ``problem`` one by one; tensors between them start as NaN."""

    simulator: SimulatedModule
    problem: DeltaRule
    between: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        args = self.args = {
            name: x[0] if isinstance(x, Tensor) and name in ("q", "k", "v", "g", "beta") else x
            for name, x in self.problem.args.items()
        }
        heads, act = args["v"].shape[1], self.problem.activation
        chunks = args["v"].shape[0] // C + len(args["cu_seqlens"]) - 1
        shapes = {
            "gates": (C, heads), "head_gates": (heads, C), "head_beta": (heads, C), "lower": (heads, C, C),
            "write": (heads, 2, C, C), "erase": (heads, 2, C, C), "w": (heads, C, D), "h": (heads, D, D),
            "v_new": (heads, 2, C, D),
        }  # fmt: skip
        for name, shape in shapes.items():
            dtype = F32 if name in ("gates", "head_gates", "head_beta", "lower") else act
            self.between[name] = torch.full((chunks, *shape), torch.nan, dtype=dtype)
        self.workspace = self.simulator.workspace()
        self.pool = GuardedPool(self.problem.ssm, "cpu")
        self.out = torch.full_like(args["v"], torch.nan)

    def run(self, *names: str, in_one_launch: bool = False) -> None:
        """Each stage, or everything up to it."""
        scale = self.args["scale"] or D**-0.5
        for name in names:
            self.simulator.chunk_stage(
                0, *(self.args[x] for x in ("q", "k", "v", "g", "beta")), self.pool.tensor, self.args["cu_seqlens"],
                self.args["cache_indices"], self.args["has_initial_state"], self.out, *self.between.values(),
                self.workspace, STAGES.index(name), scale, True, in_one_launch,
            )  # fmt: skip

    def chunks(self) -> list[Chunk]:
        starts = self.args["cu_seqlens"].tolist()
        return [
            Chunk(
                starts[row] // C + row + (first - starts[row]) // C, slice(first, end), row, (first - starts[row]) // C
            )
            for row, first, end in stages.chunk_bounds(self.args["cu_seqlens"])
        ]

    def found(self, name: str) -> Tensor:
        """``between`` of all chunks of rows, in float64; both parts together."""
        x = self.between[name][[chunk.number for chunk in self.chunks()]].double()
        return x.sum(2) if name in TWO_PARTS else x

    def by_chunk(self, x: Tensor) -> Tensor:
        """``[T, HV, ...]`` to ``[M, HV, C, ...]``, zeros past the end of a row."""
        found = x.new_zeros(len(self.chunks()), C, *x.shape[1:], dtype=torch.float64)
        for m, chunk in enumerate(self.chunks()):
            found[m, : chunk.valid] = x[chunk.tokens]
        return found.transpose(1, 2)

    def by_token(self, x: Tensor) -> Tensor:
        found = torch.zeros_like(self.args["v"], dtype=torch.float64)
        for m, chunk in enumerate(self.chunks()):
            found[chunk.tokens] = x[m, :, : chunk.valid].transpose(0, 1)
        return found

    def expected(self, name: str) -> dict[str, Tensor]:
        """What stage ``name`` must make, by chunk, of what is now in ``between``, which its inputs are."""
        args = self.args
        starts, q, k, v, g, beta = (args[key] for key in ("cu_seqlens", "q", "k", "v", "g", "beta"))
        gates, strengths = self.found("head_gates"), self.found("head_beta")
        none, all_ = torch.zeros_like(gates), torch.ones_like(gates)
        match name:
            case "cumsum":
                return {"gates": stages.transpose(stages.cumsum(g.clamp(min=-100), starts), starts).mT}
            case "transpose":
                return {"head_gates": self.found("gates").mT, "head_beta": self.by_chunk(beta)}
            case "scaled_dot_kkt":
                return {"lower": stages.scaled_dot_kkt(k, gates, strengths, starts)}
            case "solve_tril":
                write = stages.solve_tril(self.found("lower")) * strengths[..., None, :]
                return {"write": write, "erase": -write * gates.exp()[..., None, :]}
            case "wy_fast":
                return {"w": self.by_chunk(stages.wy_fast(k, v, none, all_, self.found("erase"), starts)[0])}
            case "chunk_h":
                _, u = stages.wy_fast(k, v, none, all_, self.found("write"), starts)
                return {"v_new": self.by_chunk(u) + self.found("w") @ self.found("h").mT}
            case _:
                v_new, scale = self.by_token(self.found("v_new")), args["scale"] or D**-0.5
                return {"o": self.by_chunk(stages.chunk_o(q, k, v_new, self.found("h"), gates, scale, starts))}
