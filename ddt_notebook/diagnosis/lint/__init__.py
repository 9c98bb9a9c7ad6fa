"""Finds faults in the source of a program without running it: the rules and their findings."""

from __future__ import annotations

from .linter import lint

__all__ = ["lint"]
