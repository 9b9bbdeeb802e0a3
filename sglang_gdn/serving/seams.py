"""The private parts of SGLang that an adapter touches, as data, and the check that they are what was tested."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seam:
    """One private symbol.

    Attributes:
        path: ``"package.module:Class.attribute"``.
        parameters: names of its parameters in order, or None when only existence matters.
        purpose: what it is used for.
    """

    path: str
    parameters: tuple[str, ...] | None
    purpose: str

    def problem(self) -> str | None:
        """What is wrong with this symbol in the installed SGLang, or None."""
        module_name, _, attributes = self.path.partition(":")
        found: Any
        try:
            found = importlib.import_module(module_name)
        except ImportError as error:
            return f"{self.path} ({self.purpose}): its module cannot be imported ({error})"
        for attribute in attributes.split("."):
            if not hasattr(found, attribute) and not _is_field(found, attribute):
                return f"{self.path} ({self.purpose}): {attribute!r} is missing"
            found = getattr(found, attribute, None)
        if self.parameters is None:
            return None
        parameters = tuple(inspect.signature(found).parameters)
        if parameters != self.parameters:
            return (
                f"{self.path} ({self.purpose}): parameters must be ({', '.join(self.parameters)}); "
                f"got ({', '.join(parameters)})"
            )
        return None


def _is_field(owner: object, name: str) -> bool:
    """Fields without a default are annotations only."""
    return isinstance(owner, type) and any(name in vars(base).get("__annotations__", {}) for base in owner.__mro__)


def problems(seams: Iterable[Seam]) -> list[str]:
    return [problem for seam in seams if (problem := seam.problem()) is not None]
