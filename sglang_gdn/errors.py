"""Exceptions of the package. Every one is also a builtin, so callers need not import this module to catch it."""

from __future__ import annotations


class GdnArgumentError(Exception):
    """Bad input, found before any launch; no state was touched.

    Attributes:
        op: operator that was called, e.g. ``"gdn_decode"``.
        argument: name of the offending argument.
    """

    def __init__(self, message: str, op: str, argument: str) -> None:
        super().__init__(message)
        self.op = op
        self.argument = argument


class GdnValueError(GdnArgumentError, ValueError):
    """A shape, stride, device or value is wrong."""


class GdnTypeError(GdnArgumentError, TypeError):
    """A dtype is wrong, or something that must be a tensor is not."""


class GdnUnsupportedError(GdnArgumentError, NotImplementedError):
    """A valid request that this operator does not implement (an option, autograd)."""


class GdnNoKernelError(GdnUnsupportedError):
    """A valid request for which no kernel is built; the message lists the built kernels and why each does not serve."""


class GdnFallbackError(RuntimeError):
    """``SGLANG_GDN_STRICT=1`` is set and a slower path would have been taken."""
