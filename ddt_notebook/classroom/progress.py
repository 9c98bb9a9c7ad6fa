"""How far a student has come, the list of all exercises, and the page of one exercise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ddt_notebook.views import code_diff, html, words
from ddt_notebook.views.displayable import Displayable
from ddt_notebook.views.terminal import wrap

from .exercise import HINTS, Exercise, exercise, exercise_names
from .grade import Grade

_HEAD = ("exercise", "level", "minutes", "state", "the cell should …")
_NEXT = (
    "level 1: warm-up, 2: medium, 3: hard; %ddt_exercise NAME puts the cell of an exercise below"
)
_TOOLS = (
    "Run the cell, find out what is wrong with it, and repair it in place. `%ddt_hint` gives a "
    "hint. `%ddt_check` runs your last version on fresh ranks with other data, and shows what "
    "still fails."
)


@dataclass
class ExerciseProgress:
    """How far a student has come in one exercise.

    Attributes
    ----------
    begun
        Whether the student has the cell.
    hints
        The number of hints that the student has seen, and one more for the solution.
    checks
        How often the cell was graded.
    best
        The largest number of behaviours that held, and the number of all.
    passed
        Whether all held once.
    """

    begun: bool = False
    hints: int = 0
    checks: int = 0
    best: tuple[int, int] = (0, 0)
    passed: bool = False

    def record(self, grade: Grade) -> None:
        """Add a grade."""
        self.checks += 1
        self.passed = self.passed or grade.passed
        self.best = max(self.best, (grade.held, len(grade.verdicts)))

    @property
    def state(self) -> str:
        """In words."""
        if not (self.begun or self.checks or self.hints):
            return "new"
        if self.passed:
            state = "passed"
        else:
            state = f"{self.best[0]} of {self.best[1]}" if self.checks else "begun"
        if not self.hints:
            return state
        seen = min(self.hints, HINTS)
        return f"{state}, {words.count(seen, 'hint')}{', solution' * (self.hints > HINTS)}"


@dataclass
class StudentProgress:
    """How far a student has come in all exercises.

    Attributes
    ----------
    student
        Name or id; the data depend on it.
    current
        Name of the exercise that was begun last; empty if there is none.
    progress
        By exercise.
    """

    student: str
    current: str = ""
    progress: dict[str, ExerciseProgress] = field(default_factory=dict)

    def of(self, name: str) -> ExerciseProgress:
        """The progress in one exercise."""
        return self.progress.setdefault(name, ExerciseProgress())


class ExerciseList(Displayable):
    """All exercises with their levels, and how far the student has come.

    Parameters
    ----------
    progress
        Of the student.
    """

    __slots__ = ("_progress",)

    def __init__(self, progress: StudentProgress) -> None:
        self._progress = progress

    def to_json(self) -> list[dict[str, Any]]:
        """Plain data, one entry for each exercise."""
        return [
            {
                "name": one.name,
                "level": one.level,
                "minutes": one.minutes,
                "state": self._progress.of(one.name).state,
                "title": one.title,
            }
            for one in map(exercise, exercise_names())
        ]

    def to_text(self) -> str:
        """A line for each exercise, and another one for those that were begun."""
        lines = [self._title()]
        for name, level, minutes, state, title in self._rows():
            lines.append(f"  {name:<17}  {level}  {minutes:>2} min  {title}")
            lines += [f"{'':19}  {state}"] if state != "new" else []
        return "\n".join([*lines, *wrap("", _NEXT)])

    def to_html(self) -> str:
        """A table."""
        rows = [(html.tag("b", name), *rest) for name, *rest in self._rows()]
        return html.view(
            html.line(html.tag("b", self._title())),
            html.table(rows, _HEAD),
            html.line(_NEXT),
        )

    def _rows(self) -> list[tuple[str, ...]]:
        keys = ("name", "level", "minutes", "state", "title")
        return [tuple(str(row[key]) for key in keys) for row in self.to_json()]

    def _title(self) -> str:
        names = exercise_names()
        passed = sum(self._progress.of(name).passed for name in names)
        count = words.count(len(names), "exercise")
        return f"{count} for {self._progress.student}, {passed} passed"


class ExercisePage(Displayable):
    """An exercise: its story, and what must hold.

    Parameters
    ----------
    exercise
        The exercise.
    notes
        What the student should know about the session.
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
        return html.view(
            html.line(html.tag("b", self._title())),
            html.line(html.prose(self._exercise.story)),
            html.line("What must hold:"),
            html.tag("ul", *(html.tag("li", html.prose(title)) for title in titles)),
            html.line(html.prose(self._notes)),
            html.line(html.prose(_TOOLS)),
        )

    def _title(self) -> str:
        one = self._exercise
        return f"{one.name}: {one.title} ({one.level_name}, about {one.minutes} minutes)"


class HintView(Displayable):
    """One of the hints of an exercise.

    Parameters
    ----------
    exercise
        The exercise.
    number
        The number of the hint, from 1 on.
    """

    __slots__ = ("_exercise", "_number")

    def __init__(self, exercise: Exercise, number: int) -> None:
        self._exercise = exercise
        self._number = number

    def to_text(self) -> str:
        """The hint in lines of 80 columns."""
        return "\n".join(line for text in self._lines() for line in wrap("", text))

    def to_html(self) -> str:
        """The hint as a paragraph."""
        title, hint = self._lines()
        return html.view(html.line(html.tag("b", title)), html.line(html.prose(hint)))

    def _lines(self) -> tuple[str, str]:
        hints = self._exercise.hints
        title = f"{self._exercise.name}, hint {self._number} of {len(hints)}"
        if self._number == len(hints):
            title += " (the last; the next call shows a solution)"
        return title, hints[self._number - 1]


class SolutionView(Displayable):
    """A solution of an exercise: what changes in its cell, and the whole cell.

    Parameters
    ----------
    exercise
        The exercise.
    """

    __slots__ = ("_exercise",)

    def __init__(self, exercise: Exercise) -> None:
        self._exercise = exercise

    def to_text(self) -> str:
        """The change."""
        one = self._exercise
        return "\n".join([*wrap("", self._title()), *code_diff.as_text(one.start, one.solution)])

    def to_html(self) -> str:
        """The change, and the whole cell."""
        one = self._exercise
        return html.view(
            html.line(self._title()),
            code_diff.as_html(one.start, one.solution),
            html.details("the whole cell", html.pre(one.cell(one.solution))),
        )

    def _title(self) -> str:
        name = self._exercise.name
        return f"{name}: one solution; others that behave like it pass, too"
