"""Faults that the source of a program shows without running it: the rules and their findings."""

from __future__ import annotations

from .linter import lint

__all__ = ["lint"]
