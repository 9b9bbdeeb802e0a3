"""``GdnTileAscendBackend`` on hand-made batches: the operators' CPU implementations on pools laid out as on an NPU.

The same batches in ``GdnTileBackend`` must give the same bits. SGLang's Ascend classes are its own; the functions that
they import from a package for NPUs are not called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from serving.rig import SLOTS, Rig, W, rows_of
from sglang_gdn import ops
from sglang_gdn.errors import GdnFallbackError
from sglang_gdn.serving import compat
from sglang_gdn.serving.compat import sglang_0_5_17
from sglang_gdn.serving.compat.line import raise_unless_device_serves
from sglang_gdn.serving.errors import GdnServingError
from sglang_gdn.serving.seams import problems

pytestmark = [pytest.mark.serving, pytest.mark.usefixtures("npu_packages"), pytest.mark.filterwarnings("ignore")]

DRAFTS = 3
NPU_FUNCTIONS = {
    "fla.fused_gdn_gating": ("fused_gdn_gating_kernel_without_sigmoid", "fused_gdn_gating_npu"),
    "fla.l2norm": ("l2norm_fwd",),
    "fla.utils": ("prepare_chunk_indices",),
    "mamba.mamba_state_update_triton": ("conv_state_rollback", "move_intermediate_cache"),
}


def not_here(*_: Any) -> None:
    raise AssertionError("a function of the package for NPUs was called")


@pytest.fixture
def npu_packages(sglang_on_cpu: None, grid_of_64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", ".fla", ".mamba", *(f".{module}" for module in NPU_FUNCTIONS)):
        module = ModuleType(f"sgl_kernel_npu{name}")
        module.__path__ = []
        for function in NPU_FUNCTIONS.get(name.removeprefix("."), ()):
            setattr(module, function, not_here)
        monkeypatch.setitem(sys.modules, module.__name__, module)


def on_dense_windows(operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The CPU kernels want windows ``[.., D, W-1]`` in memory too."""

    def run(*tensors: Tensor, **arguments: Any) -> Tensor:
        if arguments["conv_pool"].is_contiguous():  # of GdnTileBackend
            return operator(*tensors, **arguments)
        views = {name: x for name, x in arguments.items() if name in ("conv_pool", "intermediate_conv_window")}
        dense = {name: view.contiguous() for name, view in views.items()}
        assert all(view.mT.stride(-1) == 1 for view in views.values()), "the Ascend kernels want [.., W-1, D]"
        out = operator(*tensors, **(arguments | dense))
        for name, view in views.items():
            view.copy_(dense[name])
        return out

    return run


class AscendRig(Rig):
    """``Rig`` with the backend and the windows of an NPU, where there are ``DRAFTS`` draft tokens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from sglang_gdn.serving import ascend

        super().__init__()
        operators = {name: on_dense_windows(getattr(ops, name)) for name in ("gdn_prefill", "gdn_decode", "gdn_verify")}
        monkeypatch.setattr(ascend, "ops", SimpleNamespace(**operators))
        monkeypatch.setattr("sglang_gdn.serving.backend.ops.gdn_prefill", operators["gdn_prefill"])
        rows = torch.full((SLOTS, DRAFTS - 1, self.D), torch.nan)
        self.pools.conv[0] = torch.cat((rows, self.conv_pool.mT), 1)
        backend = self.backend
        self.backend = ascend.GdnTileAscendBackend.__new__(ascend.GdnTileAscendBackend)
        self.backend.req_to_token_pool = backend.req_to_token_pool
        self.backend._track_mamba_state_decode = self._track_decode
        self.pools.intermediate_ssm = torch.zeros(SLOTS, DRAFTS, *self.ssm_pool.shape[1:])
        self.pools.intermediate_conv_window = [torch.zeros(SLOTS, DRAFTS, self.D, W - 1)]
        self.backend._set_draft_rows(SimpleNamespace(intermediate_ssm=self.pools.intermediate_ssm[None]))
        self.conv_pool = self.backend._windows(self.pools.conv[0])

    def _track_decode(self, *arguments: Any) -> None:
        self.tracked_decodes.append(len(arguments))

    def verify(self, inputs: Any, slots: list[int], **metadata: Any) -> Tensor:
        self.backend.forward_metadata = SimpleNamespace(
            mamba_cache_indices=self.integers(slots), retrieve_next_token=metadata.get("tree")
        )
        batch = SimpleNamespace(
            forward_mode=SimpleNamespace(is_target_verify=lambda: True),
            spec_info=SimpleNamespace(draft_token_num=DRAFTS),
        )
        return self.backend.forward_extend(self.layer, batch, *inputs)

    def commit(self, slots: list[int], last_steps: list[int]) -> None:
        """What ``AscendHybridLinearAttnBackend`` does: states copied, rows shifted by the drafts that were refused."""
        for row, (slot, last) in enumerate(zip(slots, last_steps, strict=True)):
            self.ssm_pool[slot] = self.pools.intermediate_ssm[row, last]
            rows = self.pools.conv[0][slot]
            refused = DRAFTS - 1 - last
            rows[refused:] = rows[: rows.shape[0] - refused].clone()


@pytest.fixture
def rigs(monkeypatch: pytest.MonkeyPatch) -> tuple[Rig, AscendRig]:
    plain, ascend = Rig(), AscendRig(monkeypatch)
    plain.normal(1), ascend.normal(1)
    return plain, ascend


def same_states(plain: Rig, ascend: AscendRig) -> bool:
    return torch.equal(plain.ssm_pool, ascend.ssm_pool) and torch.equal(plain.conv_pool, ascend.conv_pool)


def test_prefill_and_decode_are_in_place(rigs: tuple[Rig, AscendRig]) -> None:
    """A snapshot in the middle of a row, a continued row, a padded row."""
    outs = []
    for rig in rigs:
        inputs = rig.tokens(140)
        prefilled = rig.prefill(inputs, [100, 40], [1, 2], [0, 64], {0: (7, 64)})
        outs.append([prefilled, rig.decode(rows_of(inputs, 0, 3), [1, -1, 7])])
    assert all(torch.equal(*pair) for pair in zip(*outs, strict=True))
    assert same_states(*rigs)
    assert rigs[1].tracked_decodes == [4]


def test_a_prefill_that_sglang_plans(rigs: tuple[Rig, AscendRig]) -> None:
    """SGLang's own planning of a batch on an NPU, then ours; the same batch made by hand."""
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    plain, ascend = rigs
    lengths, slots, prefixes = [100, 40], [1, 2], [0, 64]
    expected = plain.prefill(plain.tokens(140), lengths, slots, prefixes, {0: (7, 64)})
    backend, integers = ascend.backend, ascend.integers
    backend.device, backend.topk, backend._checks = "cpu", 0, None
    backend.req_to_token_pool.get_mamba_indices = lambda rows: integers(slots)[rows]
    batch = SimpleNamespace(
        forward_mode=ForwardMode.EXTEND, logical_forward_mode=ForwardMode.EXTEND, spec_info=None, batch_size=2,
        req_pool_indices=integers([0, 1]), input_ids=torch.zeros(140), extend_start_loc=integers([0, 100]),
        extend_seq_lens=integers(lengths), extend_seq_lens_cpu=lengths, extend_prefix_lens=integers(prefixes),
        extend_prefix_lens_cpu=prefixes, tbo_parent_token_range=None, mamba_prefill_track_mask_cpu=None,
        mamba_track_seqlens_cpu=None, mamba_track_mask=torch.tensor([True, False]),
        mamba_track_indices=integers([7, 0], torch.int64),
        mamba_track_aligned_lens=lambda: integers([64, 0], torch.int64),
    )  # fmt: skip
    backend.init_forward_metadata(batch)
    assert torch.equal(backend.forward_extend(ascend.layer, batch, *ascend.tokens(140)), expected)
    assert same_states(plain, ascend)


def test_no_tokens(rigs: tuple[Rig, AscendRig]) -> None:
    rig = rigs[1]
    assert rig.decode(rig.tokens(0), []).shape == (1, 0, rig.HV, rig.V)
    assert rig.prefill(rig.tokens(0), [0], [1], [0]).shape == (1, 0, rig.HV, rig.V)


@pytest.mark.parametrize("last_steps", [[0, 2], [1, 1], [2, 0]])
def test_accepted_drafts_are_what_decode_steps_leave(rigs: tuple[Rig, AscendRig], last_steps: list[int]) -> None:
    plain, ascend = rigs
    slots = [4, 9]
    inputs = ascend.tokens(len(slots) * DRAFTS + 1)  # SGLang pads the tokens of a batch
    before = ascend.ssm_pool.clone()
    out = ascend.verify(inputs, slots)
    assert torch.equal(ascend.ssm_pool, before), "drafts are not committed before they are accepted"
    assert (out[0, -1] == 0).all()
    ascend.commit(slots, last_steps)
    for row, (slot, last) in enumerate(zip(slots, last_steps, strict=True)):
        for step in range(last + 1):
            token = row * DRAFTS + step
            stepped = plain.decode(rows_of(inputs, token, token + 1), [slot])
            torch.testing.assert_close(out[0, token], stepped[0, 0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ascend.ssm_pool, plain.ssm_pool, rtol=1e-6, atol=1e-6)
    assert torch.equal(ascend.conv_pool, plain.conv_pool)


def test_draft_trees_go_to_sglang(rigs: tuple[Rig, AscendRig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_GDN_STRICT", "1")
    with pytest.raises(GdnFallbackError, match="draft trees"):
        rigs[1].verify(rigs[1].tokens(DRAFTS), [1], tree=torch.zeros(1, DRAFTS))


def test_seams_are_those_of_the_installed_sglang() -> None:
    assert problems(compat.select()[0].npu_seams) == []


def test_the_class_is_bound_where_the_wrapper_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.hardware_backend.npu.attention import ascend_gdn_backend

    from sglang_gdn.serving.ascend import GdnTileAscendBackend

    line, _ = compat.select()
    assert line is not None
    stock = ascend_gdn_backend.AscendGDNAttnBackend
    runner = SimpleNamespace(
        device="npu", is_draft_worker=False, server_args=None, model_config=SimpleNamespace(hf_config=None)
    )
    monkeypatch.setattr(line, "asks_for_tile", lambda _: True)

    def wrapper(_: Any, backend: Any) -> SimpleNamespace:
        bound = ascend_gdn_backend.AscendGDNAttnBackend
        return SimpleNamespace(full=backend, linear_attn_backend=bound.__new__(bound))

    built = line.build_with_tile_backend(wrapper, runner, "softmax")
    assert type(built.linear_attn_backend) is GdnTileAscendBackend and built.full == "softmax"
    assert not hasattr(built, "update_mamba_state_after_mtp_verify"), "SGLang commits accepted drafts"
    assert ascend_gdn_backend.AscendGDNAttnBackend is stock
    with pytest.raises(GdnServingError, match="SGLang built"):
        line.build_with_tile_backend(lambda *_: SimpleNamespace(linear_attn_backend=None), runner, "softmax")


def test_what_an_npu_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_gdn import _C

    with pytest.raises(GdnServingError, match="needs a build with the Ascend kernels"):
        raise_unless_device_serves("npu")
    monkeypatch.setattr(_C, "build_info", lambda: {"ascend": True})
    raise_unless_device_serves("npu")
    with pytest.raises(GdnServingError, match=r"does not serve NPUs with SGLang 0\.5\.17"):
        sglang_0_5_17.LINE.verify_worker(SimpleNamespace(device="npu"))
