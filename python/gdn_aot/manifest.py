"""What was generated, from what, with what: ``csrc/ascend/generated/manifest.json``. Paths in it are relative.

One text serves every device of ``PLATFORMS``: `compile-kernels --check` fails on a device whose lowering differs.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from gdn_aot.lowering import PLATFORMS
from gdn_aot.registry import Kernel, spec_fields, variant_name
from gdn_aot.source import Signature

SCHEMA = 1
PACKAGE = Path(__file__).parent
REQUIREMENTS = PACKAGE / "generator" / "requirements.txt"
# What the lowered text depends on, besides the kernel's own file and the helpers that it imports.
COMMON_INPUTS = [*(PACKAGE / name for name in ("tile.py", "lowering.py", "generator/boot.py")), REQUIREMENTS]
HELPERS = ("chunk", "gates")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def kernel_file(kernel: type[Kernel]) -> Path:
    return PACKAGE.parent.joinpath(*kernel.__module__.split(".")).with_suffix(".py")


def helper_files(kernel: type[Kernel]) -> list[Path]:
    text = kernel_file(kernel).read_text()
    return [
        PACKAGE / f"{helper}.py"
        for helper in HELPERS
        if re.search(rf"^ *from gdn_aot(\.{helper} import|\s+import .*\b{helper}\b)", text, re.MULTILINE)
    ]


def inputs_hash(kernel: type[Kernel], spec: Any) -> str:
    """Of everything that decides the lowered text: kernel, helpers, generator and its packages, specialization."""
    files = [sha256(path.read_bytes()) for path in [kernel_file(kernel), *helper_files(kernel), *COMMON_INPUTS]]
    return sha256(json.dumps([files, spec_fields(spec)], sort_keys=True).encode())


def tool_versions() -> dict[str, str]:
    requirements = (line.split()[0] for line in REQUIREMENTS.read_text().splitlines() if "==" in line)
    return dict(requirement.split("==") for requirement in requirements)


def kernel_entry(kernel: type[Kernel], signature: Signature, sources: dict[str, str]) -> dict[str, Any]:
    """``sources``: committed text by variant."""
    return {
        "source": str(kernel_file(kernel).relative_to(PACKAGE.parent)),
        "scalars": [{"name": scalar.name, "type": scalar.type} for scalar in signature.scalars],
        "variants": {
            variant_name(kernel, spec): {
                "specialization": spec_fields(spec),
                "inputs": inputs_hash(kernel, spec),
                "file": f"{variant_name(kernel, spec)}.cpp",
                "sha256": sha256(sources[variant_name(kernel, spec)].encode()),
                "tensors": [
                    {"name": t.name, "dtype": t.dtype, "role": t.role, "shape": t.shape} for t in kernel.tensors(spec)
                ],
            }
            for spec in kernel.SPECIALIZATIONS
        },
    }


def render(kernels: dict[str, Any]) -> str:
    content = {
        "schema": SCHEMA,
        "devices": sorted(PLATFORMS),
        "tools": tool_versions(),
        "kernels": dict(sorted(kernels.items())),
    }
    return json.dumps(content, indent=1) + "\n"


def read(folder: Path) -> dict[str, Any]:
    """The kernels of a committed manifest, empty if there is none.

    Raises:
        ValueError: the manifest has another schema.
    """
    path = folder / "manifest.json"
    if not path.exists():
        return {}
    content = json.loads(path.read_text())
    if content["schema"] != SCHEMA:
        raise ValueError(f"{path.name}: schema must be {SCHEMA}; got {content['schema']}")
    return content["kernels"]
