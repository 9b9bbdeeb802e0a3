"""``python -m sglang_gdn {check,bench,eval,serve}``."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "check": ("sglang_gdn.check", "what this machine will run and why; a self-test of every operator"),
    "bench": ("sglang_gdn.bench", "measure the operators beside other implementations"),
    "eval": ("sglang_gdn.evaluate", "compare a model on our operators with the same model in transformers"),
    "serve": ("sglang_gdn.cpu_engine.serve", "start SGLang with --attention-backend gdn_tile"),
}


def usage() -> str:
    lines = [f"  {name:<8}{purpose}" for name, (_, purpose) in COMMANDS.items()]
    return "\n".join(["usage: python -m sglang_gdn COMMAND [ARGUMENTS]", "", *lines, "", "COMMAND --help says more."])


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] not in COMMANDS:
        print(f"unknown command {argv[0]!r}\n{usage()}", file=sys.stderr)
        return 2
    module, _ = COMMANDS[argv[0]]
    return importlib.import_module(module).main(argv[1:]) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
