"""Finds what went wrong in a run: pure functions that take a snapshot."""

from .run_rules import diagnose

__all__ = ["diagnose"]
