"""Leaving out any one synchronisation of a kernel must be reported, or change its result."""

from __future__ import annotations

import pytest
import torch

from ascend.chunk_stages import STAGES, Stages
from ascend.simulated import ROOT, SimulatedModule, SimulatorReportError
from ascend.synchronisation import synchronisations
from ascend.test_causal_conv1d import prefill
from ascend.test_causal_conv1d_update import update
from ascend.test_delta_update import update as delta_update
from ascend.test_gdn_gating import MAX_HEADS, gates
from cases import Heads
from gdn_aot.registry import registered_kernels
from problems import delta_rule
from sglang_gdn import ops

GENERATED = ROOT / "csrc/ascend/generated"
DOCUMENTED = (ROOT / "docs/ascend.md").read_text()
DETECTED = 0.95


def run_causal_conv1d_update() -> list[torch.Tensor]:
    """Several rows, then one, of several blocks of channels on every core; a padded row, bias, windows of drafts."""
    results = []
    for ids in ([3, 5, -1, 0, 1, 2, 6, 7], [4]):
        problem = update(2100, len(ids), 2, ids=ids)
        windows = torch.zeros(8, 2, 3, 2100)
        out, pool = problem.run(intermediate_conv_window=windows.mT, intermediate_state_indices=problem.ids)
        results += [out, pool.tensor, windows]
    return results


def run_causal_conv1d() -> list[torch.Tensor]:
    """Rows of several steps and of none, a padded row, rows without a window; then single rows, live and padded."""
    results = []
    many = ([40, 17, 0, 3, 35], [3, 5, 0, -1, 1], [True, False, True, True, False])
    track = {"track_slots": torch.tensor([6, 7, 8, 2, 4]), "track_lens": torch.tensor([33, 2, 0, 1, 35])}
    single, padded = ([16], [4], [True]), ([5], [-1], [True])
    for (lens, ids, initial), tracked in ((many, track), (many, {}), (single, {}), (padded, {})):
        problem = prefill(lens, channels=1100, ids=ids, initial=initial, pad_tokens=3)
        out, pool = problem.run(**tracked)
        results += [out, pool.tensor]
    return results


def run_gdn_gating() -> list[torch.Tensor]:
    """Several whole tasks, and one that is not, on every core."""
    results = []
    for tokens in (128, 70):
        results += ops.gdn_gating(**gates(tokens, MAX_HEADS))
    return results


def run_delta_update() -> list[torch.Tensor]:
    """Drafts of several rows and heads on every core with their states, then single tokens; a padded row."""
    problem = delta_update(Heads(1, 2), 3, 2, ids=[3, -1, 0])
    states = torch.zeros(3, 2, 2, 128, 128)
    indices = torch.tensor([0, 1, 2], dtype=torch.int32)
    drafts = problem.run(intermediate_ssm=states, intermediate_state_indices=indices)
    single = delta_update(Heads(1, 2), 2).run(use_qk_l2norm_in_kernel=False)
    return [drafts.o, drafts.ssm.tensor, states, single.o, single.ssm.tensor]


STAGE_OUTPUTS = {
    "cumsum": ["gates"], "transpose": ["head_gates", "head_beta"], "scaled_dot_kkt": ["lower"],
    "solve_tril": ["write", "erase"], "wy_fast": ["w"], "chunk_h": ["h", "v_new"], "chunk_o": [],
}  # fmt: skip


class RunStage:
    """A stage with several tasks a core: rows of several chunks, of one, of none, and a padded one.

    Stages that work on all heads at once get as many as there can be: copies of fewer bring their own flags.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.stages: Stages | None = None

    def __call__(self) -> list[torch.Tensor]:
        if self.stages is None:
            heads = Heads(1, 2) if self.name in STAGES[2:] else Heads(1, MAX_HEADS)
            problem = delta_rule(
                "cpu", heads, [70, 256, 0, 70, 64, 3], ids=[-1, 3, 1, 4, 5, 2],
                initial=[True, True, True, True, False, True], act=torch.bfloat16, norm=False, pad_tokens=3,
            )  # fmt: skip
            self.stages = Stages(ops._C, problem)
            self.stages.run(*STAGES[: STAGES.index(self.name)])
            self.pool = self.stages.pool.storage.clone()
        stages = self.stages
        outputs = [stages.out, *(stages.between[name] for name in STAGE_OUTPUTS[self.name])]
        for output in outputs:
            output.fill_(torch.nan)
        stages.pool.storage.copy_(self.pool)
        stages.run(self.name)
        return [x.clone().nan_to_num() for x in (*outputs, stages.pool.storage)]


class RunPipeline:
    """All stages in one launch, to the end with norms, and up to two others with results that are kept."""

    def __init__(self) -> None:
        self.problem = delta_rule(
            "cpu", Heads(1, 2), [70, 256, 0, 70, 64, 3], ids=[-1, 3, 1, 4, 5, 2],
            initial=[True, True, True, True, False, True], act=torch.bfloat16, pad_tokens=3,
        )  # fmt: skip

    def __call__(self) -> list[torch.Tensor]:
        run = self.problem.run()
        results = [run.o, run.ssm.storage.nan_to_num()]
        track = {"track_state": torch.zeros(6, 2, 128, 128), "track_chunk_idx": torch.tensor([1, 2, 0, -1, 1, 1])}
        run = self.problem.run(**track, output_h=True)
        results += [track["track_state"], run.h]
        for last in ("transpose", "chunk_h"):
            inspected = Stages(ops._C, self.problem)
            inspected.run(last, in_one_launch=True)
            results += [x.nan_to_num() for x in inspected.between.values()]
        return results


KERNELS = {
    "causal_conv1d_act_bf16_window_f32": run_causal_conv1d,
    "causal_conv1d_update_act_bf16_window_f32": run_causal_conv1d_update,
    "gdn_gating_act_bf16_dt_bias_f32": run_gdn_gating,
    "fused_sigmoid_gating_delta_rule_update_act_bf16_dt_bias_f32": run_delta_update,
    "chunk_cumsum_gates_f32": RunStage("cumsum"),
    "chunk_transpose_gates_f32": RunStage("transpose"),
    **{f"{name}_act_bf16": RunStage(name) for name in STAGES[2:]},
    "chunk_gated_delta_rule_act_bf16": RunPipeline(),
}


def not_noticed(npu: SimulatedModule, variant: str) -> tuple[list[str], int]:
    """Synchronisations that nobody misses, and how many there are."""
    npu.set_cores(1)
    source = GENERATED / f"{variant}.cpp"
    expected = KERNELS[variant]()
    missed = []
    everything = synchronisations(source)
    try:
        for synchronisation in everything:
            npu.leave_out(source.name, synchronisation.lines)
            try:
                actual = KERNELS[variant]()
            except SimulatorReportError:
                continue
            if all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True)):
                missed.append(synchronisation.name)
    finally:
        npu.leave_out("", [])
    return missed, len(everything)


@pytest.mark.parametrize("variant", KERNELS)
def test_missing_synchronisation_is_noticed(npu, variant):
    missed, total = not_noticed(npu, variant)
    assert len(missed) <= (1 - DETECTED) * total, missed
    figure = f"{total - len(missed)} of {total}" if total else "has none of its own"
    kernel = next(name for name in sorted(registered_kernels(), key=len, reverse=True) if variant.startswith(name))
    row = next(row for row in DOCUMENTED.splitlines() if row.startswith(f"| `{kernel}` | yes"))
    assert f"| {figure} |" in row, f"docs/ascend.md must say of {kernel}: {figure}"
