"""What this build can run, as a question that launches nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from sglang_gdn import _C

# Phase of serving -> the fused operator, and what it is composed of on a device that has no kernel for it.
PHASES = {
    "prefill": ("gdn_prefill", ("causal_conv1d", "gdn_gating", "chunk_gated_delta_rule")),
    "decode": ("gdn_decode", ("causal_conv1d_update", "fused_sigmoid_gating_delta_rule_update")),
    "verify": ("gdn_verify", ("causal_conv1d_update", "fused_sigmoid_gating_delta_rule_update")),
}


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
    record: bool | None = None,
) -> Answer:
    """Which kernel would serve a call, and why the others would not.

    Args:
        op: name of an operator of ``sglang_gdn.ops``.
        device: ``"cpu"``, ``"cuda"`` or ``"npu"``.
        act, state, conv: dtype names of activations, ``ssm_pool`` and ``conv_pool``; None leaves them open.
        head_k_dim, head_v_dim, ratio (HV / H), conv_width, draft_tokens: sizes; None leaves them open.
        record: of ``gdn_verify``, whether draft tokens are kept as a ``DraftRecord``; None leaves it open.

    Raises:
        ValueError: ``op``, ``device`` or a dtype is not known.
    """
    return Answer(
        *_C.explain(op, device, act, state, conv, head_k_dim, head_v_dim, ratio, conv_width, draft_tokens, record)
    )


class PhaseAnswer(NamedTuple):
    """``kernels`` that would serve a phase: one if ``fused``, several if composed, or none; ``reason`` unless fused."""

    kernels: list[str]
    fused: bool
    reason: str


def explain_phase(phase: str, **specialization: Any) -> PhaseAnswer:
    """Which kernels would serve a phase of ``PHASES``; ``specialization`` as in ``explain``."""
    fused_op, parts = PHASES[phase]
    fused = explain(fused_op, **specialization)
    if fused.kernel is not None:
        return PhaseAnswer([fused.kernel], True, "")
    answers = [explain(part, **specialization) for part in parts]
    kernels = [answer.kernel for answer in answers if answer.kernel is not None]
    if len(kernels) == len(answers):
        return PhaseAnswer(kernels, False, fused.text)
    return PhaseAnswer(
        [], False, "\n".join([fused.text, *(answer.text for answer in answers if answer.kernel is None)])
    )
