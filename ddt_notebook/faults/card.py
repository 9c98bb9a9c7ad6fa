"""The content of a fault card, and the check that it is complete."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddt_notebook.model.errors import DdtError
from ddt_notebook.model.finding import Confidence
from ddt_notebook.symptoms import loader as taxonomy

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
#: The fields that explain in words, with their smallest lengths; a heading would not suffice.
_EXPLAINING = {"sees": 60, "why": 80, "cluster": 60}
_PARAGRAPHS = ("sees", "why", "cluster")
_CELLS = ("broken", "fixed", "proof", "setup")


class InvalidCard(DdtError, ValueError):
    """A card is not complete; the text lists what is missing."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that repairs the fault.

    Attributes
    ----------
    pattern
        The study's name for this kind of change, such as ``"fix behavior logic"``.
    text
        What to change, lower case, no full stop. ``{op}`` stands for the call in question and
        ``{rank}`` for the first culprit.
    """

    pattern: str
    text: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A source that describes the fault: an issue, a page of documentation or a paper."""

    text: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected diagnosis of the broken cell.

    Attributes
    ----------
    ranks, waiting
        Culprits and their victims, as in `Finding`.
    lines
        By rank, its line in the broken cell, counted from 1.
    confidence
        ``"possible"`` means a hint.
    symptom
        The symptom of the finding, if it is not the first of the card's symptoms.
    """

    ranks: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    lines: Mapping[int, int] = field(default_factory=dict)
    confidence: Confidence = "certain"
    symptom: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FaultCard:
    """A fault that can be run, found and repaired.

    Attributes
    ----------
    id
        The ``cause`` of findings, such as ``"collective-under-rank-condition"``.
    title
        What is wrong, lower case, no full stop.
    symptoms
        Codes in the taxonomy, the usual one first.
    views
        Views of a run that show the fault, by their names in `views.registry`; the one that shows
        most comes first. Empty if a view would mislead because everything in it looks correct.
    sees
        What the user sees.
    why
        Why it happens.
    broken, fixed
        A cell with the fault, and a cell that does the same work without it.
    proof
        A cell of assertions that hold on every rank after the fixed cell, so that it did its work.
    expected
        The diagnosis of the broken cell.
    fixes
        What to change, best first.
    gloo, nccl
        Messages that the fault produces with each backend; empty if it raises nothing.
    cluster
        What it looks like in a real job.
    references
        Where to read more.
    apart
        Ids of similar cards, each with a clause on what is different in that fault; views put "in
        that fault," before it.
    n
        Number of ranks.
    options
        Further keyword arguments for `Session`, such as ``{"group": False}``.
    needs
        Modules that its cells import, beyond torch; without them, the tests do not run it.
    setup
        A cell that runs before the broken and before the fixed one.
    in_source
        Whether the source of the broken cell shows the fault, so that lint should find it. False if
        the fault lies in the data, the machine, the environment, the duration of something, or in
        what another cell or rank has done, or if the cell is one of a framework that lint does not
        read.
    """

    id: str
    title: str
    symptoms: tuple[str, ...]
    sees: str
    why: str
    broken: str
    fixed: str
    proof: str
    expected: Expected
    fixes: tuple[Advice, ...]
    cluster: str
    references: tuple[Reference, ...]
    views: tuple[str, ...] = ()
    gloo: tuple[str, ...] = ()
    nccl: tuple[str, ...] = ()
    apart: Mapping[str, str] = field(default_factory=dict)
    n: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    setup: str = ""
    in_source: bool = True

    def __post_init__(self) -> None:
        for name in _PARAGRAPHS:
            object.__setattr__(self, name, " ".join(getattr(self, name).split()))
        for name in _CELLS:
            object.__setattr__(self, name, textwrap.dedent(getattr(self, name)).strip("\n"))
        problems = list(self._problems())
        if problems:
            raise InvalidCard(f"card {self.id!r}: {'; '.join(problems)}")

    def __repr__(self) -> str:
        return f"<FaultCard {self.id}: {self.symptom} {self.title}>"

    @property
    def symptom(self) -> str:
        """Code of the usual symptom."""
        return self.symptoms[0]

    @property
    def framework(self) -> str:
        """The framework for which its session prepares the ranks; empty for torch."""
        return str(self.options.get("framework", ""))

    @property
    def stage(self) -> str:
        """Name of the stage in which it happens."""
        return taxonomy.symptom(self.symptom).stage_title

    @property
    def fix_patterns(self) -> tuple[str, ...]:
        """The study's names for the kinds of change that repair it, best first."""
        return tuple(dict.fromkeys(advice.pattern for advice in self.fixes))

    @property
    def is_hint(self) -> bool:
        """Whether it may be intended, so that the diagnosis only gives a hint."""
        return self.expected.confidence == "possible"

    def _problems(self) -> list[str]:
        found = []
        if not _ID.fullmatch(self.id):
            found.append("the id is lower-case words with hyphens")
        if not self.symptoms:
            found.append("it has no symptom")
        for code in self.symptoms:
            taxonomy.symptom(code)  # raises if there is no such code
        if not self.title or self.title.endswith("."):
            found.append("the title is one line without full stop")
        for name, least in _EXPLAINING.items():
            if len(getattr(self, name)) < least:
                found.append(f"{name!r} explains nothing")
        for name in ("broken", "fixed", "proof"):
            if not getattr(self, name).strip():
                found.append(f"the {name} cell is missing")
        if self.broken == self.fixed:
            found.append("broken and fixed cell are the same")
        if not self.fixes:
            found.append("it does not say what to change")
        known = taxonomy.fix_patterns()
        found += [f"no fix pattern {p!r}" for p in self.fix_patterns if p not in known]
        if not self.references or not all(r.url.startswith("https://") for r in self.references):
            found.append("it needs a reference with an https address")
        if not 1 <= self.n <= 4:
            found.append("it needs 1 to 4 ranks")
        return found + self._misplaced()

    def _misplaced(self) -> list[str]:
        """Ranks and lines that do not exist."""
        named = {*self.expected.ranks, *self.expected.waiting, *self.expected.lines}
        found = [f"there is no rank {rank}" for rank in sorted(named) if rank >= self.n]
        length = len(self.broken.splitlines())
        lines = sorted(set(self.expected.lines.values()))
        found += [f"there is no line {line}" for line in lines if not 1 <= line <= length]
        if self.expected.symptom and self.expected.symptom not in self.symptoms:
            found.append(f"{self.expected.symptom} is not one of its symptoms")
        return found
