"""What the code says without running it."""

from __future__ import annotations

from .check import lint

__all__ = ["lint"]
