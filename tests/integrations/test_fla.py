"""The cases that flash-linear-attention tests these functions with, forward only, against the float64 definition.

Shapes, gates and scales are those of its test suite; limits are ours, which are tighter than its 0.2 to 0.5 %.
"""

from __future__ import annotations

import inspect
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import conv1d, logsigmoid, normalize, silu

import oracle
from compare import assert_bit_equal, assert_close
from sglang_gdn import fla
from sglang_gdn.errors import GdnUnsupportedError
from tolerances import limit

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16

# fla-core 0.6.0.
PARAMETERS = {
    "chunk_gated_delta_rule": (
        "q k v g beta scale initial_state output_final_state use_qk_l2norm_in_kernel use_beta_sigmoid_in_kernel "
        "allow_neg_eigval state_v_first cu_seqlens cu_seqlens_cpu chunk_indices cp_context kwargs"
    ),
    "fused_recurrent_gated_delta_rule": (
        "q k v g gk gv beta scale initial_state output_final_state use_qk_l2norm_in_kernel use_gate_in_kernel A_log "
        "dt_bias use_beta_sigmoid_in_kernel allow_neg_eigval state_v_first cu_seqlens kwargs"
    ),
    "causal_conv1d": (
        "x weight bias residual initial_state output_final_state activation backend cu_seqlens cu_seqlens_cpu "
        "chunk_indices cp_context kwargs"
    ),
}


@pytest.fixture(autouse=True)
def random_numbers() -> None:
    torch.manual_seed(42)


@pytest.mark.parametrize("name", PARAMETERS)
def test_signature(name: str) -> None:
    assert " ".join(inspect.signature(getattr(fla, name)).parameters) == PARAMETERS[name]


class Case:
    """Inputs of the delta rule and its float64 result."""

    def __init__(
        self, device, B, T, H, HV, D, scale=1.0, gate_divisor=1.0, dtype=F32, masked=0.0, lens=None, l2norm=False
    ) -> None:
        self.q, self.k = torch.rand(2, B, T, H, D).unbind(0)
        if not l2norm:
            self.q, self.k = normalize(self.q, p=2, dim=-1), normalize(self.k, p=2, dim=-1)
        self.q, self.k, self.v = self.q.to(dtype), self.k.to(dtype), torch.rand(B, T, HV, D).to(dtype)
        self.beta = torch.rand(B, T, HV).sigmoid()
        self.g = logsigmoid(torch.rand(B, T, HV)) / gate_divisor * (torch.rand(B, T, HV) > masked)
        self.offsets = torch.tensor(lens if lens is not None else range(0, B * T + 1, T))
        self.h0 = torch.randn(len(self.offsets) - 1, HV, D, D)
        self.scale, self.l2norm, self.device = scale, l2norm, device

    def arguments(self, **changed):
        named = {"q": self.q, "k": self.k, "v": self.v, "g": self.g, "beta": self.beta, "initial_state": self.h0}
        named |= {"scale": self.scale, "output_final_state": True, "use_qk_l2norm_in_kernel": self.l2norm, **changed}
        return {name: x.to(self.device) if isinstance(x, torch.Tensor) else x for name, x in named.items()}

    def check(self, result, **changed) -> None:
        """``changed``: the gates or the state that the definition is given instead of the case's."""
        x = {"q": self.q, "k": self.k, "v": self.v, "g": self.g, "beta": self.beta, "h0": self.h0} | changed
        packed = [x[name].flatten(0, 1) for name in ("q", "k", "v", "g", "beta")]
        wanted = oracle.chunk_gated_delta_rule(
            *packed, ssm_pool=x["h0"].transpose(-1, -2), query_start_loc=self.offsets,
            cache_indices=torch.arange(len(self.h0)), scale=self.scale, norm=self.l2norm,
        )  # fmt: skip
        o, states = result
        assert (o.dtype, states.dtype) == (self.v.dtype, F32)
        assert_close(o, wanted.o.view(self.v.shape), limit(self.device, "prefill_o", self.v.dtype), "o")
        # The definition is given the inputs as they are stored, so the state is off by arithmetic alone.
        assert_close(states, wanted.pool.transpose(-1, -2), limit(self.device, "prefill_state", F32), "state")


RECURRENT = (
    # B, T, H, HV, D, scale, gate divisor, dtype
    (1, 63, 1, 1, 64, 1, 1, F32),
    (2, 500, 4, 4, 60, 1, 1, F32),
    (1, 1000, 2, 8, 128, 1, 0.1, F32),
    (1, 1024, 2, 2, 128, 0.1, 1, F32),
    (1, 1024, 3, 3, 128, 1, 10, F32),
    (1, 1024, 4, 4, 64, 0.1, 1, F32),
    (1, 512, 4, 4, 128, 1, 0.1, F16),
    (1, 512, 4, 8, 128, 1, 10, F16),
)


@pytest.mark.parametrize("sizes", RECURRENT, ids=str)
def test_fused_recurrent(device: str, sizes: tuple) -> None:
    case = Case(device, *sizes, l2norm=True)
    case.check(fla.fused_recurrent_gated_delta_rule(**case.arguments()))


CHUNK = (
    # B, T, H, HV, D, scale, gate divisor, dtype, share of tokens without decay, l2norm in the kernel
    (1, 1024, 4, 4, 128, 0.1, 1, F16, 1.0, False),
    (2, 75, 4, 4, 64, 1, 0.01, F16, 0, False),
    (2, 500, 3, 3, 60, 1, 1, F16, 0, False),
    (1, 1000, 3, 3, 64, 0.1, 1, F16, 0.5, False),
    (1, 1024, 4, 4, 100, 1, 0.1, F16, 0, False),
    (1, 1024, 4, 4, 128, 0.1, 1, F16, 0, True),
    (1, 1500, 4, 4, 128, 0.1, 10, F16, 0, False),
    (2, 256, 2, 4, 64, 1, 1, F16, 0, False),
    (2, 512, 2, 8, 64, 1, 0.1, F16, 0, True),
    (1, 1024, 4, 8, 128, 0.1, 1, BF16, 0, False),
)


@pytest.mark.parametrize("sizes", CHUNK, ids=str)
def test_chunk(device: str, sizes: tuple) -> None:
    *sizes, masked, l2norm = sizes
    case = Case(device, *sizes, masked=masked, l2norm=l2norm)
    case.check(fla.chunk_gated_delta_rule(**case.arguments()))


@pytest.mark.parametrize("function", (fla.chunk_gated_delta_rule, fla.fused_recurrent_gated_delta_rule))
@pytest.mark.parametrize("D", (60, 128))
def test_state_v_first(device: str, function, D: int) -> None:
    case = Case(device, 2, 130, 2, 4, D, dtype=F16)
    v_first = case.h0.transpose(-1, -2).contiguous()
    o, states = function(**case.arguments(initial_state=v_first, state_v_first=True))
    case.check((o, states.transpose(-1, -2)))
    with pytest.warns(DeprecationWarning, match="transpose_state_layout is now state_v_first"):
        function(**case.arguments(initial_state=v_first, transpose_state_layout=True))


@pytest.mark.parametrize("lens", ([0, 15], [0, 256, 500, 1000], [0, 15, 100, 300, 1000]), ids=str)
@pytest.mark.parametrize("D", (60, 128))
def test_packed_rows(device: str, lens: list[int], D: int) -> None:
    case = Case(device, 1, lens[-1], 2, 2, D, dtype=F16, lens=lens)
    offsets = case.offsets.to(device)
    for function in (fla.chunk_gated_delta_rule, fla.fused_recurrent_gated_delta_rule):
        case.check(function(**case.arguments(), cu_seqlens=offsets))


@pytest.mark.parametrize("function", (fla.chunk_gated_delta_rule, fla.fused_recurrent_gated_delta_rule))
@pytest.mark.parametrize("doubled", (False, True))
def test_gates_in_the_kernel(device: str, function, doubled: bool) -> None:
    """Raw gates and logits of beta, with and without a bias."""
    case = Case(device, 2, 200, 2, 4, 128, dtype=F16)
    a, b = torch.randn(2, 2, 200, 4).unbind(0)
    A_log, dt_bias = torch.rand(4), torch.randn(4) if doubled else torch.zeros(4)
    g, beta = oracle.gating(A_log, a, b, dt_bias)
    raw = {"g": a, "beta": b, "A_log": A_log, "dt_bias": dt_bias if doubled else None, "use_gate_in_kernel": True}
    options = {"use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": doubled}
    case.check(function(**case.arguments(**raw, **options)), g=g, beta=beta * (2 if doubled else 1))


def test_no_decay_and_full_writes_by_default(device: str) -> None:
    case = Case(device, 1, 65, 2, 2, 128, dtype=F16)
    arguments = case.arguments()
    del arguments["g"], arguments["beta"]
    result = fla.fused_recurrent_gated_delta_rule(**arguments)
    case.check(result, g=torch.zeros_like(case.g), beta=torch.ones_like(case.beta))


def test_inputs_of_several_dtypes(device: str) -> None:
    """float32 q and k beside a 16-bit v, beta in 16 bits: as layers under autocast pass them."""
    case = Case(device, 1, 100, 2, 4, 128, dtype=F16)
    case.q, case.k, case.beta = case.q.float(), case.k.float(), case.beta.bfloat16()
    case.check(fla.chunk_gated_delta_rule(**case.arguments()))


@pytest.mark.parametrize("chunk_size", (16, 32, 64))
def test_chunk_size_and_defaults(device: str, chunk_size: int) -> None:
    case = Case(device, 1, 64, 2, 4, 128, scale=128**-0.5, dtype=F16)
    case.h0.zero_()
    named = case.arguments()
    named = {name: named[name] for name in ("q", "k", "v", "g", "beta")}
    o, state = fla.chunk_gated_delta_rule(**named, chunk_size=chunk_size)
    assert state is None
    case.check((o, fla.chunk_gated_delta_rule(**named, output_final_state=True)[1]))


CONV = (
    # B, T, D, W, activation, bias, residual, dtype
    (2, 64, 128, 3, "swish", True, True, F32),
    (2, 128, 128, 4, "swish", False, True, F32),
    (2, 500, 1024, 3, None, True, True, F32),
    (2, 1024, 1024, 4, None, False, True, F32),
    (2, 64, 128, 3, None, True, False, F16),
    (2, 128, 128, 4, None, False, False, F16),
    (2, 2, 128, 4, "silu", True, True, F32),
    (2, 3, 128, 4, "silu", True, True, F32),
    (2, 4, 128, 4, "silu", True, False, BF16),
    (2, 2, 128, 3, "silu", False, True, F32),
)


def convolved(x, weight, bias, activation, before):
    """float64: y ``[T, D]`` and the last W inputs ``[D, W]`` after ``before`` ``[D, W]``."""
    inputs = torch.cat([before.double(), x.double().T], dim=1)
    if not len(x):
        return x.double(), inputs
    y = conv1d(
        inputs[None, :, 1:], weight.double()[:, None], None if bias is None else bias.double(), groups=len(weight)
    )
    return (silu(y) if activation else y)[0].T, inputs[:, -weight.shape[1] :]


@pytest.mark.parametrize("cached", (False, True))
@pytest.mark.parametrize("packed", (False, True))
@pytest.mark.parametrize("sizes", CONV, ids=str)
def test_causal_conv1d(device: str, sizes: tuple, packed: bool, cached: bool) -> None:
    B, T, D, W, activation, has_bias, has_residual, dtype = sizes
    lens = [0, 1, T // 2 + 1, T] if packed else [0, T]
    B, rows = (1, 3) if packed else (B, B)
    x, residual = torch.randn(B, T, D).to(dtype), torch.randn(B, T, D).to(dtype) if has_residual else None
    weight, bias = torch.randn(D, W).to(dtype), torch.randn(D).to(dtype) if has_bias else None
    before = torch.randn(rows, D, W).to(dtype) if cached else torch.zeros(rows, D, W, dtype=dtype)
    pieces = [x[0, begin:end] for begin, end in pairwise(lens)] if packed else list(x)
    wanted = [convolved(piece, weight, bias, activation, before[n]) for n, piece in enumerate(pieces)]
    y, state = fla.causal_conv1d(
        *(None if t is None else t.to(device) for t in (x, weight, bias, residual, before if cached else None)), True,
        activation, cu_seqlens=torch.tensor(lens, device=device) if packed else None,
    )  # fmt: skip
    wanted_y = torch.cat([piece for piece, _ in wanted]).view(x.shape)
    if residual is not None:
        wanted_y = wanted_y + residual
    assert_close(y, wanted_y, limit(device, "conv", dtype), "y")
    assert_bit_equal(state, torch.stack([window for _, window in wanted]).to(dtype), "state")


def test_conv_leaves_its_state_alone_and_returns_none_by_default(device: str) -> None:
    x, weight, state = (torch.randn(1, n, 128, device=device).to(BF16) for n in (5, 4, 4))
    weight, state = weight[0].T.contiguous(), state.transpose(1, 2).contiguous()
    before = state.clone()
    assert fla.causal_conv1d(x, weight, initial_state=state)[1] is None
    assert_bit_equal(state, before)


def test_errors(device: str) -> None:
    case = Case(device, 2, 10, 2, 4, 128, dtype=F16)
    chunk, recurrent = fla.chunk_gated_delta_rule, fla.fused_recurrent_gated_delta_rule
    offsets = torch.tensor([0, 4, 10], device=device)
    for function in (chunk, recurrent):
        for changed, message in (
            ({"cu_seqlens": offsets}, "cu_seqlens must be None for a batch of 2"),
            ({"initial_state": case.h0[:1]}, "initial_state must hold 2 states, one a row; got 1"),
            ({"allow_neg_eigval": True}, "allow_neg_eigval must be False without use_beta_sigmoid_in_kernel"),
            ({"use_gate_in_kernel": True}, "A_log must be given with use_gate_in_kernel"),
            ({"k": case.k[:, :, :1]}, "k must have the 2 heads of q; got 1"),
            ({"v": case.v[:, :, :3]}, "v must have a multiple of 2 heads; got 3"),
            ({"state_v_first": True, "transpose_state_layout": True}, "transpose_state_layout must not be given"),
        ):
            with pytest.raises(ValueError, match=message):
                function(**case.arguments(**changed))
        with pytest.raises(TypeError, match="use_gate_in_kernal must not be given"):
            function(**case.arguments(use_gate_in_kernal=True))
        with pytest.raises(GdnUnsupportedError, match="q must not require a gradient"):
            function(**case.arguments(q=case.q.requires_grad_()))
        case.q.requires_grad_(False)
    with pytest.raises(DeprecationWarning, match="head_first is gone"):
        chunk(**case.arguments(head_first=False))
    with pytest.raises(ValueError, match="chunk_size must be 16, 32 or 64; got 128"):
        chunk(**case.arguments(chunk_size=128))
    for name in ("gk", "gv"):
        with pytest.raises(NotImplementedError, match=f"{name} must be None"):
            recurrent(**case.arguments(**{name: case.v}))
    with pytest.raises(ValueError, match="g must be given with use_gate_in_kernel"):
        recurrent(**case.arguments(g=None, use_gate_in_kernel=True, A_log=torch.zeros(4)))
    x, weight = torch.randn(2, 5, 128, device=device).to(BF16), torch.randn(128, 4, device=device).to(BF16)
    for changed, message in (
        ({"backend": "cudnn"}, "backend must be one of triton, cuda, mix; got 'cudnn'"),
        ({"cu_seqlens": offsets}, "cu_seqlens must be None for a batch of 2"),
        ({"initial_state": x}, "initial_state must be "),
        ({"weight": None}, "weight must be .* got None"),
        ({"activation": "gelu"}, "activation must be 'silu', 'swish' or None; got 'gelu'"),
    ):
        with pytest.raises(ValueError, match=message):
            fla.causal_conv1d(**{"x": x, "weight": weight, **changed})
    for function, named in ((chunk, case.arguments()), (fla.causal_conv1d, {"x": x, "weight": weight})):
        with pytest.raises(NotImplementedError, match="cp_context must be None"):
            function(**named, cp_context=object())
