"""Finds the exercises: each is imported only when it is asked for."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

from ddt_notebook.model.errors import DdtError
from ddt_notebook.spelling import similar_names

from .exercise import Exercise, InvalidExercise


class UnknownExercise(DdtError, LookupError):
    """A name that no exercise has; the text names those that are near."""


@functools.cache
def exercise_names() -> tuple[str, ...]:
    """Names of all exercises, easy ones first."""
    folder = Path(__file__).parent / "exercises"
    found = [_load(path.stem.replace("_", "-")) for path in sorted(folder.glob("[!_]*.py"))]
    return tuple(e.name for e in sorted(found, key=lambda e: (e.level, e.minutes, e.name)))


def exercise(name: str) -> Exercise:
    """One exercise.

    Raises
    ------
    UnknownExercise
        If there is none of that name.
    """
    known = exercise_names()
    if name not in known:
        near = similar_names(name, known, most=3)
        there = f"did you mean {', '.join(near)}?" if near else "%ddt_exercise lists them"
        raise UnknownExercise(f"there is no exercise {name!r}: {there}")
    return _load(name)


@functools.cache
def _load(name: str) -> Exercise:
    module = f"{__package__}.exercises.{name.replace('-', '_')}"
    found = getattr(importlib.import_module(module), "EXERCISE", None)
    if not isinstance(found, Exercise) or found.name != name:
        raise InvalidExercise(f"exercise {name!r}: its module defines no EXERCISE of that name")
    return found
