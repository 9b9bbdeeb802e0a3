"""The stages of the chunked gated delta rule on the simulated NPU, and what each must compute, in float64."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

import oracle
from ascend.simulated import SimulatedModule
from cases import F32
from compare import GuardedPool
from problems import DeltaRule

C, D = 64, 128
STAGES = ("cumsum", "transpose", "scaled_dot_kkt", "solve_tril", "wy_fast", "chunk_h", "chunk_o")


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
            "write": (heads, C, C), "erase": (heads, C, C), "w": (heads, C, D), "h": (heads, D, D),
            "v_new": (heads, C, D),
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
        found = []
        for row, (begin, end) in enumerate(oracle.row_bounds(self.args["cu_seqlens"])):
            for index, first in enumerate(range(begin, end, C)):
                found.append(Chunk(begin // C + row + index, slice(first, min(first + C, end)), row, index))
        return found

    def padded(self, name: str, chunk: Chunk) -> Tensor:
        """Tokens of a chunk in float64, by value head, zeros past its end: ``[HV, C, ...]``."""
        x = self.args[name][chunk.tokens].double()
        if name in ("q", "k"):
            x = oracle.heads_of_values(x, self.args["v"].shape[1], norm=False)
        x = torch.cat([x, x.new_zeros(C - chunk.valid, *x.shape[1:])])
        return x.transpose(0, 1)

    def expected(self, name: str, chunk: Chunk) -> dict[str, Tensor]:
        """What stage ``name`` must make of what is now in ``between``, which its inputs are."""
        of = {key: x[chunk.number].double() for key, x in self.between.items()}
        decay = torch.exp((of["head_gates"][:, :, None] - of["head_gates"][:, None, :]).tril())
        match name:
            case "cumsum":
                return {"gates": self.padded("g", chunk).clamp(min=-100).cumsum(1).T}
            case "transpose":
                return {"head_gates": of["gates"].T, "head_beta": self.padded("beta", chunk)}
            case "scaled_dot_kkt":
                k = self.padded("k", chunk)
                return {"lower": (of["head_beta"][:, :, None] * decay * (k @ k.mT)).tril(-1)}
            case "solve_tril":
                write = torch.linalg.inv(torch.eye(C).double() + of["lower"]) * of["head_beta"][:, None, :]
                return {"write": write, "erase": -write * torch.exp(of["head_gates"])[:, None, :]}
            case "wy_fast":
                return {"w": of["erase"] @ self.padded("k", chunk)}
            case "chunk_h":
                return {"v_new": of["write"] @ self.padded("v", chunk) + of["w"] @ of["h"].mT}
            case _:
                scale = self.args["scale"] or D**-0.5
                q, k = self.padded("q", chunk), self.padded("k", chunk)
                state = torch.exp(of["head_gates"])[:, :, None] * (q @ of["h"].mT)
                return {"o": scale * (state + (decay * (q @ k.mT)).tril() @ of["v_new"])}
