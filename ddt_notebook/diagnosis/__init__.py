"""From what was seen to what is wrong: pure functions on a snapshot."""

from .report import diagnose

__all__ = ["diagnose"]
