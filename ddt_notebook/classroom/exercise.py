"""What an exercise holds, and what makes one complete."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field

from ddt_notebook.model.errors import DdtError

from .behaviour import Behaviour
from .task import Setting

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_HINTS = 3
_LEVELS = {1: "warm-up", 2: "medium", 3: "hard"}


class InvalidExercise(DdtError, ValueError):
    """An exercise that lacks something; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A training cell with hidden faults, and what it must do when it is repaired.

    Attributes
    ----------
    name
        Such as ``"own-clock"``.
    title
        What the cell is to do, lower case, no full stop; it does not tell the fault.
    level
        1: warm-up, 2: medium, 3: hard.
    minutes
        How long it takes about.
    story
        What somebody saw, and what the cell is to leave behind.
    faults
        Ids of the fault cards that are hidden in it; for the teacher.
    start, solution
        The cell as the student gets it, and one that holds every behaviour.
    hints
        Three, each tells more than the one before.
    behaviours
        What must hold; the first that fails is what the student reads first.
    setting
        The data.
    n
        Ranks of the student's session.
    graded_n
        Ranks of the grader's.
    leaves
        The variables that the grader looks at.
    file
        Name of the file that the cell writes into ``exercise.folder``.
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

    def __post_init__(self) -> None:
        for cell in ("start", "solution"):
            object.__setattr__(self, cell, textwrap.dedent(getattr(self, cell)).strip("\n"))
        object.__setattr__(self, "story", " ".join(self.story.split()))
        object.__setattr__(self, "hints", tuple(" ".join(hint.split()) for hint in self.hints))
        problems = self._problems()
        if problems:
            raise InvalidExercise(f"exercise {self.name!r}: {'; '.join(problems)}")

    @property
    def level_name(self) -> str:
        """The level in words."""
        return _LEVELS[self.level]

    def cell(self, source: str = "") -> str:
        """A cell of this exercise, ready to run; default: the start."""
        return f"%%ddt\n# exercise: {self.name}\n{source or self.start}\n".rstrip()

    def _problems(self) -> list[str]:
        from ddt_notebook.faults import card_ids

        found = []
        if not _NAME.fullmatch(self.name):
            found.append("the name is lower-case words with hyphens")
        if not self.title or self.title.endswith("."):
            found.append("the title is one line without full stop")
        if self.level not in _LEVELS:
            found.append("the level is 1, 2 or 3")
        if not 1 <= self.minutes <= 60:
            found.append("it takes 1 to 60 minutes")
        if len(self.story) < 80:
            found.append("the story tells nothing")
        if not 1 <= len(self.faults) <= 3:
            found.append("one to three faults are hidden in it")
        found += [f"no fault card {name!r}" for name in self.faults if name not in card_ids()]
        if not self.start or not self.solution or self.start == self.solution:
            found.append("it needs a start and another cell that solves it")
        if len(self.hints) != _HINTS or not all(self.hints) or len(set(self.hints)) != _HINTS:
            found.append("it needs three hints")
        keys = [behaviour.key for behaviour in self.behaviours]
        if len(keys) < 3 or len(set(keys)) != len(keys) or keys[0] != "ends":
            found.append("it needs three or more behaviours, each once, the first that it ends")
        if not (2 <= self.n <= 4 and 2 <= self.graded_n <= 4):
            found.append("it needs 2 to 4 ranks")
        return found
