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

    def found_parameters(self) -> list[str] | None:
        """Parameters of this symbol in the installed SGLang, or None if it cannot be called.

        Raises:
            LookupError: there is no such symbol; the message says which part is missing.
        """
        module_name, _, attributes = self.path.partition(":")
        found: Any
        try:
            found = importlib.import_module(module_name)
        except ImportError as error:
            raise LookupError(f"its module cannot be imported ({error})") from error
        for attribute in attributes.split("."):
            if not hasattr(found, attribute) and not _is_field(found, attribute):
                raise LookupError(f"{attribute!r} is missing")
            found = getattr(found, attribute, None)
        return list(inspect.signature(found).parameters) if callable(found) else None

    def problem(self) -> str | None:
        """What is wrong with this symbol in the installed SGLang, or None."""
        try:
            return self.mismatch(self.found_parameters())
        except LookupError as error:
            return f"{self.path} ({self.purpose}): {error}"

    def mismatch(self, found: Iterable[str] | None) -> str | None:
        """How the parameters ``found`` differ from those that the adapter was written for, or None."""
        if self.parameters is None or tuple(found or ()) == self.parameters:
            return None
        return (
            f"{self.path} ({self.purpose}): parameters must be ({', '.join(self.parameters)}); "
            f"got ({', '.join(found or ())})"
        )


def _is_field(owner: object, name: str) -> bool:
    """Fields without a default are annotations only."""
    return isinstance(owner, type) and any(name in vars(base).get("__annotations__", {}) for base in owner.__mro__)


def problems(seams: Iterable[Seam]) -> list[str]:
    return [problem for seam in seams if (problem := seam.problem()) is not None]
