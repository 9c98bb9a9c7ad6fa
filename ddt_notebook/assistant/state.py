"""Where the user of the assistant is: at a finding, a question, a symptom or a fault.

The assistant starts at the first finding of the last run, or at the questions if there is none.
Each step gives a new `State`. Nothing in this module draws, asks or runs anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .. import faults
from ..diagnosis.advice import fixes as fixes_of
from ..diagnosis.corrections import Correction, correction
from ..faults import views as views_of_fault
from ..model import Finding, Fix, Snapshot
from ..symptoms import loader as symptoms
from .questions import Answer, Question, Questionnaire

#: A finding of the last run, a question, the symptom that the answers point to, or the fault that
#: the user chose among those with this symptom.
At = Literal["finding", "question", "symptom", "fault"]

#: The choice that leads from the findings to the questions.
QUESTIONS = "it is something else: go through the questions"
_REJECTED = " (you ruled it out)"


@dataclass(frozen=True, slots=True)
class FixedCell:
    """A cell without the fault.

    Attributes
    ----------
    before, after
        The source of the cell with the fault, and of the one without.
    change
        What was changed, or what the example is about.
    own
        True if it is the user's cell, corrected; False if it is the example of a fault card.
    setup
        Code that has to run first.
    earlier
        The user's cell, such as ``cell[3]``, if other cells have run since; else empty.
    found, remaining
        The number of findings, and the titles of those that the change leaves.
    """

    before: str
    after: str
    change: str
    own: bool
    setup: str = ""
    earlier: str = ""
    found: int = 1
    remaining: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The whole code that has to run."""
        return f"{self.setup}\n\n{self.after}" if self.setup else self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The steps so far. Immutable: a step gives a new one.

    Attributes
    ----------
    findings
        The findings of the last run, then its hints.
    selected
        Index of the finding that is shown; None where the questions are.
    questionnaire
        The questions and their answers.
    card
        Id of the fault card that the user chose; empty before.
    opened
        What is open below the rest: the name of a view, ``"fix"``, ``"explain"`` or ``"tried"``;
        empty if nothing is.
    previous
        The state before the last step, None at the start.
    """

    findings: tuple[Finding, ...] = ()
    selected: int | None = None
    questionnaire: Questionnaire = field(default_factory=Questionnaire)
    card: str = ""
    opened: str = ""
    previous: State | None = field(default=None, repr=False, compare=False)

    @property
    def at(self) -> At:
        """The kind of this state."""
        if self.selected is not None:
            return "finding"
        if self.card:
            return "fault"
        return "question" if self.question is not None else "symptom"

    @property
    def finding(self) -> Finding | None:
        """The finding that is shown."""
        return None if self.selected is None else self.findings[self.selected]

    @property
    def question(self) -> Question | None:
        """The next question; None at a finding, and once the answers point to a symptom."""
        return None if self.selected is not None else self.questionnaire.question

    @property
    def symptom(self) -> str | None:
        """Code of the symptom; None while there are questions."""
        finding = self.finding
        return finding.symptom if finding is not None else self.questionnaire.conclusion

    @property
    def cause(self) -> str:
        """Id of the fault card; empty if the fault is not known, or has no card."""
        finding = self.finding
        cause = self.card if finding is None else finding.cause or ""
        return cause if cause in faults.card_ids() else ""

    @property
    def path(self) -> tuple[tuple[str, str], ...]:
        """``("stage", …)``, ``("symptom", …)`` and ``("fault", …)``, as far as they are known."""
        if self.symptom is None:
            return ()
        symptom = symptoms.symptom(self.symptom)
        path = (("stage", symptom.stage_title), ("symptom", f"{symptom.title} {symptom.code}"))
        return (*path, ("fault", self.cause)) if self.cause else path

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts of what the user can choose by its number."""
        match self.at:
            case "finding":
                return (*(self.findings[at].title for at in self._other_findings()), QUESTIONS)
            case "question":
                assert self.question is not None
                return tuple(choice.text for choice in self.question.choices)
            case "symptom":
                rejected = self._rejected()
                return tuple(c.title + _REJECTED * (c.id in rejected) for c in self._cards())
            case "fault":
                return ()

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views of a run that show the fault or the symptom, the best one first."""
        if self.cause:
            return views_of_fault.of_card(self.cause)
        return views_of_fault.of_symptom(self.symptom) if self.symptom is not None else ()

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """What to change, best first; for a symptom alone, what repaired it in the study."""
        finding = self.finding
        if finding is not None:
            return tuple(finding.fixes)
        if self.symptom is None:
            return ()
        if self.cause:
            ranks = faults.card(self.cause).expected.ranks
            return tuple(fixes_of(self.symptom, self.cause, rank=ranks[0] if ranks else 0))
        patterns = symptoms.fixes(self.symptom)
        return tuple(Fix(pattern=p.pattern, advice="", share=p.share) for p in patterns)

    def chosen(self, index: int) -> State:
        """The state after one of the choices.

        Parameters
        ----------
        index
            Of the choice, from 0.

        Raises
        ------
        ValueError
            If there is no such choice.
        """
        if not 0 <= index < len(self.choices):
            if not self.choices:
                raise ValueError("there is nothing to choose here; undo takes a step back")
            raise ValueError(f"there is no answer {index + 1}; there are {len(self.choices)}")
        match self.at:
            case "finding":
                others = self._other_findings()
                return self._step(selected=others[index] if index < len(others) else None)
            case "question":
                return self._step(questionnaire=self.questionnaire.answered(index))
            case _:
                return self._step(card=self._cards()[index].id)

    def unknown(self) -> State:
        """The state after the answer "I don't know".

        Raises
        ------
        ValueError
            If there is no question.
        """
        if self.question is None:
            raise ValueError("there is no question")
        return self._step(questionnaire=self.questionnaire.answered(None))

    def checked(self, answer: Answer) -> State:
        """The state after a check of the question."""
        return self._step(questionnaire=self.questionnaire.checked_with(answer))

    def undone(self) -> State:
        """The state before the last step; the same state at the start."""
        return self.previous or replace(self, opened="")

    def restarted(self) -> State:
        """The state at the start."""
        first = self
        while first.previous is not None:
            first = first.previous
        return replace(first, opened="")

    def with_opened(self, opened: str) -> State:
        """The state with a view, the fixed cell or the explanation open; empty closes it."""
        return replace(self, opened=opened)

    def fixed_cell(self, snapshot: Snapshot | None) -> FixedCell | None:
        """The user's cell, corrected, where the change can be derived; else the card's example.

        Parameters
        ----------
        snapshot
            The run of the findings.
        """
        finding = self.finding
        made = correction(finding, snapshot) if finding and snapshot is not None else None
        if made is not None and snapshot is not None:
            return corrected(made, snapshot, self.findings)
        if not self.cause:
            return None
        card = faults.card(self.cause)
        if finding is not None and snapshot is not None and not _fits(card, finding):
            return None
        return FixedCell(card.broken, card.fixed, card.title, own=False, setup=card.setup)

    def _other_findings(self) -> list[int]:
        return [at for at in range(len(self.findings)) if at != self.selected]

    def _cards(self) -> list[faults.FaultCard]:
        """The faults with this symptom; those that the user ruled out come last."""
        found = [card for card in faults.cards() if self.symptom in card.symptoms]
        found.sort(key=lambda card: card.symptoms.index(self.symptom or ""))
        rejected = self._rejected()
        return sorted(found, key=lambda card: card.id in rejected)

    def _rejected(self) -> set[str]:
        """Ids of the faults that were found, before the user chose the questions instead."""
        rejected, before = set(), self.previous
        while before is not None:
            if before.finding is not None and before.finding.cause:
                rejected.add(before.finding.cause)
            before = before.previous
        return rejected

    def _step(self, **changes: Any) -> State:
        return replace(self, opened="", previous=self, **changes)


def corrected(made: Correction, snapshot: Snapshot, findings: Iterable[Finding]) -> FixedCell:
    """The user's cell with a correction, and the findings that it leaves."""
    definite = [finding for finding in findings if finding.confidence != "possible"]
    own = {id(finding): correction(finding, snapshot) for finding in definite}
    return FixedCell(
        snapshot.cell.source,
        made.source,
        made.says,
        own=True,
        found=len(definite),
        remaining=tuple(finding.title for finding in definite if own[id(finding)] != made),
    )


def _fits(card: faults.FaultCard, finding: Finding) -> bool:
    """Whether a card's example has the operation of a finding, called by the user as well."""
    op, issuer = finding.values.get("op", ""), finding.values.get("issued_by", "")
    if issuer == "DistributedDataParallel":
        return "DDP(" in card.broken
    return (issuer or op) in card.broken


def start(
    findings: Sequence[Finding] = (),
    questionnaire: Questionnaire | None = None,
    *,
    ask: bool = False,
) -> State:
    """The state at the first finding, or at the questions if there is none.

    Parameters
    ----------
    findings
        Findings, then hints.
    questionnaire
        The questions that are answered already.
    ask
        Start at the questions although there are findings.
    """
    return State(
        findings=tuple(findings),
        selected=0 if findings and not ask else None,
        questionnaire=questionnaire or Questionnaire(),
    )
