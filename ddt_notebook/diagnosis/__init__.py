"""Finds what went wrong in a run: pure functions that take a snapshot."""

from .report import diagnose

__all__ = ["diagnose"]
