"""``python -m sglang_gdn check``: what it says, and that it says no when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from sglang_gdn import capability, check, machine, ops, selftest
from sglang_gdn.errors import GdnNoKernelError

FLOAT32 = (torch.float32,)


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "sglang_gdn", *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=300)


def test_commands_are_listed_and_others_refused(tmp_path: Path) -> None:
    listed = command("--help", folder=tmp_path)
    assert listed.returncode == 0
    assert all(name in listed.stdout for name in ("check", "bench", "serve"))
    refused = command("sevre", folder=tmp_path)
    assert refused.returncode == 2
    assert "sevre" in refused.stderr


def test_json_and_text_agree_on_a_good_machine(tmp_path: Path) -> None:
    as_json, as_text = command("check", "--json", folder=tmp_path), command("check", folder=tmp_path)
    assert as_json.returncode == 0, as_json.stdout + as_json.stderr
    report = json.loads(as_json.stdout)
    assert report["passed"]
    assert report["versions"]["torch"] == metadata.version("torch")
    assert report["plugin"]["sglang_tested"]
    assert {row["op"] for row in report["selftest"]} == set(selftest.CASES)
    assert as_text.returncode == 0
    assert all(row["op"] in as_text.stdout for row in report["selftest"])
    assert report["devices"]["cpu"]["isa"] in as_text.stdout


def test_every_phase_of_every_head_pair_has_a_kernel() -> None:
    report = check.collect("cpu", selftest=False)
    served = {(row["phase"], row["k_heads"], row["v_heads"]) for row in report.serving if row["kernels"]}
    value_heads = {heads for _, _, heads in served}
    assert value_heads == {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}
    assert len(served) == len(capability.PHASES) * len(set(check.HEAD_PAIRS))


@pytest.mark.parametrize("op", selftest.CASES)
def test_selftest_notices_one_wrong_element(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(ops, op)

    def wrong(*args: object, **kwargs: object) -> object:
        result = original(*args, **kwargs)
        first = result[0] if isinstance(result, tuple) else kwargs["ssm_pool"] if result is None else result
        first[(0,) * first.dim()] += 1
        return result

    assert selftest.run(op, "cpu", torch.float32).failure is None
    monkeypatch.setattr(ops, op, wrong)
    assert "exceeds" in (selftest.run(op, "cpu", torch.float32).failure or "")


def test_operator_without_a_kernel_is_no_failure_of_the_selftest(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **kwargs: object) -> None:
        raise GdnNoKernelError("gdn_decode: no kernel", "gdn_decode", "specialization")

    monkeypatch.setattr(ops, "gdn_decode", missing)
    outcome = selftest.run("gdn_decode", "cpu", torch.float32)
    assert not outcome.built
    assert outcome.failure is None


def test_phase_without_kernels_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    real = capability.explain

    def without_prefill(op: str, **fields: object) -> capability.Answer:
        if op in ("gdn_prefill", "chunk_gated_delta_rule"):
            return capability.Answer(None, f"{op}: nothing built")
        return real(op, **fields)

    monkeypatch.setattr(capability, "explain", without_prefill)
    report = check.collect("cpu", selftest=False)
    fatal = [problem.what for problem in report.problems if problem.fatal]
    assert len(fatal) == 1
    assert "no prefill kernel on cpu for heads 16/32, 8/16" in fatal[0]
    assert "nothing built" in check.render(report)


def test_composition_is_shown_where_no_fused_kernel_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    real = capability.explain

    def without_fused(op: str, **fields: object) -> capability.Answer:
        return capability.Answer(None, "not fused") if op == "gdn_decode" else real(op, **fields)

    monkeypatch.setattr(capability, "explain", without_fused)
    report = check.collect("cpu", selftest=False)
    assert report.passed
    kernels = {tuple(row["kernels"]) for row in report.serving if row["phase"] == "decode"}
    assert kernels == {("cpu_causal_conv1d_update", "cpu_fused_sigmoid_gating_delta_rule_update")}


def test_failed_selftest_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(ops, "gdn_decode", broken)
    report = check.collect("cpu")
    assert not report.passed
    assert any("broken on purpose" in problem.what for problem in report.problems if problem.fatal)
    assert "broken on purpose" in check.render(report)


def test_untested_sglang_is_fatal_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.5.99" if name == "sglang" else version(name))
    monkeypatch.setattr("sglang_gdn.serving.compat.version", metadata.version)
    refused = check.collect("cpu", selftest=False)
    assert not refused.passed
    assert refused.plugin["sglang_tested"] is False
    monkeypatch.setenv("SGLANG_GDN_ALLOW_UNTESTED_SGLANG", "1")
    assert check.collect("cpu", selftest=False).passed


def test_machine_without_sglang_passes_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "versions", lambda: {"python": "3", "torch": "2", "sglang": None, "torch_npu": None})
    report = check.collect("cpu", selftest=False)
    assert report.passed
    assert any(check.SGLANG_REQUIREMENT in problem.fix for problem in report.problems)


def test_plugin_kept_out_by_sglang_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLUGINS", "another")
    report = check.collect("cpu", selftest=False)
    assert not report.passed
    assert any("SGLANG_PLUGINS" in problem.what for problem in report.problems if problem.fatal)


def test_hopper_gpu_without_cuda_kernels_is_told_how_to_build(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = machine.Gpu(name="H200", compute_capability="9.0")
    monkeypatch.setattr(machine, "nvidia", lambda: machine.Nvidia(driver="580.1", cuda="13.0", gpus=[gpu]))
    monkeypatch.setattr(check, "usable_devices", lambda report: ["cpu"])
    report = check.collect("cpu", selftest=False)
    fixes = [problem.fix for problem in report.problems]
    assert report.build["cuda"] or any("SGLANG_GDN_CUDA=ON" in fix for fix in fixes)
    assert "H200" in check.render(report)


def test_missing_compiled_module_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"no {name}")

    monkeypatch.setattr(check.importlib, "import_module", missing)
    report = check.collect("cpu")
    assert not report.passed
    assert any("compiled module" in problem.what for problem in report.problems)


def test_device_that_cannot_be_used_is_fatal() -> None:
    report = check.collect("npu", selftest=False)
    assert not report.passed


def test_cuda_version_number() -> None:
    assert machine.cuda_version(12080) == "12.8"
    assert machine.cuda_version(13000) == "13.0"


def test_cann_version_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler/version.info").write_text("Version=8.2.RC1\nversion_dir=8.2.RC1\n")
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(tmp_path))
    assert machine.ascend()["cann"] == "8.2.RC1"
