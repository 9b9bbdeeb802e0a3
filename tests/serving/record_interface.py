"""Writes the names and parameters of the private SGLang symbols that the adapter of the installed SGLang touches.

    python -P tests/serving/record_interface.py tests/serving/interfaces

CI installs one SGLang line. For the others, ``test_seams`` compares the adapters with what this script found where that
line was installed; a server compares them with the real SGLang whenever it starts.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

from sglang_gdn import cpu_engine


def main(folder: Path) -> None:
    cpu_engine.enable()
    from sglang_gdn.serving import compat

    line, refusal = compat.select()
    assert refusal is None, refusal
    record = {"sglang": version("sglang"), "symbols": {seam.path: seam.found_parameters() for seam in line.seams}}
    path = folder / f"sglang-{record['sglang']}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{path}: {len(record['symbols'])} symbols")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
