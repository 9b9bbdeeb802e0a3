"""The readable stages against the recurrence, each by its definition, and the operator against them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import oracle
from cases import BF16, F32, GATES, SMALL, TRIPLE
from compare import assert_close, rel_l2
from problems import DeltaRule, delta_rule
from sglang_gdn import stages
from tolerances import limit

LENS = [70, 0, 64, 1, 129]
EXACT = 1e-12


def inputs(problem: DeltaRule) -> dict[str, Tensor]:
    """Of the stages, from what the operator gets: normalised keys, the states of the rows."""
    args = {name: problem.args[name][0].cpu() for name in ("q", "k", "v", "g", "beta")}
    if problem.args["use_qk_l2norm_in_kernel"]:
        args |= {name: oracle.l2norm(args[name].double()) for name in ("q", "k")}
    slots = problem.args["cache_indices"].cpu().long()
    return args | {"initial_state": problem.ssm.cpu()[slots], "cu_seqlens": problem.args["cu_seqlens"].cpu()}


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("heads", [SMALL, TRIPLE], ids=str)
def test_all_stages_are_the_recurrence(heads, gates):
    problem = delta_rule("cpu", heads, LENS, gates=gates)
    found, expected = stages.run(**inputs(problem)), problem.expected()
    assert rel_l2(found["o"], expected.o[: sum(LENS)]) < EXACT
    slots = problem.args["cache_indices"].long()
    assert rel_l2(found["final_state"], expected.pool[slots]) < EXACT


def test_every_stage_by_its_definition():
    problem = delta_rule("cpu", TRIPLE, LENS)
    args = inputs(problem)
    found = stages.run(**args)
    ratio = TRIPLE.HV // TRIPLE.H
    bounds = stages.chunk_bounds(args["cu_seqlens"])
    assert [(end - first) for _, first, end in bounds] == [64, 6, 64, 1, 64, 64, 1]
    for chunk, (_, first, end) in enumerate(bounds):
        for head in range(TRIPLE.HV):
            k = args["k"][first:end, head // ratio].double()
            g, beta = args["g"][first:end, head].double(), args["beta"][first:end, head].double()
            sums = torch.stack([g[: i + 1].sum() for i in range(len(g))])
            assert_close(found["G"][first:end, head], sums, EXACT, "G")
            lower = torch.zeros(len(g), len(g), dtype=torch.float64)
            for i in range(len(g)):
                for j in range(i):
                    lower[i, j] = beta[i] * g[j + 1 : i + 1].sum().exp() * k[i].dot(k[j])
            padded = found["lower"][chunk, head]
            assert rel_l2(padded[: len(g), : len(g)] + 1, lower + 1) < EXACT
            assert padded[len(g) :].count_nonzero() == 0
            identity = torch.eye(len(g), dtype=torch.float64)
            inverse = found["inverse"][chunk, head, : len(g), : len(g)]
            assert rel_l2(inverse @ (identity + lower), identity) < EXACT
            assert rel_l2(found["w"][first:end, head], inverse @ (beta * sums.exp()).diag() @ k) < EXACT
            assert (
                rel_l2(found["u"][first:end, head], inverse @ beta.diag() @ args["v"][first:end, head].double()) < EXACT
            )
            state = found["h"][chunk, head]
            v_new = found["u"][first:end, head] - found["w"][first:end, head] @ state.T
            assert rel_l2(found["v_new"][first:end, head], v_new) < EXACT


@pytest.mark.parametrize("stage", stages.STAGES)
def test_stops_after_a_stage(stage):
    made = {
        "cumsum": {"G"}, "transpose": {"gates", "beta"}, "scaled_dot_kkt": {"lower"}, "solve_tril": {"inverse"},
        "wy_fast": {"w", "u"}, "chunk_h": {"h", "v_new", "final_state"}, "chunk_o": {"o"},
    }  # fmt: skip
    found = stages.run(**inputs(delta_rule("cpu", SMALL, [65])), stop_after=stage)
    assert set(found) == set().union(*(made[s] for s in stages.STAGES[: stages.STAGES.index(stage) + 1]))


def test_an_unknown_stage_is_named():
    with pytest.raises(ValueError, match=r"stop_after must be one of cumsum.*; got 'chunk_p'"):
        stages.run(**inputs(delta_rule("cpu", SMALL, [1])), stop_after="chunk_p")


def test_gates_that_forget_everything_stay_finite():
    found = stages.run(**inputs(delta_rule("cpu", SMALL, [70, 3], gates="forget")))
    assert all(x.isfinite().all() for x in found.values())


@pytest.mark.parametrize("act", [BF16, F32], ids=str)
def test_states_before_every_chunk_of_the_operator(device, act):
    """``h``, ``o`` and the final state are what an engine shows of its stages."""
    problem = delta_rule(device, SMALL, LENS, act=act, gates="model")
    run, found = problem.run(output_h=True), stages.run(**inputs(problem))
    state = limit(device, "prefill_state", F32)
    for chunk in range(len(found["h"])):
        assert_close(run.h[chunk], found["h"][chunk], state, f"h[{chunk}]")
    assert_close(run.o, found["o"], limit(device, "prefill_o", act), "o")
    assert_close(run.ssm.tensor[problem.args["cache_indices"].long()], found["final_state"], state, "final_state")
