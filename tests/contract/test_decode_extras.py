"""``gdn_decode`` on raw projections, with the gated norm of its output, and with a second slot for the new state."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import (
    ACTIVATIONS,
    BF16,
    DECODE_ACTIVATIONS,
    F32,
    INDEX_DTYPES,
    ODD_DECODE_HEADS,
    RATIOS,
    SERVED_STATES,
    SMALL,
    STATES,
    TRIPLE,
    Heads,
    name_of,
    small,
)
from compare import assert_bit_equal, assert_zero
from problems import Run, check_normalised, check_tracked, fused_layer, gate_of, live, norm_of, projections
from sglang_gdn import ops

LAYOUTS = ["contiguous", "interleaved"]
IDS = [4, -1, 7, 0]


def assert_same(actual: Run, expected: Run) -> None:
    assert_bit_equal(actual.o, expected.o, "o")
    assert_bit_equal(actual.ssm.storage, expected.ssm.storage, "ssm_pool")
    assert_bit_equal(actual.conv.storage, expected.conv.storage, "conv_pool")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("heads", [*RATIOS, TRIPLE, Heads(2, 6, 64, 128)], ids=str)
@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
def test_raw_projections_give_the_bits_of_separate_tensors(device, layout, heads, act):
    problem = fused_layer(device, heads, batch=4, act=act, conv=act, ids=IDS)
    separate = problem.decode()
    problem.check_decode(separate, problem.expected_decode())
    assert_same(problem.decode(**projections(problem, gate_of(problem), layout)), separate)


def test_layouts_differ():
    """Columns read in the wrong order would show."""
    problem = fused_layer("cpu", SMALL, batch=2)
    raw = projections(problem, gate_of(problem), "interleaved")
    assert not torch.equal(problem.decode(**raw | {"projection_layout": "contiguous"}).o, problem.decode(**raw).o)


@pytest.mark.parametrize("heads", RATIOS, ids=str)
@pytest.mark.parametrize("act", ACTIVATIONS, ids=name_of)
@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_norm(device, heads, act, activation):
    problem = fused_layer(device, heads, batch=4, act=act, conv=act, ids=IDS)
    z, norm = gate_of(problem), norm_of(problem, activation=activation)
    run, plain = problem.decode(z=z, **norm), problem.decode()
    check_normalised(problem, run, z, norm)
    assert_bit_equal(run.ssm.storage, plain.ssm.storage, "ssm_pool")
    assert_bit_equal(run.conv.storage, plain.conv.storage, "conv_pool")


@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("weight", ACTIVATIONS, ids=name_of)
def test_norm_dtypes(device, state, weight):
    problem = fused_layer(device, TRIPLE, batch=4, state=state, ids=IDS)
    z, norm = gate_of(problem), norm_of(problem, weight)
    check_normalised(problem, problem.decode(z=z, **norm), z, norm)


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.5])
def test_epsilon_of_the_norm_is_inside_the_root(device, eps):
    problem = fused_layer(device, SMALL, batch=4, ids=IDS)
    z, norm = gate_of(problem), norm_of(problem, eps=eps)
    check_normalised(problem, problem.decode(z=z, **norm), z, norm)


@pytest.mark.parametrize("value", [-200.0, -30.0, 0.0, 30.0])
@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_norm_of_saturated_gates(device, value, activation):
    problem = fused_layer(device, SMALL, batch=2, ids=[3, 5])
    z, norm = gate_of(problem).fill_(value), norm_of(problem, activation=activation)
    run = problem.decode(z=z, **norm)
    if value < -100 or (value == 0 and activation == "silu"):
        assert run.o.abs().max() <= 1e-30
    else:
        check_normalised(problem, run, z, norm)


def test_norm_of_a_zero_output_is_zero(device):
    problem = fused_layer(device, SMALL, batch=2, state_scale=0.0, ids=[3, 5])
    problem.tokens["b"].fill_(-1e4)
    assert_zero(problem.decode(z=gate_of(problem), **norm_of(problem)).o, "o")


def test_strided_gate_gives_the_same_bits(device):
    problem = fused_layer(device, TRIPLE, batch=4, ids=IDS)
    z, norm = gate_of(problem), norm_of(problem)
    heads_apart = torch.stack([z, torch.full_like(z, torch.nan)], dim=2).flatten(1, 2)[:, ::2]
    assert_same(problem.decode(z=heads_apart, **norm), problem.decode(z=z, **norm))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("heads", RATIOS, ids=str)
def test_norm_of_raw_projections(device, layout, heads):
    problem = fused_layer(device, heads, batch=4, act=BF16, conv=BF16, ids=IDS)
    z, norm = gate_of(problem), norm_of(problem)
    assert_same(problem.decode(**projections(problem, z, layout), **norm), problem.decode(z=z, **norm))


@pytest.mark.parametrize("act", [F32, BF16], ids=name_of)
@pytest.mark.parametrize("heads", [SMALL, TRIPLE], ids=str)
def test_a_normalised_row_has_the_same_bits_alone_and_in_any_batch(device, heads, act):
    problem = fused_layer(device, heads, batch=70, act=act, conv=act)
    z, norm = gate_of(problem), norm_of(problem)
    together = problem.decode(z=z, **norm)
    for n in (0, 33, 69):
        row = slice(n, n + 1)
        tokens = {name: x[row] for name, x in problem.tokens.items()}
        alone = problem.decode(**tokens, cache_indices=problem.rows["cache_indices"][row], z=z[row], **norm)
        assert_bit_equal(alone.o[0], together.o[n], "o")


@pytest.mark.parametrize("heads", [*RATIOS, SMALL], ids=str)
@pytest.mark.parametrize("state", STATES, ids=name_of)
@pytest.mark.parametrize("extra_pitch", [0, 96])
@pytest.mark.parametrize("index_dtype", INDEX_DTYPES, ids=name_of)
def test_tracked_rows_store_their_state_twice(device, heads, state, extra_pitch, index_dtype):
    track = [2, 6, -1, 8]  # the row without a slot names one, and stores nothing
    problem = fused_layer(device, heads, batch=4, act=BF16, conv=BF16, state=state, ids=IDS, index_dtype=index_dtype)
    slots = torch.tensor(track, dtype=index_dtype, device=device)
    run, plain = problem.decode(extra_pitch, track_slots=slots), problem.decode(extra_pitch)
    assert_bit_equal(run.o, plain.o, "o")
    check_tracked(run, plain, IDS, track)


@pytest.mark.parametrize("width", [2, 3, 4])
def test_tracked_windows_of_every_width(device, width):
    problem = fused_layer(device, SMALL, batch=4, ids=IDS, width=width)
    run = problem.decode(track_slots=torch.tensor([2, -1, 3, -1], device=device))
    check_tracked(run, problem.decode(), IDS, [2, -1, 3, -1])


@pytest.mark.parametrize("layout", [None, *LAYOUTS])
def test_no_rows(device, layout):
    problem = fused_layer(device, SMALL, batch=0, ids=[])
    z = gate_of(problem)
    inputs = {"z": z} if layout is None else projections(problem, z, layout)
    run = problem.decode(**inputs, **norm_of(problem), track_slots=problem.rows["cache_indices"])
    assert run.o.shape == (0, SMALL.HV, SMALL.V)
    run.ssm.assert_untouched()
    run.conv.assert_untouched()


@settings(
    max_examples=40, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    heads=st.sampled_from([small(1, 1), small(1, 2), small(2, 6), small(1, 4), *ODD_DECODE_HEADS]),
    layout=st.sampled_from([None, *LAYOUTS]), act=st.sampled_from(DECODE_ACTIVATIONS),
    state=st.sampled_from([dtype for dtype in (F32, BF16) if dtype in SERVED_STATES]),
    activation=st.sampled_from([None, "silu", "sigmoid"]), rows=st.integers(1, 6), data=st.data(),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_any_combination(device, heads, layout, act, state, activation, rows, data, seed):
    slots = data.draw(st.permutations(range(12)))
    ids = [slot if data.draw(st.booleans()) else -1 for slot in slots[:rows]]
    track = [slot if data.draw(st.booleans()) else -1 for slot in slots[rows : 2 * rows]]
    problem = fused_layer(device, heads, batch=rows, ids=[*ids], act=act, conv=act, state=state, seed=seed)
    problem.ssm, problem.conv = (torch.cat([pool, pool])[:12] for pool in (problem.ssm, problem.conv))
    z = gate_of(problem, seed)
    inputs: dict = {} if layout is None else projections(problem, z, layout)
    norm: dict = {}
    if activation is not None:
        norm = norm_of(problem, activation=activation)
        inputs |= norm if layout else norm | {"z": z}
    run = problem.decode(**inputs, track_slots=torch.tensor(track, dtype=torch.int32, device=device))
    plain = problem.decode()
    problem.check_decode(plain, problem.expected_decode())
    if norm and live(problem.rows["cache_indices"]):
        check_normalised(problem, run, z, norm)
    elif not norm:
        assert_bit_equal(run.o, plain.o, "o")
    check_tracked(run, plain, ids, track)


def test_a_zero_centred_weight_and_a_factor_are_weights(device):
    """What the docstring says about other forms of the norm."""
    problem = fused_layer(device, SMALL, batch=2, ids=[3, 5])
    z, norm = gate_of(problem), norm_of(problem)
    run = problem.decode(z=z, **norm | {"norm_weight": 2 * norm["norm_weight"]})
    assert_bit_equal(run.o, problem.decode(z=z, **norm).o * 2, "o")


def test_out_of_three_dimensions(device):
    problem = fused_layer(device, SMALL, batch=3, ids=[3, 5, 1])
    conv, ssm = problem.pools()
    out = problem.nan_out(3)
    o = ops.gdn_decode(
        **problem.tokens, **problem.rows, **problem.layer.kwargs(), conv_pool=conv.tensor, ssm_pool=ssm.tensor, out=out
    )
    assert o is out
    assert_bit_equal(o, problem.decode().o, "o")
