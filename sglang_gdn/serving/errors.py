"""Why a server with ``gdn_tile`` does not start."""

from __future__ import annotations


class GdnServingError(RuntimeError):
    """``gdn_tile`` was asked for and cannot serve; raised before the server accepts requests."""
