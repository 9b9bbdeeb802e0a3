"""What this build can run, as a question that launches nothing."""

from __future__ import annotations

from typing import NamedTuple

from sglang_gdn import _C


class Answer(NamedTuple):
    """``kernel`` would serve, or None; ``text`` names the specialization and has one line per kernel saying why."""

    kernel: str | None
    text: str


def kernels() -> list[str]:
    """One line per built kernel: operator, device, name, what it supports."""
    return _C.kernels()


def explain(
    op: str,
    *,
    device: str = "cpu",
    act: str | None = None,
    state: str | None = None,
    conv: str | None = None,
    head_k_dim: int | None = None,
    head_v_dim: int | None = None,
    ratio: int | None = None,
    conv_width: int | None = None,
    draft_tokens: int | None = None,
) -> Answer:
    """Which kernel would serve a call, and why the others would not.

    Args:
        op: name of an operator of ``sglang_gdn.ops``.
        device: ``"cpu"``, ``"cuda"`` or ``"npu"``.
        act, state, conv: dtype names of activations, ``ssm_pool`` and ``conv_pool``; None leaves them open.
        head_k_dim, head_v_dim, ratio (HV / H), conv_width, draft_tokens: sizes; None leaves them open.

    Raises:
        ValueError: ``op``, ``device`` or a dtype is not known.
    """
    return Answer(*_C.explain(op, device, act, state, conv, head_k_dim, head_v_dim, ratio, conv_width, draft_tokens))
