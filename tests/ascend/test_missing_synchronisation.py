"""Leaving out any one synchronisation of a kernel must be reported, or change its result."""

from __future__ import annotations

import pytest
import torch

from ascend.simulated import ROOT, SimulatorReportError
from ascend.synchronisation import synchronisations
from ascend.test_causal_conv1d_update import update

GENERATED = ROOT / "csrc/ascend/generated"
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


KERNELS = {"causal_conv1d_update_act_bf16_window_f32": run_causal_conv1d_update}


@pytest.mark.parametrize("variant", KERNELS)
def test_missing_synchronisation_is_noticed(npu, variant):
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
    detected = 1 - len(missed) / len(everything)
    print(f"{variant}: {len(everything) - len(missed)} of {len(everything)} noticed; not noticed: {missed or 'none'}")
    assert detected >= DETECTED, missed
