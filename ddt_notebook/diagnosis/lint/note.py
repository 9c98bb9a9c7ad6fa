"""What a rule notes about a line, and the finding that becomes of it."""

from __future__ import annotations

from dataclasses import dataclass

from ddt_notebook import model
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.finding import Confidence

from ..advice import conclude_text
from .program import Program


@dataclass(frozen=True, slots=True)
class Place:
    """How to name a line."""

    name: str
    number: int | None
    first_line: int

    def of(self, line: int, code: str = "") -> model.Place:
        """``cell[3] line 6``."""
        file = self.name if self.number is None else f"{self.name}[{self.number}]"
        return model.Place(file=file, line=line + self.first_line - 1, code=code, role="source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a rule found.

    Attributes
    ----------
    symptom, title, cause, confidence, op
        As in `Finding`.
    line
        Where it is.
    also
        Further lines that show it, and what they do.
    """

    symptom: str
    title: str
    cause: str
    line: int
    also: tuple[tuple[int, str], ...] = ()
    confidence: Confidence = "likely"
    op: str = "the collective"

    def finding(self, program: Program, place: Place) -> Finding:
        """As everybody else reports it."""
        evidence = [
            Fact(kind="shows", place=place.of(line, program.line(line)), values={"says": says})
            for line, says in ((self.line, ""), *self.also)
        ]
        return conclude_text(
            self.symptom,
            self.title,
            cause=self.cause,
            evidence=evidence,
            confidence=self.confidence,
            op=self.op,
        )
