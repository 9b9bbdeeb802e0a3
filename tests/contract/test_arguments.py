"""Every argument of every operator, wrong in every way: the exception, its words, and that nothing was touched."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import cases
from cases import BF16, F16, F32, SMALL, Heads
from compare import assert_bit_equal
from problems import as_windows, delta_rule, fused_layer, offsets, projections, randn, update, window_buffer
from sglang_gdn import errors, ops

FLOAT, INDEX, BOOL = "float", "index", "bool"
LAST, ALL = "last", "all"  # which dimensions must be dense


@dataclass(frozen=True)
class Rule:
    """What one tensor argument must be: its kind, the dimensions another argument fixes, its density, its presence."""

    kind: str = FLOAT
    fixed: tuple[int, ...] = ()
    dense: str = ALL
    required: bool = True
    dtypes: tuple[torch.dtype, ...] | None = None  # floats that are refused although the operator knows them


# --- one valid call of each operator, with every option that fits --------------------------------------------------


def index(device, *values):
    return torch.tensor(values, dtype=torch.int32, device=device)


def conv_weights(gen, device):
    return {
        "weight": randn(gen, 24, 4, dtype=cases.ACTIVATION).to(device),
        "bias": randn(gen, 24, dtype=cases.ACTIVATION).to(device),
    }


def parents(device):
    """Of two rows of three drafts."""
    return torch.tensor([[-1, 0, 0]] * 2, dtype=torch.int32, device=device)


def tree(device):
    return {"parent_tokens": parents(device) if cases.DRAFT_TREES else None}


def causal_conv1d(device):
    gen = torch.Generator().manual_seed(0)
    return {
        "x": randn(gen, 7, 24, dtype=cases.ACTIVATION).to(device),
        **conv_weights(gen, device),
        "query_start_loc": offsets([4, 3]).to(device), "conv_pool": as_windows(randn(gen, 9, 24, 3).to(device)),
        "cache_indices": index(device, 3, 0), "has_initial_state": torch.tensor([True, False], device=device),
        "track_slots": index(device, 7, -1), "track_lens": index(device, 4, 0),
        "out": torch.full((7, 24), torch.nan, dtype=cases.ACTIVATION, device=device),
    }  # fmt: skip


def causal_conv1d_update(device):
    gen = torch.Generator().manual_seed(0)
    pool = as_windows(randn(gen, 9, 24, 3).to(device))
    return {
        "x": randn(gen, 2, 3, 24, dtype=cases.ACTIVATION).to(device),
        **conv_weights(gen, device),
        "conv_pool": pool, "cache_indices": index(device, 3, 0), **tree(device),
        "intermediate_conv_window": window_buffer(4, 3, pool, False), "intermediate_state_indices": index(device, 3, 1),
        "disable_state_update": True,
        "out": torch.full((2, 3, 24), torch.nan, dtype=cases.ACTIVATION, device=device),
    }  # fmt: skip


def gdn_gating(device):
    gen = torch.Generator().manual_seed(0)
    shapes = {"A_log": (4,), "a": (7, 4), "b": (7, 4), "dt_bias": (4,)}
    dtypes = {"a": cases.ACTIVATION, "b": cases.ACTIVATION}
    return {name: randn(gen, *shape, dtype=dtypes.get(name, F32)).to(device) for name, shape in shapes.items()}


def chunk_gated_delta_rule(device):
    problem = delta_rule(device, SMALL, [4, 3], ids=[3, 0], initial=[True, False])
    states = torch.full((2, SMALL.HV, SMALL.V, SMALL.K), torch.nan, device=device)
    return problem.args | {
        "ssm_pool": problem.ssm, "track_state": states, "track_chunk_idx": index(device, 1, -1),
        "out": torch.full_like(problem.args["v"], torch.nan),
    }  # fmt: skip


def fused_sigmoid_gating_delta_rule_update(device):
    problem = update(device, SMALL, 2, 3, ids=[3, 0])
    return problem.args | {
        "ssm_pool": problem.ssm, "disable_state_update": True, **tree(device),
        "intermediate_ssm": torch.full((4, 3, *problem.ssm.shape[1:]), torch.nan, device=device),
        "intermediate_state_indices": index(device, 3, 1), "out": torch.full_like(problem.args["v"], torch.nan),
    }  # fmt: skip


def layer_call(problem, *out_shape):
    return problem.tokens | problem.rows | problem.layer.kwargs() | {
        "conv_pool": as_windows(problem.conv), "ssm_pool": problem.ssm, "out": problem.nan_out(*out_shape)
    }  # fmt: skip


def gdn_frontend(device):
    problem = fused_layer(device, SMALL, lens=[4, 3], ids=[3, 0], initial=[True, False])
    return problem.tokens | problem.rows | problem.layer.kwargs() | {
        "conv_pool": as_windows(problem.conv), "track_slots": index(device, 7, -1), "track_lens": index(device, 4, 0),
        "out": torch.full_like(problem.tokens["mixed_qkv"], torch.nan),
    }  # fmt: skip


def gdn_prefill(device):
    problem = fused_layer(device, SMALL, lens=[4, 3], ids=[3, 0], initial=[True, False])
    return layer_call(problem, 1, 7) | {
        "track_slots": index(device, 7, -1), "track_lens": index(device, 4, 0),
        "track_state": torch.full((2, *problem.ssm.shape[1:]), torch.nan, device=device),
        "track_chunk_idx": index(device, 1, -1),
    }  # fmt: skip


def gdn_decode(device):
    problem = fused_layer(device, SMALL, batch=2, ids=[3, 0])
    gen = torch.Generator().manual_seed(0)
    return layer_call(problem, 1, 2) | {
        "z": randn(gen, 2, SMALL.HV, SMALL.V, dtype=problem.activation).to(device),
        "norm_weight": randn(gen, SMALL.V).to(device), "track_slots": index(device, 7, -1),
    }  # fmt: skip


def gdn_decode_of_projections(device):
    call = gdn_decode(device)
    problem = fused_layer(device, SMALL, batch=2, ids=[3, 0])
    return call | projections(problem, call["z"], "interleaved") | {"z": None}


def gdn_verify(device):
    problem = fused_layer(device, SMALL, batch=2, drafts=3, ids=[3, 0])
    return layer_call(problem, 2, 3) | intermediate(device, problem) | tree(device)


def intermediate(device, problem):
    return {
        "intermediate_ssm": torch.full((4, 3, *problem.ssm.shape[1:]), 0.5, device=device),
        "intermediate_conv_window": window_buffer(4, 3, problem.conv, False).fill_(0.5),
        "intermediate_state_indices": index(device, 3, 1),
    }


def gdn_commit(device):
    problem = fused_layer(device, SMALL, batch=2, drafts=3, ids=[3, 0])
    return intermediate(device, problem) | {
        "conv_pool": as_windows(problem.conv), "ssm_pool": problem.ssm, "cache_indices": problem.rows["cache_indices"],
        "last_steps": index(device, 2, 0),
    }  # fmt: skip


def record(problem, *shape):
    parts = problem.nan_record(*shape)
    for part in parts:
        part.fill_(0.5)
    return parts


def gdn_fold(device):
    problem = fused_layer(device, SMALL, batch=2, drafts=3, ids=[3, 0])
    return {
        "conv_pool": as_windows(problem.conv)[None], "ssm_pool": problem.ssm[None], "record": record(problem, 1, 2, 3),
        "cache_indices": problem.rows["cache_indices"], "last_steps": index(device, 2, 0),
        "track_slots": index(device, 7, -1), "track_steps": index(device, 1, 1), **tree(device),
    }  # fmt: skip


VALID: dict[str, Callable] = {
    f.__name__: f
    for f in (
        causal_conv1d, causal_conv1d_update, gdn_gating, chunk_gated_delta_rule,
        fused_sigmoid_gating_delta_rule_update, gdn_frontend, gdn_prefill, gdn_decode, gdn_verify, gdn_commit,
        gdn_fold,
    )
}  # fmt: skip

# --- what each tensor argument must be -----------------------------------------------------------------------------

SLOT_IDS = Rule(INDEX, (0,))
OFFSETS = Rule(INDEX)
FLAGS = Rule(BOOL, (0,), required=False)
OPTIONAL_IDS = Rule(INDEX, (0,), required=False)
PARENTS = Rule(INDEX, (0, 1), required=False)
CONV_POOL = Rule(fixed=(1, 2))
SSM_POOL = Rule(fixed=(1, 2, 3))
CONV_WEIGHT = Rule(fixed=(0,), dtypes=tuple(x for x in (BF16, F16) if x != cases.ACTIVATION))
CONV_BIAS = Rule(fixed=(0,), required=False, dtypes=CONV_WEIGHT.dtypes)
GATE_WEIGHT = Rule(fixed=(0,))
F32_ONLY = (BF16, F16)  # also what differs from the pools
OTHER_FLOATS = tuple(x for x in (F32, BF16, F16) if x != cases.ACTIVATION)

LAYER = {
    "conv_weight": CONV_WEIGHT, "conv_bias": CONV_BIAS, "A_log": GATE_WEIGHT, "dt_bias": GATE_WEIGHT,
    "conv_pool": CONV_POOL, "ssm_pool": SSM_POOL, "cache_indices": SLOT_IDS,
}  # fmt: skip
TRACK = {
    "track_slots": OPTIONAL_IDS, "track_lens": OPTIONAL_IDS,
    "track_state": Rule(fixed=(0, 1, 2, 3), required=False, dtypes=F32_ONLY), "track_chunk_idx": OPTIONAL_IDS,
}  # fmt: skip
INTERMEDIATE = {
    "intermediate_ssm": Rule(fixed=(1, 2, 3, 4), dtypes=F32_ONLY),
    "intermediate_conv_window": Rule(fixed=(1, 2, 3), dense=LAST, dtypes=F32_ONLY),
    "intermediate_state_indices": SLOT_IDS,
}

RULES: dict[str, dict[str, Rule]] = {
    "causal_conv1d": {
        "x": Rule(dense=LAST), "weight": CONV_WEIGHT, "bias": CONV_BIAS, "query_start_loc": OFFSETS,
        "conv_pool": CONV_POOL, "cache_indices": SLOT_IDS, "has_initial_state": FLAGS,
        "track_slots": TRACK["track_slots"], "track_lens": TRACK["track_lens"],
        "out": Rule(fixed=(0, 1), required=False, dtypes=OTHER_FLOATS),
    },
    "causal_conv1d_update": {
        "x": Rule(dense=LAST), "weight": CONV_WEIGHT, "bias": CONV_BIAS, "conv_pool": CONV_POOL,
        "cache_indices": SLOT_IDS, "parent_tokens": PARENTS,
        "intermediate_conv_window": INTERMEDIATE["intermediate_conv_window"],
        "intermediate_state_indices": SLOT_IDS, "out": Rule(fixed=(0, 1, 2), required=False, dtypes=OTHER_FLOATS),
    },
    "gdn_gating": {
        "A_log": GATE_WEIGHT, "a": Rule(dense=LAST), "b": Rule(fixed=(0, 1), dense=LAST), "dt_bias": GATE_WEIGHT,
    },
    "chunk_gated_delta_rule": {
        "q": Rule(dense=LAST), "k": Rule(fixed=(1, 2, 3), dense=LAST, dtypes=OTHER_FLOATS),
        "v": Rule(fixed=(1,), dense=LAST, dtypes=OTHER_FLOATS), "g": Rule(fixed=(1, 2), dense=LAST, dtypes=F32_ONLY),
        "beta": Rule(fixed=(1, 2), dense=LAST, dtypes=F32_ONLY),
        "ssm_pool": Rule(fixed=(1, 2, 3), required=False), "cu_seqlens": Rule(INDEX, required=False),
        "cache_indices": SLOT_IDS, "has_initial_state": FLAGS, "track_state": TRACK["track_state"],
        "track_chunk_idx": TRACK["track_chunk_idx"], "out": Rule(fixed=(1, 2, 3), required=False, dtypes=OTHER_FLOATS),
    },
    "fused_sigmoid_gating_delta_rule_update": {
        "A_log": GATE_WEIGHT, "a": Rule(fixed=(0, 1, 2), dense=LAST), "dt_bias": GATE_WEIGHT, "q": Rule(dense=LAST),
        "k": Rule(fixed=(0, 1, 2, 3), dense=LAST, dtypes=OTHER_FLOATS),
        "v": Rule(fixed=(0, 1), dense=LAST, dtypes=OTHER_FLOATS), "b": Rule(fixed=(0, 1, 2), dense=LAST),
        "ssm_pool": SSM_POOL, "cache_indices": SLOT_IDS, "parent_tokens": PARENTS,
        "intermediate_ssm": INTERMEDIATE["intermediate_ssm"], "intermediate_state_indices": SLOT_IDS,
        "out": Rule(fixed=(0, 1, 2, 3), required=False, dtypes=OTHER_FLOATS),
    },
    "gdn_frontend": {
        "mixed_qkv": Rule(fixed=(1,), dense=LAST), "a": Rule(fixed=(0, 1), dense=LAST),
        "b": Rule(fixed=(0, 1), dense=LAST), **{name: rule for name, rule in LAYER.items() if name != "ssm_pool"},
        "query_start_loc": OFFSETS, "has_initial_state": FLAGS, "track_slots": TRACK["track_slots"],
        "track_lens": TRACK["track_lens"], "out": Rule(fixed=(0, 1), required=False, dtypes=OTHER_FLOATS),
    },
    "gdn_prefill": {
        "mixed_qkv": Rule(fixed=(1,), dense=LAST), "a": Rule(fixed=(0, 1), dense=LAST),
        "b": Rule(fixed=(0, 1), dense=LAST), **LAYER, "query_start_loc": OFFSETS, "has_initial_state": FLAGS, **TRACK,
        "out": Rule(fixed=(1, 2, 3), required=False, dtypes=OTHER_FLOATS),
    },
    "gdn_decode": {
        "mixed_qkv": Rule(fixed=(1,), dense=LAST), "a": Rule(fixed=(0, 1), dense=LAST),
        "b": Rule(fixed=(0, 1), dense=LAST), "z": Rule(fixed=(0, 1, 2), dense=LAST, dtypes=OTHER_FLOATS),
        "norm_weight": Rule(fixed=(0,), required=False), **LAYER, "track_slots": OPTIONAL_IDS,
        "out": Rule(fixed=(1, 2, 3), required=False, dtypes=OTHER_FLOATS),
    },
    "gdn_verify": {
        "mixed_qkv": Rule(fixed=(2,), dense=LAST), "a": Rule(fixed=(0, 1, 2), dense=LAST),
        "b": Rule(fixed=(0, 1, 2), dense=LAST), **LAYER, **INTERMEDIATE, "parent_tokens": PARENTS,
        "out": Rule(fixed=(0, 1, 2, 3), required=False, dtypes=OTHER_FLOATS),
    },
    "gdn_commit": {
        "conv_pool": Rule(), "ssm_pool": Rule(), "cache_indices": Rule(INDEX), **INTERMEDIATE,
        "intermediate_ssm": Rule(fixed=(2, 3, 4), dtypes=F32_ONLY), "last_steps": SLOT_IDS,
    },
    "gdn_fold": {
        "conv_pool": Rule(fixed=(0,)), "ssm_pool": Rule(),
        "cache_indices": Rule(INDEX), "last_steps": SLOT_IDS, "parent_tokens": PARENTS, "track_slots": OPTIONAL_IDS,
        "track_steps": OPTIONAL_IDS,
    },
}  # fmt: skip

# Instead of mixed_qkv, a, b and z.
PROJECTIONS = {"qkvz": Rule(fixed=(1,), dense=LAST), "ba": Rule(fixed=(0, 1), dense=LAST)}

# --- how each can be wrong -----------------------------------------------------------------------------------------


def grown(x: Tensor, dim: int) -> Tensor:
    return torch.cat([x, x.narrow(dim, 0, 1)], dim=dim).contiguous()


def every_second(x: Tensor) -> Tensor:
    """The same values at stride 2 in the last dimension."""
    return torch.stack([x, x], dim=-1)[..., 0]


def transposed(x: Tensor) -> Tensor:
    """The same values with the last two dimensions swapped in memory."""
    return x.mT.contiguous().mT if x.is_contiguous() else x.contiguous()


def wrong_values(rule: Rule):
    """(name, corruption of the tensor, exception) for everything that ``rule`` forbids."""
    wrong_dtypes = {
        FLOAT: (torch.float64, torch.int32, *(rule.dtypes or ())),
        INDEX: (torch.int16, F32, torch.bool),
        BOOL: (torch.uint8, torch.int32, F32),
    }[rule.kind]
    for dtype in wrong_dtypes:
        yield f"dtype-{str(dtype)[6:]}", lambda x, dtype=dtype: x.to(dtype), errors.GdnTypeError
    yield "rank-above", lambda x: x[None, None], errors.GdnValueError
    for dim in rule.fixed:
        yield f"size-{dim}", lambda x, dim=dim: grown(x, dim), errors.GdnValueError
    yield "stride-2", every_second, errors.GdnValueError
    if rule.kind == FLOAT and rule.dense == ALL:
        yield "transposed", lambda x: transposed(x) if x.dim() > 1 else every_second(x), errors.GdnValueError
    yield "device", lambda x: x.to("meta"), errors.GdnValueError
    yield "not-a-tensor", lambda x: [1.0], errors.GdnTypeError
    if rule.required:
        yield "none", lambda x: None, (errors.GdnTypeError, errors.GdnValueError)


def all_wrong_calls():
    for op, rules in RULES.items():
        for name, rule in rules.items():
            for how, corrupt, error in wrong_values(rule):
                yield pytest.param(op, name, corrupt, error, id=f"{op}-{name}-{how}")


def tensors_of(call: dict) -> dict[str, Tensor]:
    return {name: x for name, x in call.items() if isinstance(x, Tensor) and x.device.type != "meta"}


def refused(op: str, call: dict, argument: str, error) -> str:
    """Runs a call that must be refused for ``argument``, checks that no tensor changed, returns the message."""
    before = {name: x.clone() for name, x in tensors_of(call).items()}
    with pytest.raises(error) as caught:
        getattr(ops, op)(**call)
    for name, x in tensors_of(call).items():
        assert_bit_equal(x, before[name], name)
    message = str(caught.value)
    assert caught.value.op == op and caught.value.argument == argument, message
    assert re.match(rf"{op}: {argument} must (be|have|not require) .+; got .+", message, re.DOTALL), message
    return message


def test_every_argument_has_a_rule():
    """Tensor arguments that no rule covers would go untested."""
    options = {
        "scale", "activation", "disable_state_update", "use_qk_l2norm_in_kernel", "output_h", "state_layout",
        "num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "cache_seqlens", "head_first", "initial_state",
        "output_final_state", "record", "projection_layout", "norm_eps", "norm_activation",
    }  # fmt: skip
    assert set(RULES) == set(ops.__all__) - {"CHUNK_SIZE", "DraftRecord"}
    for op, rules in RULES.items():
        covered = set(rules) | (set(PROJECTIONS) if op == "gdn_decode" else set())
        assert set(inspect.signature(getattr(ops, op)).parameters) - options == covered, op


@pytest.mark.parametrize("op", VALID)
def test_the_valid_call_runs(device, op):
    getattr(ops, op)(**VALID[op](device))


@pytest.mark.parametrize(("op", "argument", "corrupt", "error"), list(all_wrong_calls()))
def test_wrong_tensor(device, op, argument, corrupt, error):
    call = VALID[op](device)
    call[argument] = corrupt(parents(device) if argument == "parent_tokens" else call[argument])
    refused(op, call, argument, error)


@pytest.mark.parametrize(
    ("argument", "corrupt", "error"),
    [
        pytest.param(name, corrupt, error, id=f"{name}-{how}")
        for name, rule in PROJECTIONS.items()
        for how, corrupt, error in wrong_values(rule)
        if (name, how) != ("qkvz", "none")  # then mixed_qkv is missing
    ],
)
def test_wrong_projection(device, argument, corrupt, error):
    call = gdn_decode_of_projections(device)
    ops.gdn_decode(**{name: x.clone() if isinstance(x, Tensor) else x for name, x in call.items()})
    call[argument] = corrupt(call[argument])
    refused("gdn_decode", call, argument, error)


@pytest.mark.parametrize("argument", ["mixed_qkv", "a", "b", "z"])
def test_projections_leave_no_room_for_their_parts(device, argument):
    call = gdn_decode_of_projections(device)
    call[argument] = gdn_decode(device)[argument]
    assert "None with qkvz" in refused("gdn_decode", call, argument, errors.GdnValueError)


@pytest.mark.parametrize("layout", [None, "packed", 1])
def test_projection_layout_is_no_guess(device, layout):
    call = gdn_decode_of_projections(device) | {"projection_layout": layout}
    assert "'interleaved'" in refused("gdn_decode", call, "projection_layout", errors.GdnValueError)


def test_parts_of_projections_alone(device):
    call = gdn_decode(device)
    raw = gdn_decode_of_projections(device)
    refused("gdn_decode", call | {"projection_layout": "contiguous"}, "projection_layout", errors.GdnValueError)
    refused("gdn_decode", call | {"ba": raw["ba"]}, "ba", errors.GdnValueError)
    refused("gdn_decode", raw | {"qkvz": None, "projection_layout": None}, "mixed_qkv", errors.GdnTypeError)


@pytest.mark.parametrize("activation", ["swish", "gelu", None, True])
def test_norm_activation(device, activation):
    call = gdn_decode(device) | {"norm_activation": activation}
    assert "'sigmoid'" in refused("gdn_decode", call, "norm_activation", errors.GdnValueError)


@pytest.mark.parametrize(("op", "pool"), [(op, p) for op in RULES for p in ("conv_pool", "ssm_pool") if p in RULES[op]])
def test_slots_that_overlap_in_memory(device, op, pool):
    slots_dim = 1 if op == "gdn_fold" else 0
    for pitch in (lambda size: size - 1, lambda size: 0):
        call = VALID[op](device)
        x = call[pool]
        strides = list(x.stride())
        strides[slots_dim] = pitch(x.select(slots_dim, 0).numel())
        call[pool] = x.as_strided(x.shape, strides)
        refused(op, call, pool, errors.GdnValueError)


# Which argument an absent partner is missed at.
TOGETHER = [
    ("causal_conv1d", "conv_pool", "cache_indices"), ("causal_conv1d", "track_slots", "track_lens"),
    ("gdn_frontend", "track_slots", "track_lens"), ("gdn_prefill", "track_slots", "track_lens"),
    ("gdn_prefill", "track_state", "track_chunk_idx"),
    ("chunk_gated_delta_rule", "track_state", "track_chunk_idx"),
    ("causal_conv1d_update", "intermediate_conv_window", "intermediate_state_indices"),
    ("fused_sigmoid_gating_delta_rule_update", "intermediate_ssm", "intermediate_state_indices"),
    ("gdn_fold", "track_slots", "track_steps"),
    ("gdn_decode", "z", "norm_weight"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "first", "second"), TOGETHER, ids=lambda x: x)
def test_arguments_that_come_together(device, op, first, second):
    for missing in (first, second):
        call = VALID[op](device)
        call[missing] = None
        refused(op, call, missing, errors.GdnValueError)


@pytest.mark.parametrize(
    "op", ["causal_conv1d", "causal_conv1d_update", "gdn_frontend", "gdn_prefill", "gdn_decode", "gdn_verify"]
)
class TestConvolution:
    def test_width(self, device, op):
        weight = "weight" if op.startswith("causal") else "conv_weight"
        for width in (1, 5):
            call = VALID[op](device)
            call[weight] = torch.zeros(call[weight].shape[0], width, device=device)
            call["conv_pool"] = torch.zeros(9, call[weight].shape[0], width - 1, device=device)
            assert "2..4" in refused(op, call, weight, errors.GdnValueError)

    def test_window_of_another_width(self, device, op):
        for size in (2, 4, 6):
            call = VALID[op](device)
            call["conv_pool"] = torch.zeros(9, call["conv_pool"].shape[1], size, device=device)
            refused(op, call, "conv_pool", errors.GdnValueError)

    def test_window_with_channels_last(self, device, op):
        call = VALID[op](device)
        call["conv_pool"] = call["conv_pool"].transpose(1, 2).contiguous()
        refused(op, call, "conv_pool", errors.GdnValueError)

    @pytest.mark.parametrize("activation", ["relu", "", True])
    def test_activation(self, device, op, activation):
        call = VALID[op](device) | {"activation": activation}
        assert "'silu'" in refused(op, call, "activation", errors.GdnValueError)


LAYER_OPERATORS = ["gdn_prefill", "gdn_decode", "gdn_verify"]


class TestLayer:
    @pytest.mark.parametrize("op", ["gdn_frontend", *LAYER_OPERATORS])
    @pytest.mark.parametrize(("H", "HV"), [(3, 4), (0, 4), (2, 0), (-2, 4), (4, 2)])
    def test_head_counts(self, device, op, H, HV):
        call = VALID[op](device) | {"num_k_heads": H, "num_v_heads": HV, "out": None}
        refused(op, call, "num_v_heads", errors.GdnValueError)

    @pytest.mark.parametrize("op", ["gdn_frontend", *LAYER_OPERATORS])
    @pytest.mark.parametrize("name", ["head_k_dim", "head_v_dim"])
    @pytest.mark.parametrize("size", [0, -64])
    def test_head_sizes(self, device, op, name, size):
        refused(op, VALID[op](device) | {name: size, "out": None}, name, errors.GdnValueError)

    @pytest.mark.parametrize("op", LAYER_OPERATORS)
    def test_state_with_sides_swapped(self, device, op):
        """[.., K, V] where [.., V, K] is wanted is seen whenever K and V differ."""
        size = {"gdn_prefill": {"lens": [4]}, "gdn_decode": {"batch": 1}, "gdn_verify": {"batch": 1, "drafts": 3}}[op]
        problem = fused_layer(device, Heads(2, 4, 64, 128), **size)
        call = problem.tokens | problem.rows | problem.layer.kwargs() | {"conv_pool": as_windows(problem.conv)}
        if op == "gdn_verify":
            call |= intermediate(device, problem)
        call["ssm_pool"] = problem.ssm.transpose(-1, -2).contiguous()
        refused(op, call, "ssm_pool", errors.GdnValueError)


def test_unsupported_head_size_is_an_error_and_not_silence(device):
    """Sizes that no kernel is built for: an exception that lists what is built, and ``out`` keeps its NaN."""
    problem = delta_rule(device, Heads(1, 1, 12, 12), [5])
    call = problem.args | {"ssm_pool": problem.ssm, "out": torch.full_like(problem.args["v"], torch.nan)}
    before = call["out"].clone()
    with pytest.raises(errors.GdnNoKernelError, match=r"(?s)chunk_gated_delta_rule.*head_k_dim"):
        ops.chunk_gated_delta_rule(**call)
    assert_bit_equal(call["out"], before, "out")


def test_value_heads_that_no_key_head_divides(device):
    call = chunk_gated_delta_rule(device)
    for name, dim in (("v", 2), ("g", 2), ("beta", 2), ("ssm_pool", 1), ("out", 2), ("track_state", 1)):
        call[name] = grown(call[name], dim)
    refused("chunk_gated_delta_rule", call, "v", errors.GdnValueError)


FLAG = ("yes", 1, None)
COUNT = ("2", 2.0, None)
SCALARS = {
    "causal_conv1d_update": {"disable_state_update": FLAG},
    "chunk_gated_delta_rule": {
        "scale": ("1",), "use_qk_l2norm_in_kernel": FLAG, "output_final_state": FLAG, "head_first": FLAG,
        "output_h": FLAG,
    },
    "fused_sigmoid_gating_delta_rule_update": {
        "scale": ("1",), "use_qk_l2norm_in_kernel": FLAG, "disable_state_update": FLAG,
    },
    "gdn_frontend": {
        "num_k_heads": COUNT, "num_v_heads": COUNT, "head_k_dim": COUNT, "head_v_dim": COUNT,
        "use_qk_l2norm_in_kernel": FLAG,
    },
    "gdn_prefill": {
        "num_k_heads": COUNT, "num_v_heads": COUNT, "head_k_dim": COUNT, "head_v_dim": COUNT, "scale": ("1",),
        "output_h": FLAG,
    },
    "gdn_decode": {
        "num_k_heads": COUNT, "num_v_heads": COUNT, "head_k_dim": COUNT, "head_v_dim": COUNT, "scale": ("1",),
        "norm_eps": ("1", None),
    },
    "gdn_verify": {
        "num_k_heads": COUNT, "num_v_heads": COUNT, "head_k_dim": COUNT, "head_v_dim": COUNT, "scale": ("1",),
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("op", "argument", "value"),
    [(op, name, value) for op, scalars in SCALARS.items() for name, values in scalars.items() for value in values],
)
def test_wrong_scalar(device, op, argument, value):
    refused(op, VALID[op](device) | {argument: value}, argument, errors.GdnTypeError)


# --- options that are refused --------------------------------------------------------------------------------------


def test_circular_windows(device):
    call = causal_conv1d_update(device) | {"cache_seqlens": index(device, 1, 2)}
    refused("causal_conv1d_update", call, "cache_seqlens", errors.GdnUnsupportedError)


def test_head_first(device):
    call = chunk_gated_delta_rule(device) | {"head_first": True}
    refused("chunk_gated_delta_rule", call, "head_first", errors.GdnUnsupportedError)


def test_state_layout(device):
    call = chunk_gated_delta_rule(device) | {"state_layout": "kvk"}
    refused("chunk_gated_delta_rule", call, "state_layout", errors.GdnValueError)


@pytest.mark.parametrize("op", ["causal_conv1d_update", "fused_sigmoid_gating_delta_rule_update"])
def test_a_tree_has_no_state_to_commit(device, op):
    call = VALID[op](device) | {"disable_state_update": False, "parent_tokens": parents(device)}
    refused(op, call, "parent_tokens", errors.GdnValueError)


@pytest.mark.parametrize("op", ["causal_conv1d_update", "gdn_verify"])
def test_a_tree_needs_windows_of_their_own(device, op):
    call = VALID[op](device) | {"parent_tokens": parents(device)}
    call["intermediate_conv_window"] = window_buffer(4, 3, call["conv_pool"], True)
    refused(op, call, "intermediate_conv_window", errors.GdnValueError)


@pytest.mark.parametrize("op", ["causal_conv1d_update", "fused_sigmoid_gating_delta_rule_update"])
@pytest.mark.parametrize("drafts", [0, 17])
def test_draft_count(device, op, drafts):
    call = {name: x for name, x in VALID[op](device).items() if not name.startswith(("intermediate", "parent"))}
    for name in ("x", "q", "k", "v", "a", "b", "out"):
        if name in call:
            call[name] = call[name][:, :1].expand(-1, drafts, *call[name].shape[2:]).contiguous()
    main = "x" if op.startswith("causal") else "q"
    assert "1 to 16" in refused(op, call, main, errors.GdnValueError)


def test_pool_form_and_dense_form_do_not_mix(device):
    op = "chunk_gated_delta_rule"
    pool_form = chunk_gated_delta_rule(device)
    initial = torch.zeros(2, SMALL.HV, SMALL.K, SMALL.V, device=device)
    refused(op, pool_form | {"initial_state": initial}, "initial_state", errors.GdnUnsupportedError)
    refused(op, pool_form | {"output_final_state": True}, "output_final_state", errors.GdnValueError)
    dense_form = pool_form | {"ssm_pool": None}
    refused(op, dense_form, "cache_indices", errors.GdnUnsupportedError)
    dense_form["cache_indices"] = None
    refused(op, dense_form, "has_initial_state", errors.GdnUnsupportedError)


def test_initial_state_of_the_wrong_layout(device):
    problem = delta_rule(device, Heads(1, 2, 64, 128), [5], ids=[0])
    call = {name: problem.args[name] for name in ("q", "k", "v", "g", "beta")}
    state = torch.zeros(1, 2, 128, 64, device=device)
    refused("chunk_gated_delta_rule", call | {"initial_state": state}, "initial_state", errors.GdnValueError)
    ops.chunk_gated_delta_rule(**call, initial_state=state, state_layout="vk")


def test_a_batch_with_offsets(device):
    call = chunk_gated_delta_rule(device)
    for name in ("q", "k", "v", "g", "beta", "out"):
        call[name] = torch.cat([call[name]] * 2)
    refused("chunk_gated_delta_rule", call, "q", errors.GdnValueError)


def test_offsets_without_a_single_element(device):
    for op in ("causal_conv1d", "gdn_frontend", "gdn_prefill"):
        call = VALID[op](device) | {"query_start_loc": torch.empty(0, dtype=torch.int32, device=device)}
        refused(op, call, "query_start_loc", errors.GdnValueError)


@pytest.mark.parametrize("option", ["has_initial_state", "track_slots"])
def test_convolution_without_a_pool_has_no_state_options(device, option):
    call = causal_conv1d(device) | {"conv_pool": None, "cache_indices": None}
    if option == "has_initial_state":
        call |= {"track_slots": None, "track_lens": None}
    else:
        call["has_initial_state"] = None
    refused("causal_conv1d", call, option, errors.GdnValueError)


# --- records of draft tokens ---------------------------------------------------------------------------------------

RECORD = {
    "x": Rule(fixed=(1, 2), dense=LAST, dtypes=F32_ONLY), "k": Rule(fixed=(1, 2, 3), dtypes=F32_ONLY),
    "d": Rule(fixed=(1, 2, 3), dtypes=F32_ONLY), "g": Rule(fixed=(1, 2), dense=LAST, dtypes=F32_ONLY),
}  # fmt: skip
# The number of drafts is that of k, where no other argument says it.
RECORD_OF_LAYERS = RECORD | {"k": Rule(fixed=(2, 3), dtypes=F32_ONLY)}


def wrong_parts(rules):
    for name, rule in rules.items():
        for how, corrupt, error in wrong_values(rule):
            yield pytest.param(name, corrupt, error, id=f"{name}-{how}")


def recorded_verify(device):
    problem = fused_layer(device, SMALL, batch=2, drafts=3, ids=[3, 0])
    return layer_call(problem, 2, 3) | {"record": record(problem, 3, 3)}


@pytest.mark.parametrize(("name", "corrupt", "error"), list(wrong_parts(RECORD)))
def test_wrong_part_of_a_record(device, name, corrupt, error):
    call = recorded_verify(device)
    parts = call["record"]
    call["record"] = parts._replace(**{name: corrupt(getattr(parts, name))})
    refused("gdn_verify", call, f"record.{name}", error)


@pytest.mark.parametrize(("name", "corrupt", "error"), list(wrong_parts(RECORD_OF_LAYERS)))
def test_wrong_part_of_a_record_of_layers(device, name, corrupt, error):
    call = gdn_fold(device)
    parts = call["record"]
    wrong = corrupt(getattr(parts, name)[0])
    call["record"] = parts._replace(**{name: wrong[None] if isinstance(wrong, Tensor) else wrong})
    refused("gdn_fold", call, f"record.{name}", error)
    call["record"] = parts._replace(**{name: torch.cat([getattr(parts, name)] * 2)})
    assert "layers" in refused("gdn_fold", call, f"record.{name}", errors.GdnValueError)


@pytest.mark.parametrize("name", RECORD)
def test_a_record_of_too_few_rows(device, name):
    call = recorded_verify(device)
    call["record"] = call["record"]._replace(**{name: getattr(call["record"], name)[:1]})
    assert "at least 2 rows" in refused("gdn_verify", call, f"record.{name}", errors.GdnValueError)


@pytest.mark.parametrize("drafts", [0, 17])
def test_draft_count_of_a_record(device, drafts):
    call = gdn_fold(device)
    problem = fused_layer(device, SMALL, batch=2, drafts=3, ids=[3, 0])
    call |= {"record": record(problem, 1, 2, drafts), "parent_tokens": None}
    assert "1 to 16" in refused("gdn_fold", call, "record.k", errors.GdnValueError)


def test_what_is_no_record(device):
    refused("gdn_verify", recorded_verify(device) | {"record": [None] * 4}, "record", errors.GdnTypeError)
    refused("gdn_fold", gdn_fold(device) | {"record": None}, "record", errors.GdnTypeError)


def test_a_record_and_stored_states_do_not_mix(device):
    problem = fused_layer(device, SMALL, batch=2, drafts=3, ids=[3, 0])
    for name, buffer in intermediate(device, problem).items():
        refused("gdn_verify", recorded_verify(device) | {name: buffer}, name, errors.GdnValueError)


def test_pools_of_one_layer_take_a_record_of_one(device):
    call = gdn_fold(device)
    alone = {name: call[name][0].clone() for name in ("conv_pool", "ssm_pool")}
    ops.gdn_fold(**call | alone | {"record": call["record"].layer(0)})
    ops.gdn_fold(**call)
    for name, pool in alone.items():
        assert_bit_equal(pool, call[name][0], name)
    refused("gdn_fold", call | alone, "record.k", errors.GdnValueError)


# --- autograd ------------------------------------------------------------------------------------------------------

DIFFERENTIABLE = {
    op: [name for name, rule in rules.items() if rule.kind == FLOAT and "pool" not in name and name != "out"
         and not name.startswith(("track", "intermediate"))]
    for op, rules in RULES.items()
}  # fmt: skip


@pytest.mark.parametrize(
    ("op", "argument"), [(op, name) for op, names in DIFFERENTIABLE.items() for name in names], ids=lambda x: x
)
def test_inputs_that_want_a_gradient(device, op, argument):
    call = VALID[op](device)
    call[argument] = call[argument].detach().requires_grad_()
    assert "gradient" in refused(op, call, argument, errors.GdnUnsupportedError)
    with torch.no_grad():
        getattr(ops, op)(**call)
