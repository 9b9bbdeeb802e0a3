"""Comparisons that say where two tensors differ, and pools that notice a write outside the slots a call may touch."""

from __future__ import annotations

import torch
from torch import Tensor

INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# An element may be further off than the whole tensor on average, but not by more than this factor.
ELEMENT_FACTOR = 10


def bits(x: Tensor) -> Tensor:
    """A contiguous CPU copy as integers, so that NaN equals NaN and -0.0 differs from 0.0."""
    x = x.detach().cpu().contiguous()
    return x.view(INTEGER_OF_SIZE[x.element_size()])


def first_difference(differs: Tensor) -> str:
    where = differs.nonzero()
    return f"{len(where)} of {differs.numel()} elements differ, first at {where[0].tolist()}"


def assert_bit_equal(actual: Tensor, expected: Tensor, what: str = "tensor") -> None:
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype} against {expected.dtype}"
    assert actual.shape == expected.shape, f"{what}: {list(actual.shape)} against {list(expected.shape)}"
    differs = bits(actual) != bits(expected)
    assert not differs.any(), f"{what}: {first_difference(differs)}"


def assert_zero(actual: Tensor, what: str = "tensor") -> None:
    differs = actual.detach().cpu() != 0
    assert not differs.any(), f"{what} must be zero: {first_difference(differs)}"


def rel_l2(actual: Tensor, expected: Tensor) -> float:
    actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
    norm = expected.norm()
    return float((actual - expected).norm() / norm) if norm > 0 else float((actual - expected).norm())


def assert_close(actual: Tensor, expected: Tensor, limit: float, what: str = "tensor") -> None:
    """Relative L2 error at most ``limit``, and no element off by more than ten times that of itself plus the RMS.

    The RMS is that of its matrix (the last two dimensions) if larger than that of all: heads decay at their own pace.
    """
    assert actual.shape == expected.shape, f"{what}: {list(actual.shape)} against {list(expected.shape)}"
    if expected.numel() == 0:
        return
    actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
    assert expected.isfinite().all(), f"{what}: the reference is not finite"
    assert actual.isfinite().all(), f"{what}: not finite: {first_difference(~actual.isfinite())}"
    error = rel_l2(actual, expected)
    assert error <= limit, f"{what}: relative L2 error {error:.3e} exceeds {limit:.1e}"
    rms = expected.square().mean().sqrt()
    if expected.dim() > 2:
        rms = expected.square().mean((-2, -1), keepdim=True).sqrt().maximum(rms)
    allowed = ELEMENT_FACTOR * limit * (expected.abs() + rms)
    differs = (actual - expected).abs() > allowed
    assert not differs.any(), f"{what}: {first_difference(differs)} by more than {ELEMENT_FACTOR} x {limit:.1e}"


class GuardedPool:
    """A slot pool inside a larger allocation: NaN slots before and after it, NaN between slots of a wider pitch."""

    GUARD_SLOTS = 2

    def __init__(self, values: Tensor, device: str, extra_pitch: int = 0, transposed: bool = False) -> None:
        """``transposed``: the last two dimensions of ``values`` lie in memory the other way round."""
        dense = values[:1].mT.contiguous().mT if transposed else values[:1].contiguous()
        inner = values[0].numel()
        pitch = inner + extra_pitch
        slots = values.shape[0] + 2 * self.GUARD_SLOTS
        self.storage = torch.full((slots, pitch), torch.nan, dtype=values.dtype, device=device)
        self.tensor = self.storage.as_strided(values.shape, (pitch, *dense.stride()[1:]), self.GUARD_SLOTS * pitch)
        self.tensor.copy_(values)
        self.before = self.storage.clone()

    def assert_only_wrote(self, slots, what: str = "pool") -> None:
        """Everything but the named slots, guards and gaps included, has the bits it was made with."""
        after = self.storage.clone()
        for slot in slots:
            row = self.GUARD_SLOTS + slot
            inner = self.tensor[0].numel()
            after[row, :inner] = self.before[row, :inner]
        assert_bit_equal(after, self.before, f"{what} outside slots {list(slots)}")

    def assert_untouched(self, what: str = "pool") -> None:
        self.assert_only_wrote((), what)
