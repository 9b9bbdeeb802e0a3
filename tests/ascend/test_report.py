"""The figures of docs/ascend.md are those of the committed kernels."""

from __future__ import annotations

from ascend import report, simulated
from cases import BF16, Heads
from problems import delta_rule


def test_documented_figures_are_current(npu):
    npu.set_cores(24)
    documented = (simulated.ROOT / "docs/ascend.md").read_text()
    for line in [*report.table(npu), *report.chunk_rule_table(npu), *report.chunk_traffic_table()]:
        assert line in documented, f"docs/ascend.md must have this line (make ascend-report): {line}"


def test_traffic_of_a_chunk_adds_up(npu):
    """Two tasks of four whole chunks, on as many blocks."""
    delta_rule("cpu", Heads(1, 2), [256], act=BF16).run()
    moved = sum(npu.bytes_moved()[pipe] for pipe in ("MTE2", "MTE3", "FIX"))
    each = (4 * sum(report.CHUNK_TRAFFIC.values()) + report.TASK_KIB) * report.KIB + report.BLOCK_BYTES
    assert moved == 2 * each
