"""How far a student has come, and the list of exercises that shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ddt_notebook.views import html, words
from ddt_notebook.views.bundle import Displayable
from ddt_notebook.views.table import columns
from ddt_notebook.views.text import wrap

from .exercise import Exercise
from .grade import Grade
from .loader import exercise, exercise_names

_HEAD = ("exercise", "level", "minutes", "state", "the cell is to …")


@dataclass
class Progress:
    """One exercise of one student.

    Attributes
    ----------
    begun
        Whether the cell was laid.
    hints
        How many hints were seen.
    checks
        How often the cell was graded.
    best
        Most behaviours that held, of how many.
    passed
        Whether all held once.
    """

    begun: bool = False
    hints: int = 0
    checks: int = 0
    best: tuple[int, int] = (0, 0)
    passed: bool = False

    def note(self, grade: Grade) -> None:
        """Remember a grading."""
        self.checks += 1
        self.passed = self.passed or grade.passed
        self.best = max(self.best, (grade.held, len(grade.verdicts)))

    @property
    def state(self) -> str:
        """In words."""
        if not (self.begun or self.checks or self.hints):
            return "new"
        told = "passed" if self.passed else "begun"
        if self.checks and not self.passed:
            told = f"{self.best[0]} of {self.best[1]}"
        return f"{told}, {words.count(self.hints, 'hint')}" if self.hints else told


@dataclass
class Desk:
    """A student's place: who it is, what is worked on, and how far it has come.

    Attributes
    ----------
    student
        Name or id; the data depend on it.
    current
        The exercise that was begun last; empty if none was.
    progress
        By exercise.
    """

    student: str
    current: str = ""
    progress: dict[str, Progress] = field(default_factory=dict)

    def of(self, name: str) -> Progress:
        """How far one exercise has come."""
        return self.progress.setdefault(name, Progress())


class Catalogue(Displayable):
    """All exercises, with level and state.

    Parameters
    ----------
    desk
        Whose state.
    """

    __slots__ = ("_desk",)

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def to_json(self) -> list[dict[str, Any]]:
        """Plain data, one entry for each exercise."""
        return [
            {
                "name": one.name,
                "level": one.level,
                "minutes": one.minutes,
                "state": self._desk.of(one.name).state,
                "title": one.title,
            }
            for one in map(exercise, exercise_names())
        ]

    def to_text(self) -> str:
        """A line for each exercise."""
        return "\n".join([self._title(), *columns(self._rows(), _HEAD), *wrap("", _NEXT)])

    def to_html(self) -> str:
        """A table."""
        rows = [(html.tag("b", name), *rest) for name, *rest in self._rows()]
        return html.view(
            html.line(html.tag("b", self._title())),
            html.table(rows, _HEAD),
            html.line(_NEXT),
        )

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                one.name,
                str(one.level),
                str(one.minutes),
                self._desk.of(one.name).state,
                one.title,
            )
            for one in map(exercise, exercise_names())
        ]

    def _title(self) -> str:
        names = exercise_names()
        done = sum(self._desk.of(name).passed for name in names)
        return f"{words.count(len(names), 'exercise')} for {self._desk.student}, {done} passed"


_NEXT = (
    "level 1: warm-up, 2: medium, 3: hard; %ddt_exercise NAME lays the cell of an exercise below"
)


class Sheet(Displayable):
    """An exercise as it is given to a student.

    Parameters
    ----------
    exercise
        The exercise.
    notes
        What is to be known about the session.
    """

    __slots__ = ("_exercise", "_notes")

    def __init__(self, exercise: Exercise, notes: str) -> None:
        self._exercise = exercise
        self._notes = notes

    def to_text(self) -> str:
        """Title, story, and what must hold."""
        lines = [self._title(), *wrap("", self._exercise.story), "", "what must hold:"]
        for behaviour in self._exercise.behaviours:
            first, *rest = wrap("", behaviour.title)
            lines += [f"· {first.strip()}", *rest]
        return "\n".join([*lines, "", *wrap("", self._notes), *wrap("", _TOOLS)])

    def to_html(self) -> str:
        """Title, story, and what must hold."""
        titles = (behaviour.title for behaviour in self._exercise.behaviours)
        held = html.tag("ul", *(html.tag("li", html.prose(title)) for title in titles))
        return html.view(
            html.line(html.tag("b", self._title())),
            html.line(html.prose(self._exercise.story)),
            html.line("What must hold:"),
            held,
            html.line(html.prose(self._notes)),
            html.line(html.prose(_TOOLS)),
        )

    def _title(self) -> str:
        one = self._exercise
        return f"{one.name}: {one.title} ({one.level_name}, about {one.minutes} minutes)"


_TOOLS = (
    "Run the cell, find out what is wrong with it, and repair it in place. `%ddt_hint` gives a "
    "hint, `%ddt_check` runs your last version on fresh ranks with other data and says what still "
    "fails."
)
