"""The grade of a cell: a table of behaviours as text, HTML and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ddt_notebook.views import dataframe, html, safe, terminal
from ddt_notebook.views.displayable import Displayable

State = Literal["ok", "fails", "not reached"]
_SIGNS: dict[State, tuple[str, str]] = {
    "ok": ("✓", "ok"),
    "fails": ("✖", "error"),
    "not reached": ("·", "hint"),
}
_HEAD = ("", "behaviour", "what was observed")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a behaviour holds in a run.

    Attributes
    ----------
    key, title
        As in `Behaviour`.
    state
        Whether it holds; ``"not reached"`` if the run ended too early to observe it.
    message
        What was observed if it fails.
    """

    key: str
    title: str
    state: State
    message: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a cell stopped.

    Attributes
    ----------
    line
        The line of the cell without its magic, from 1; 0 if it is not known.
    undefined_name
        The name in a NameError; empty for anything else.
    """

    line: int
    undefined_name: str = ""


class Grade(Displayable):
    """The grade of a student's cell.

    Parameters
    ----------
    exercise
        Name of the exercise.
    verdicts
        In an order in which each behaviour needs the ones before it.
    world_size
        The number of ranks on which the cell ran.
    seconds
        How long the grading took.
    symptoms
        Codes and titles of the symptoms in the diagnosis of the run, if a behaviour fails.
    stop
        Where the cell stopped, if it did not finish; the student does not see it.
    """

    __slots__ = ("exercise", "seconds", "stop", "symptoms", "verdicts", "world_size")

    def __init__(
        self,
        exercise: str,
        verdicts: tuple[Verdict, ...],
        *,
        world_size: int,
        seconds: float,
        symptoms: tuple[str, ...] = (),
        stop: Stop | None = None,
    ) -> None:
        self.exercise = exercise
        self.verdicts = verdicts
        self.world_size = world_size
        self.seconds = seconds
        self.symptoms = symptoms
        self.stop = stop

    @property
    def passed(self) -> bool:
        """Whether every behaviour holds."""
        return bool(self.verdicts) and self.held == len(self.verdicts)

    @property
    def held(self) -> int:
        """How many behaviours hold."""
        return sum(verdict.state == "ok" for verdict in self.verdicts)

    @property
    def failed(self) -> tuple[str, ...]:
        """Keys of the behaviours that fail."""
        return tuple(verdict.key for verdict in self.verdicts if verdict.state == "fails")

    @property
    def message(self) -> str:
        """What still fails, first of all."""
        failing = (verdict for verdict in self.verdicts if verdict.state == "fails")
        first = next(failing, None)
        return f"{first.title}: {first.message}" if first else ""

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        if self.passed:
            result = "passed: every behaviour holds"
        else:
            result = f"not yet: {self.held} of {len(self.verdicts)} behaviours hold"
        return f"{self.exercise} on {self.world_size} ranks, with other data: {result}"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "exercise": self.exercise,
            "passed": self.passed,
            "held": self.held,
            "behaviours": [
                {"key": v.key, "title": v.title, "state": v.state, "message": v.message}
                for v in self.verdicts
            ],
            "symptoms": list(self.symptoms),
            "world_size": self.world_size,
            "seconds": round(self.seconds, 2),
        }

    def to_frame(self) -> Any:
        """One row for each behaviour, as a pandas DataFrame.

        - ``key``, ``title``: short and full name of the behaviour
        - ``state``: whether it holds
        - ``message``: what was observed; empty if it holds
        """
        columns = ("key", "title", "state", "message")
        rows = [{name: getattr(verdict, name) for name in columns} for verdict in self.verdicts]
        return dataframe.frame(rows, columns)

    def to_text(self) -> str:
        """A line for each behaviour, with what was observed if it fails."""
        lines = [self.headline]
        for verdict in self.verdicts:
            mark = f"{_SIGNS[verdict.state][0]} {verdict.state:<11}"
            first, *rest = terminal.wrap("", verdict.title)
            lines += [f"{mark} {first.strip()}", *rest]
            if verdict.message:
                lines += terminal.wrap("seen", safe.one_line(verdict.message, 600))
        lines += terminal.wrap("", self._diagnosed()) if self.symptoms else []
        return "\n".join(lines)

    def to_html(self) -> str:
        """A table of the behaviours."""
        rows = [
            (
                html.chip(*_SIGNS[v.state][:1], v.state, _SIGNS[v.state][1]),
                html.prose(v.title),
                html.prose(safe.one_line(v.message, 600)),
            )
            for v in self.verdicts
        ]
        parts = [html.line(html.tag("b", self.headline)), html.table(rows, _HEAD)]
        if self.symptoms:
            parts.append(html.line(self._diagnosed()))
        return html.view(*parts)

    def _diagnosed(self) -> str:
        return f"the diagnosis of this run: {'; '.join(self.symptoms)}"
