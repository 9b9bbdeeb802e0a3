"""``python -m sglang_gdn serve``: SGLang's own server with ``gdn_tile``, on a GPU or on a CPU."""

from __future__ import annotations

import os
import sys

from sglang_gdn import cpu_engine

USAGE = """usage: python -m sglang_gdn serve [--device DEVICE] MODEL [SGLANG FLAGS]

Starts `python -m sglang.launch_server` with --attention-backend gdn_tile. Every flag of SGLang is passed on.
With --device cpu it also prepares SGLang for a machine without a GPU."""

# Flag -> value on a CPU, unless the flag is given. Without the first, SGLang allots tens of thousands of state slots.
CPU_DEFAULTS = {
    "--max-mamba-cache-size": "64",
    "--max-running-requests": "8",
    "--max-total-tokens": "65536",
    "--mem-fraction-static": "0.3",
}
# The second: an idle scheduler would otherwise spin on a core that the rest of the machine shares.
CPU_SWITCHES = ("--disable-cuda-graph", "--sleep-on-idle")
ATTENTION_FLAGS = ("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend")
MODEL_FLAGS = ("--model-path", "--model")


def main(argv: list[str]) -> None:
    """Replaces this process by SGLang's launcher.

    Args:
        argv: what follows ``serve`` on the command line.
    """
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        raise SystemExit(0 if argv else 2)
    arguments, environment = launch_command(argv)
    command = [sys.executable, "-m", "sglang.launch_server", *arguments]
    os.execve(sys.executable, command, {**os.environ, **environment})


def launch_command(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """The launcher's arguments and the variables to add to its environment."""
    device, rest = _take_device(argv)
    arguments: list[str] = []
    if rest and not rest[0].startswith("-"):
        arguments += ["--model-path", rest[0]]
        rest = rest[1:]
    elif not any(_is_given(flag, rest) for flag in MODEL_FLAGS):
        raise SystemExit(f"{USAGE}\n\nserve: MODEL must come first, or --model-path be given; got {rest or 'nothing'}")
    if device is not None:
        arguments += ["--device", device]
    if not any(_is_given(flag, rest) for flag in ATTENTION_FLAGS):
        arguments += ["--attention-backend", "gdn_tile"]
    if device != "cpu":
        return arguments + rest, {}
    for flag, value in CPU_DEFAULTS.items():
        if not _is_given(flag, rest):
            arguments += [flag, value]
    arguments += [switch for switch in CPU_SWITCHES if not _is_given(switch, rest)]
    return arguments + rest, cpu_engine.environment()


def _take_device(argv: list[str]) -> tuple[str | None, list[str]]:
    for i, argument in enumerate(argv):
        if argument == "--device" and i + 1 < len(argv):
            return argv[i + 1], argv[:i] + argv[i + 2 :]
        if argument.startswith("--device="):
            return argument.partition("=")[2], argv[:i] + argv[i + 1 :]
    return None, argv


def _is_given(flag: str, argv: list[str]) -> bool:
    return any(argument == flag or argument.startswith(f"{flag}=") for argument in argv)
