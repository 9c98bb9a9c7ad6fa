"""An exercise: a training cell with hidden faults, and the behaviours that it must have."""

from __future__ import annotations

import functools
import importlib
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from ddt_notebook.faults import card, card_ids
from ddt_notebook.model.errors import DdtError
from ddt_notebook.spelling import similar_names

from .behaviours import Behaviour
from .exercise_data import Setting

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
#: The number of hints of each exercise.
HINTS = 3
_LEVELS = {1: "warm-up", 2: "medium", 3: "hard"}


class InvalidExercise(DdtError, ValueError):
    """An exercise is not complete; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A training cell with hidden faults, and the behaviours of the repaired cell.

    Attributes
    ----------
    name
        Such as ``"own-clock"``.
    title
        What the cell should do, lower case, no full stop; it does not reveal the fault.
    level
        1: warm-up, 2: medium, 3: hard.
    minutes
        About how long it takes.
    story
        What somebody observed, and which variables the cell must leave.
    faults
        Ids of the fault cards that are hidden in it, for the teacher.
    start, solution
        The cell that the student gets, and one with every behaviour.
    hints
        Three; each says more than the one before.
    behaviours
        What must hold; the student reads the first that fails first.
    setting
        How its data are drawn.
    n
        Number of ranks of the student's session.
    graded_n
        Number of ranks of the grader's session.
    leaves
        The variables that the grader reads.
    file
        Name of the file that the cell writes to ``exercise.folder``.
    lesson
        The lesson on its fault; default: that of the first symptom of the first fault.
    """

    name: str
    title: str
    level: int
    minutes: int
    story: str
    faults: tuple[str, ...]
    start: str
    solution: str
    hints: tuple[str, str, str]
    behaviours: tuple[Behaviour, ...]
    setting: Setting = field(default_factory=Setting)
    n: int = 2
    graded_n: int = 3
    leaves: tuple[str, ...] = ("model",)
    file: str = ""
    lesson: str = ""

    def __post_init__(self) -> None:
        for cell in ("start", "solution"):
            object.__setattr__(self, cell, textwrap.dedent(getattr(self, cell)).strip("\n"))
        object.__setattr__(self, "story", " ".join(self.story.split()))
        object.__setattr__(self, "hints", tuple(" ".join(hint.split()) for hint in self.hints))
        problems = self._problems()
        if not problems and not self.lesson:
            object.__setattr__(self, "lesson", card(self.faults[0]).symptoms[0])
        if problems:
            raise InvalidExercise(f"exercise {self.name!r}: {'; '.join(problems)}")

    @property
    def level_name(self) -> str:
        """The level in words."""
        return _LEVELS[self.level]

    def cell(self, source: str = "") -> str:
        """A cell of this exercise that can run; default: the start."""
        return f"%%ddt\n# exercise: {self.name}\n{source or self.start}\n".rstrip()

    def _problems(self) -> list[str]:
        found = []
        if not _NAME.fullmatch(self.name):
            found.append("the name has to be lower-case words with hyphens")
        if not self.title or self.title.endswith("."):
            found.append("the title has to be one line without full stop")
        if self.level not in _LEVELS:
            found.append("the level has to be 1, 2 or 3")
        if not 1 <= self.minutes <= 60:
            found.append("it has to take 1 to 60 minutes")
        if len(self.story) < 80:
            found.append("the story is too short")
        if not 1 <= len(self.faults) <= 3:
            found.append("it needs one to three faults")
        found += [
            f"there is no fault card {name!r}" for name in self.faults if name not in card_ids()
        ]
        if not self.start or not self.solution or self.start == self.solution:
            found.append("it needs a start and another cell that solves it")
        if len(self.hints) != HINTS or not all(self.hints) or len(set(self.hints)) != HINTS:
            found.append("it needs three hints")
        keys = [behaviour.key for behaviour in self.behaviours]
        if len(keys) < 3 or len(set(keys)) != len(keys) or keys[0] != "ends":
            found.append("it needs three or more behaviours, each once, beginning with ENDS")
        if not (2 <= self.n <= 4 and 2 <= self.graded_n <= 4):
            found.append("it needs 2 to 4 ranks")
        return found


class UnknownExercise(DdtError, LookupError):
    """No exercise has this name; the message suggests similar names."""


@functools.cache
def exercise_names() -> tuple[str, ...]:
    """The names of all exercises, easy ones first."""
    folder = Path(__file__).parent / "exercises"
    found = [_load(path.stem.replace("_", "-")) for path in sorted(folder.glob("[!_]*.py"))]
    return tuple(e.name for e in sorted(found, key=lambda e: (e.level, e.minutes, e.name)))


def exercise(name: str) -> Exercise:
    """The exercise with this name.

    Raises
    ------
    UnknownExercise
        If there is none.
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
