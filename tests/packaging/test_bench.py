"""``python -m sglang_gdn bench`` on shapes that take no time, its gate, and the table in the README."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from distribution import ROOT
from sglang_gdn import bench, ops
from sglang_gdn.bench import measure
from sglang_gdn.bench import workloads as make

ALL_OPS = [op for phase in bench.OPS_OF_PHASE.values() for op in phase]
PEERS = {"transformers", "fla", "flashqla", "flashinfer", "flashinfer_unsplit", "sglang"}


@pytest.fixture(scope="module")
def table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("table", ROOT / "benchmarks/table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_rows(rows: list[dict]) -> None:
    for row in rows:
        assert set(row) - {"bytes", "copy_ms"} == {"op", "shape", "ours_ms", "peers", "floor_ms", "versions", "date"}
        assert {"hk", "hv", "d"} < set(row["shape"])
        assert {"lens", "label"} < set(row["shape"]) or "batch" in row["shape"]
        assert row["op"] != "gdn_verify" or "drafts" in row["shape"]
        assert row["ours_ms"] > 0
        assert row["floor_ms"] > 0
        assert set(row["peers"]) <= PEERS
        assert all(ms > 0 for ms in row["peers"].values())
        assert "torch" in row["versions"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"])


def test_quick_run_measures_every_operator(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--quick", "--heads", "1,3", "--output", str(tmp_path)]) == 0
    rows = [row for phase in bench.OPS_OF_PHASE for row in json.loads((tmp_path / f"cpu/{phase}.json").read_text())]
    check_rows(rows)
    assert [row["op"] for row in rows] == ALL_OPS
    assert all({"sglang-gdn", "transformers", "cpu", "isa", "threads"} <= set(row["versions"]) for row in rows)
    assert all("transformers" in row["peers"] for row in rows)
    printed = capfd.readouterr().out
    assert all(op in printed for op in ALL_OPS)


@pytest.mark.parametrize("op", ALL_OPS)
def test_wrong_result_is_not_timed(
    op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = getattr(ops, op)

    def wrong(*args: object, **kwargs: object) -> object:
        result = original(*args, **kwargs)
        first = result[0] if isinstance(result, tuple) else result
        first.mul_(1.05)
        return result

    monkeypatch.setattr(ops, op, wrong)
    assert bench.main(["--quick", "--ops", op, "--heads", "1,2", "--output", str(tmp_path)]) == 1
    assert "ours is not timed" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_partial_run_leaves_the_recorded_results_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / bench.DEFAULT_OUTPUT).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert bench.arguments([]).output == bench.DEFAULT_OUTPUT
    assert bench.arguments(["--quick"]).output is None
    assert bench.arguments(["--ops", "gdn_decode"]).output is None
    assert bench.arguments(["--heads", "16,48"]).output is None


def test_heads_must_divide() -> None:
    assert bench.parse_heads("16,32;16,48") == [make.Heads(16, 32), make.Heads(16, 48)]
    with pytest.raises(SystemExit):
        bench.arguments(["--heads", "16,40"])


def test_floor_of_decode_is_the_state_traffic() -> None:
    """16 value heads more than 32 of size 128, batch 8: 2 * 8 * 32 * 128 * 128 * 4 bytes of state dominate."""
    w = make.decode(make.Heads(16, 32), 8)
    moved, flops = measure.cost("gdn_decode", w)
    states = 2 * 8 * 32 * 128 * 128 * 4
    assert flops == 0
    assert states < moved < 1.05 * states
    assert measure.Machine(copy_gb_s=10.0, fp32_gflop_s=1.0).floor_ms(moved, flops) == pytest.approx(moved / 1e7)


def test_floor_of_prefill_is_the_products() -> None:
    w = make.prefill(make.Heads(1, 1, 128), "1x64", (64,))
    products = 6 * 64 * 128**2 + 4 * 64**2 * 128 + 64**3 / 3
    assert measure.cost("chunk_gated_delta_rule", w)[1] == pytest.approx(products)


def test_median_counts_steps_after_the_warm_up() -> None:
    steps: list[int] = []
    measure.median_ms(steps.append, seconds=0.0, at_least=5)
    assert steps == [0, 1, 2, 3, 4, 5]


def test_rings_of_states_exceed_the_caches() -> None:
    for batch in (1, 8, 32):
        w = make.decode(make.Heads(16, 32), batch)
        assert w.ring * batch * w.heads.state_bytes >= make.RING_BYTES


def test_gate_sees_one_wrong_state() -> None:
    from sglang_gdn.bench.implementations import OURS

    w = make.decode(make.Heads(1, 2), 2)
    gate, output = measure.Gate("gdn_decode", w), OURS["gdn_decode"](w)(0)
    assert gate.failures(output, measure.LIMITS) == []
    assert output.state is not None
    output.state[1, 1, 0, 0] += 1
    assert [failure.split(":")[0] for failure in gate.failures(output, measure.LIMITS)] == ["state"]
    output.state[1, 1, 0, 0] = torch.nan
    assert "inf" in gate.failures(output, measure.LIMITS)[0]


def test_recorded_results_have_the_agreed_form() -> None:
    """Those of every benchmark; times of the host alone have neither floor nor peers."""
    files = [file for file in (ROOT / "benchmarks/results").glob("*/*.json") if file.stem != "host"]
    assert files
    for file in files:
        check_rows(json.loads(file.read_text()))


def test_readme_table_is_that_of_the_results(
    table: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    readme = ROOT / "README.md"
    monkeypatch.setattr(sys, "argv", ["table.py", "--check", str(readme)])
    assert table.main() == 0
    changed = tmp_path / "README.md"
    text = readme.read_text()
    start = text.index("| `gdn_decode` |", text.index("<!-- bench:cpu -->"))
    end = text.index("\n", start)
    changed.write_text(text[:start] + text[start:end].replace("**", "**1") + text[end:])
    monkeypatch.setattr(sys, "argv", ["table.py", "--check", str(changed)])
    assert table.main() == 1
