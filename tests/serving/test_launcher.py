"""``python -m sglang_gdn serve`` adds what is needed and passes the rest on."""

from __future__ import annotations

import os

import pytest

from sglang_gdn import cpu_engine
from sglang_gdn.cpu_engine.serve import CPU_DEFAULTS, launch_command, main


def test_gpu_only_adds_the_backend() -> None:
    arguments, environment = launch_command(["MODEL", "--port", "31000", "--unknown-to-us=1"])
    assert arguments == [
        "--model-path",
        "MODEL",
        "--attention-backend",
        "gdn_tile",
        "--port",
        "31000",
        "--unknown-to-us=1",
    ]
    assert environment == {}


def test_cpu_prepares_sglang() -> None:
    arguments, environment = launch_command(["--device", "cpu", "MODEL", "--port", "31000"])
    assert arguments[:4] == ["--model-path", "MODEL", "--device", "cpu"]
    assert arguments[-2:] == ["--port", "31000"]
    assert set(CPU_DEFAULTS) < set(arguments)
    assert environment["SGLANG_USE_CPU_ENGINE"] == environment[cpu_engine.REQUEST] == "1"
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == cpu_engine.STAND_IN_PATH


def test_environment_keeps_the_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["first", cpu_engine.STAND_IN_PATH, "second"]))
    assert cpu_engine.environment()["PYTHONPATH"].split(os.pathsep) == [cpu_engine.STAND_IN_PATH, "first", "second"]


@pytest.mark.parametrize("given", [["--max-total-tokens", "123"], ["--max-total-tokens=123"]])
def test_given_flags_win(given: list[str]) -> None:
    arguments, _ = launch_command(["MODEL", "--device=cpu", "--prefill-attention-backend", "gdn_tile", *given])
    assert CPU_DEFAULTS["--max-total-tokens"] not in arguments
    assert "--attention-backend" not in arguments
    assert arguments[-len(given) :] == given


def test_model_path_flag_instead_of_model() -> None:
    arguments, _ = launch_command(["--model-path", "MODEL"])
    assert arguments == ["--attention-backend", "gdn_tile", "--model-path", "MODEL"]


def test_model_is_required() -> None:
    with pytest.raises(SystemExit, match="MODEL must come first"):
        launch_command(["--port", "31000"])


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "serve [--device DEVICE] MODEL" in capsys.readouterr().out


def test_enable_comes_before_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sglang", object())
    with pytest.raises(RuntimeError, match="before sglang is imported"):
        cpu_engine.enable()
