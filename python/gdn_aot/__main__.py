"""``python -m gdn_aot``: lowers TileLang kernels to the Ascend C under ``csrc/ascend/generated``.

Run at the repository's root with ``PYTHONPATH=python``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gdn_aot.compile import CompileError, build_device_library, check_kernels, compile_kernels
from gdn_aot.generator.run import GeneratorError, set_up
from gdn_aot.lowering import PLATFORMS
from gdn_aot.source import SourceError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gdn_aot", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("setup-generator", help="install the generator into build/ascend/generator")
    lower = commands.add_parser("compile-kernels", help="lower kernels and write sources, registry and manifest")
    lower.add_argument("--target", choices=["ascend"], required=True)
    lower.add_argument("--device", choices=sorted(PLATFORMS), required=True)
    lower.add_argument("--kernels", nargs="+", metavar="NAME", help="default: all")
    lower.add_argument("--check", action="store_true", help="write nothing; fail if a committed file differs")
    lower.add_argument("--output", type=Path, default=Path("csrc/ascend/generated"))
    lower.add_argument("--cache", type=Path, default=Path("build/ascend/lowered"))
    options = parser.parse_args()
    try:
        if options.command == "setup-generator":
            set_up()
        else:
            act = check_kernels if options.check else compile_kernels
            act(options.kernels, options.device, options.output, options.cache)
            if not options.check and (library := build_device_library(Path("build/ascend/device"))):
                print(library)
    except (CompileError, GeneratorError, SourceError) as error:
        print(f"gdn_aot: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
