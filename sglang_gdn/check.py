"""``python -m sglang_gdn check``: what this machine will run and why, what is missing, and a self-test.

Exit code 0 if everything that is installed works together, else 1. Initialises only devices that it tests.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any

from sglang_gdn import __version__, machine
from sglang_gdn.serving import compat

PLUGIN_GROUP = "sglang.srt.plugins"
PLUGIN_NAME = "gdn_tile"
SGLANG_REQUIREMENT = f"sglang=={compat.NEWEST_TESTED}"
SM90 = "9.0"

# (H, HV) of the public models and of their tensor-parallel shards.
HEAD_PAIRS = [
    (key_heads // ranks, value_heads // ranks)
    for key_heads, value_heads in ((16, 32), (16, 48), (16, 64), (16, 16))
    for ranks in (1, 2, 4, 8, 16)
]
DRAFT_TOKENS = 4
LAYER: dict[str, Any] = {
    "act": "bfloat16",
    "state": "float32",
    "conv": "bfloat16",
    "head_k_dim": 128,
    "head_v_dim": 128,
    "conv_width": 4,
}


@dataclass
class Problem:
    """``fatal`` ones make the exit code 1; the others say what this machine cannot do."""

    what: str
    fix: str
    fatal: bool


@dataclass
class Report:
    version: str = __version__
    versions: dict[str, str | None] = field(default_factory=dict)
    build: dict[str, Any] = field(default_factory=dict)
    devices: dict[str, Any] = field(default_factory=dict)
    plugin: dict[str, Any] = field(default_factory=dict)
    serving: list[dict[str, Any]] = field(default_factory=list)
    selftest: list[dict[str, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, what: str, fix: str, fatal: bool = False) -> None:
        self.problems.append(Problem(what, fix, fatal))

    @property
    def passed(self) -> bool:
        return not any(problem.fatal for problem in self.problems)

    def as_json(self) -> str:
        return json.dumps(asdict(self) | {"passed": self.passed}, indent=2)


def collect(device: str = "auto", selftest: bool = True) -> Report:
    """Everything the command prints. ``device``: which to test, or "auto" for all that this build has kernels for."""
    report = Report(versions=machine.versions())
    report.devices = {
        "cpu": {"name": machine.cpu_name(), "cores": len(os.sched_getaffinity(0))},
        "nvidia": machine.nvidia(),
        "ascend": machine.ascend(),
    }
    check_plugin(report)
    if not check_build(report):
        return report
    for usable in usable_devices(report):
        report.serving += serving_kernels(report, usable)
        if selftest and device in ("auto", usable):
            check_operators(report, usable)
    if device not in ("auto", *usable_devices(report)):
        report.add(f"{device} was to be tested, but this build or this machine cannot use it", "see above", fatal=True)
    return report


def check_build(report: Report) -> bool:
    """Whether torch and the compiled module can be loaded."""
    if report.versions["torch"] is None:
        report.add("torch is not installed", "pip install torch", fatal=True)
        return False
    try:
        extension = importlib.import_module("sglang_gdn._C")
    except ImportError as error:
        report.add(
            f"the compiled module cannot be loaded: {error}",
            "pip install --force-reinstall --no-deps sglang-gdn (started outside a source checkout)",
            fatal=True,
        )
        return False
    report.versions["torch_cuda"] = machine.torch_cuda_runtime()
    report.build = extension.build_info() | {"kernels": extension.kernels()}
    report.devices["cpu"] |= {"isa": extension.cpu_isa(), "threads": extension.get_num_threads()}
    check_accelerators(report)
    return True


def check_accelerators(report: Report) -> None:
    nvidia, ascend = report.devices["nvidia"], report.devices["ascend"]
    rebuild = "pip install --no-deps --no-binary sglang-gdn -Ccmake.define.SGLANG_GDN_{}=ON sglang-gdn"
    if not nvidia["gpus"]:
        report.add("no NVIDIA GPU or driver", "none needed to serve on the CPU; else install the NVIDIA driver")
    elif not any(gpu["compute_capability"] == SM90 for gpu in nvidia["gpus"]):
        names = ", ".join(f"{gpu['name']} ({gpu['compute_capability']})" for gpu in nvidia["gpus"])
        report.add(f"no GPU of compute capability {SM90}; found {names}", "use a Hopper GPU (H100, H200, H20)")
    elif not report.build["cuda"]:
        report.add(
            "this build has no CUDA kernels",
            f"with nvcc on PATH: {rebuild.format('CUDA')}",
        )
    if not ascend["npus"]:
        report.add("no Ascend NPU", "none needed to serve on the CPU; else install the Ascend driver")
        return
    if ascend["cann"] is None:
        report.add("an NPU, but no CANN", "install the CANN toolkit and source its set_env.sh")
    if report.versions["torch_npu"] is None:
        report.add("an NPU, but no torch_npu", "pip install torch_npu, of the version of torch")
    if not report.build["ascend"]:
        report.add(
            "this build has no Ascend kernels",
            "with CANN's set_env.sh sourced, and tilelang-ascend==0.1.4, scikit-build-core and nanobind installed: "
            f"{rebuild.format('ASCEND')} --no-build-isolation",
        )


def check_plugin(report: Report) -> None:
    """Whether the installed SGLang will find and accept the plugin. Imports nothing of SGLang."""
    installed = report.versions["sglang"]
    found = [entry for entry in metadata.entry_points(group=PLUGIN_GROUP) if entry.name == PLUGIN_NAME]
    allowed = os.environ.get("SGLANG_PLUGINS")
    report.plugin = {
        "entry_point": found[0].value if found else None,
        "allowed": allowed is None or PLUGIN_NAME in [name.strip() for name in allowed.split(",")],
        "sglang_tested": None,
    }
    if not found:
        report.add(
            f"no entry point {PLUGIN_NAME} in group {PLUGIN_GROUP}",
            "pip install --force-reinstall --no-deps sglang-gdn",
            fatal=True,
        )
    if installed is None:
        report.add("SGLang is not installed: the operators work, serving does not", f"pip install {SGLANG_REQUIREMENT}")
        return
    if not report.plugin["allowed"]:
        report.add(
            f"SGLANG_PLUGINS={allowed} keeps SGLang from loading {PLUGIN_NAME}",
            f"unset SGLANG_PLUGINS, or add {PLUGIN_NAME} to it",
            fatal=True,
        )
    _, refusal = compat.select()
    report.plugin["sglang_tested"] = refusal is None
    if refusal is not None:
        report.add(refusal, f"pip install {SGLANG_REQUIREMENT}", fatal=True)


def usable_devices(report: Report) -> list[str]:
    """Devices that are attached and that this build has kernels for."""
    devices = ["cpu"]
    gpus = report.devices["nvidia"]["gpus"]
    if report.build["cuda"] and any(gpu["compute_capability"] == SM90 for gpu in gpus):
        devices.append("cuda")
    if report.build["ascend"] and report.devices["ascend"]["npus"] and report.versions["torch_npu"]:
        devices.append("npu")
    return devices


def serving_kernels(report: Report, device: str) -> list[dict[str, Any]]:
    """For each phase and head pair: the kernel, or the kernels of the composition, or why there is none."""
    from sglang_gdn.capability import PHASES, explain_phase

    rows: list[dict[str, Any]] = []
    unserved: dict[tuple[str, str], list[str]] = {}
    for phase in PHASES:
        drafts = {"draft_tokens": DRAFT_TOKENS} if phase == "verify" else {}
        for key_heads, value_heads in HEAD_PAIRS:
            answer = explain_phase(phase, device=device, ratio=value_heads // key_heads, **LAYER, **drafts)
            rows.append(
                {
                    "device": device,
                    "phase": phase,
                    "k_heads": key_heads,
                    "v_heads": value_heads,
                    "kernels": answer.kernels,
                    "fused": answer.fused,
                    "reason": answer.reason,
                }
            )
            if not answer.kernels:
                unserved.setdefault((phase, answer.reason), []).append(f"{key_heads}/{value_heads}")
    for (phase, reason), pairs in unserved.items():
        report.add(
            f"no {phase} kernel on {device} for heads {', '.join(pairs)}:{reason}",
            "serve with --device cpu, or with SGLang's own attention backends",
            fatal=True,
        )
    return rows


def check_operators(report: Report, device: str) -> None:
    import torch

    from sglang_gdn.selftest import run_all

    acts = (torch.float32, torch.bfloat16) if device == "cpu" else (torch.bfloat16,)
    for outcome in run_all(device, acts):
        report.selftest.append(outcome.as_dict())
        if outcome.failure is not None:
            report.add(
                f"self-test of {outcome.op} on {device} in {outcome.act}: {outcome.failure}",
                "report it with the output of `python -m sglang_gdn check --json`",
                fatal=True,
            )


def render(report: Report) -> str:
    lines = [f"sglang-gdn {report.version}"]

    def section(title: str, rows: list[str]) -> None:
        if rows:
            lines.extend(["", title, *(f"  {row}" for row in rows)])

    section("versions", [f"{name:<14}{version or 'not installed'}" for name, version in report.versions.items()])
    section("devices", render_devices(report))
    section("serving (head size 128, bfloat16, float32 state)", render_serving(report))
    section("SGLang plugin", render_plugin(report))
    section(
        "self-test, relative error against float64",
        [
            f"{row['op']:<40}{row['device']:<6}{row['act']:<10}"
            + (f"{row['error']:.1e} (limit {row['limit']:.0e})" if row["error"] is not None else "")
            + ("" if row["built"] else "no kernel is built")
            + (f"{row['milliseconds']:8.2f} ms" if row["milliseconds"] is not None else "")
            + ("  FAILED" if row["failure"] else "")
            for row in report.selftest
        ],
    )
    section("missing here", [f"{p.what}\n    -> {p.fix}" for p in report.problems if not p.fatal])
    section("WRONG", [f"{p.what}\n    -> {p.fix}" for p in report.problems if p.fatal])
    lines += ["", "all is well" if report.passed else "not all is well"]
    return "\n".join(lines)


def render_devices(report: Report) -> list[str]:
    cpu, nvidia, ascend = (report.devices[name] for name in ("cpu", "nvidia", "ascend"))
    rows = [f"CPU           {cpu['name']}, {cpu['cores']} cores"]
    if "isa" in cpu:
        rows.append(f"              kernels use {cpu['isa']} and {cpu['threads']} threads")
    rows += [f"GPU           {gpu['name']}, compute capability {gpu['compute_capability']}" for gpu in nvidia["gpus"]]
    rows.append(f"NVIDIA driver {nvidia['driver'] or 'not found'}, runs CUDA up to {nvidia['cuda'] or '-'}")
    rows.append(f"Ascend        {ascend['npus']} NPUs, CANN {ascend['cann'] or 'not found'}")
    if report.build:
        built = [name for name in ("cuda", "ascend") if report.build[name]]
        rows.append(f"this build    {', '.join(['cpu', *built])}; {len(report.build['kernels'])} kernels")
    return rows


def render_serving(report: Report) -> list[str]:
    """One line per device and phase, split only where head pairs are served differently."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in report.serving:
        kernels = " + ".join(row["kernels"]) or f"NOTHING: {row['reason']}"
        groups.setdefault((row["device"], row["phase"], kernels), []).append(f"{row['k_heads']}/{row['v_heads']}")
    return [
        f"{device:<6}{phase:<9}{kernels}\n{'':17}heads {' '.join(pairs)}"
        for (device, phase, kernels), pairs in groups.items()
    ]


def render_plugin(report: Report) -> list[str]:
    tested = {True: "tested", False: "NOT tested", None: "-"}[report.plugin["sglang_tested"]]
    return [
        f"entry point   {report.plugin['entry_point'] or 'NOT FOUND'}",
        f"SGLang        {report.versions['sglang'] or 'not installed'}, {tested}",
    ]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m sglang_gdn check", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda", "npu"], default="auto", help="what to test")
    parser.add_argument("--no-selftest", action="store_true", help="run no kernel")
    options = parser.parse_args(argv)
    report = collect(options.device, not options.no_selftest)
    print(report.as_json() if options.json else render(report))
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
