"""Writes the names that ``sglang_gdn.integrations.vllm`` relies on, as a wheel of vLLM has them.

    python -P tests/integrations/record_vllm_interface.py vllm-0.33.0-*.whl tests/integrations/vllm-0.33.0.json

The sources are parsed, not imported: neither vLLM's compiled parts nor a GPU are needed. ``test_vllm`` makes modules
with these names.
"""  # fmt: skip

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from sglang_gdn.integrations import vllm

LAYER_CLASSES = (
    "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn:QwenGatedDeltaNetAttention",
    "vllm.model_executor.layers.mamba.gdn.base:GatedDeltaNetAttention",
    "vllm.model_executor.layers.mamba.abstract:MambaBase",
)


class Sources:
    def __init__(self, wheel: Path) -> None:
        self.archive = zipfile.ZipFile(wheel)

    def find(self, path: str) -> ast.AST:
        """The definition, assignment or annotation of ``module:Class.attribute``.

        Raises:
            LookupError: there is none.
        """
        module, _, attributes = path.partition(":")
        stem = module.replace(".", "/")
        (file,) = {f"{stem}.py", f"{stem}/__init__.py"} & set(self.archive.namelist())
        node: ast.AST = ast.parse(self.archive.read(file))
        for attribute in attributes.split("."):
            found = [child for child in ast.walk(node) if attribute in names_of(child)]
            if not found:
                raise LookupError(f"{path}: {attribute} is missing")
            node = found[0]
        return node

    def version(self) -> str:
        (folder,) = {name.split("/")[0] for name in self.archive.namelist() if name.endswith(".dist-info/METADATA")}
        return folder.removesuffix(".dist-info").split("-")[1]


def names_of(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
    return []


def parameters(node: ast.AST) -> list[str] | None:
    if not isinstance(node, ast.FunctionDef):
        return None
    return [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def attributes_of_instances(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) and ast.unparse(child.value) == "self":
            yield child.attr
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            yield child.target.id


def main(wheel: Path, output: Path) -> None:
    sources = Sources(wheel)
    null_block = sources.find("vllm.v1.attention.backends.utils:NULL_BLOCK_ID")
    assert isinstance(null_block, ast.Assign)
    record = {
        "vllm": sources.version(),
        "symbols": {seam.path: parameters(sources.find(seam.path)) for seam in vllm.SEAMS},
        "layer_attributes": sorted(
            {name for path in LAYER_CLASSES for name in attributes_of_instances(sources.find(path))}
        ),
        "null_block_id": ast.literal_eval(null_block.value),
    }
    output.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{output}: {len(record['symbols'])} symbols")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
