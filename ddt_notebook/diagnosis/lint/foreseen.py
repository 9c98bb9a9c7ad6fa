"""The result of a rule at a line of the source, and its conversion to a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ddt_notebook import faults
from ddt_notebook.model import Fact, Finding, Place
from ddt_notebook.model.finding import Confidence, Values
from ddt_notebook.program.parse import Document
from ddt_notebook.program.project import Project
from ddt_notebook.program.traced_program import TracedProgram

from ..advice import conclude


@dataclass(frozen=True, slots=True)
class Shown:
    """A line that shows what is wrong; ``kind`` is a key of `wording.SHOWN`."""

    line: int
    kind: str
    values: Values


def shown(line: int, kind: str, **values: Any) -> Shown:
    """Make a line that shows what is wrong; line 0 stands for an unknown line."""
    return Shown(line, kind, values)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Something that a rule finds.

    Attributes
    ----------
    kind, cause, values, confidence
        As in `Finding`. ``values["op"]`` is what the user has to change, in the advice of the card.
    line
        Its line, counted from 1 in the source.
    also
        Further lines that show it.
    symptom
        Code in the taxonomy; empty for the card's usual one.
    """

    kind: str
    cause: str
    line: int
    also: tuple[Shown, ...]
    values: Values
    confidence: Confidence = "likely"
    symptom: str = ""

    @property
    def lines(self) -> list[int]:
        """All lines that show it."""
        return [self.line, *(one.line for one in self.also if one.line)]

    def finding(self, sources: Sources) -> Finding:
        """Convert it to a finding about a program."""
        lines = (shown(self.line, "source-line"), *(one for one in self.also if one.line))
        return conclude(
            self.symptom or faults.card(self.cause).symptom,
            self.kind,
            cause=self.cause,
            values=self.values,
            facts=[Fact(kind=one.kind, place=sources.place(one.line), values=one.values)
                   for one in lines],
            confidence=self.confidence,
            op=self.values.get("op", "the collective"),
        )  # fmt: skip


Rule = Callable[[TracedProgram], Iterator[Foreseen]]


def foreseen(kind: str, cause: str, line: int, *also: Shown, **values: Any) -> Foreseen:
    """Make a `Foreseen` that is likely a fault."""
    return Foreseen(kind, cause, line, also, values)


def certain(kind: str, cause: str, line: int, *also: Shown, **values: Any) -> Foreseen:
    """Make a `Foreseen` that is certainly a fault."""
    return Foreseen(kind, cause, line, also, values, "certain")


def possible(kind: str, cause: str, line: int, *also: Shown, **values: Any) -> Foreseen:
    """Make a `Foreseen` that may be intended: a hint."""
    return Foreseen(kind, cause, line, also, values, "possible")


def unless_doubted(found: Foreseen, proved: bool) -> Foreseen:
    """Return a result as it is if the source proves it, else as a hint."""
    return found if proved else replace(found, confidence="possible")


@dataclass(frozen=True, slots=True)
class Sources:
    """The document that is linted, and the other files of its project."""

    document: Document
    project: Project | None = None

    def place(self, line: int) -> Place:
        """Return a line as a place; it is counted from 1 in the source of the document."""
        document = self.project.document(line) if self.project is not None else None
        if document is not None:
            code, number = document.line(line), Project.own_line(line)
            return Place(file=document.name, line=number, code=code.strip(), role="source")
        number = line + self.document.first_line - 1
        code = self.document.line(number).strip()
        return Place(file=self.document.name, line=number, code=code, role="source")
