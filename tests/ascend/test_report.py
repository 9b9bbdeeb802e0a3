"""The figures of docs/ascend.md are those of the committed kernels."""

from __future__ import annotations

from ascend import report, simulated


def test_documented_figures_are_current(npu):
    npu.set_cores(24)
    documented = (simulated.ROOT / "docs/ascend.md").read_text()
    for line in [*report.table(npu), *report.chunk_rule_table(npu)]:
        assert line in documented, f"docs/ascend.md must have this line (make ascend-report): {line}"
