"""What the assistant and its user have come to: a path from the stage of the job to what to change.

It begins at what was found in the last run, or at the questions where nothing was found. Each step
gives a new `Consultation`; nothing here draws, asks or runs anything.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ddt_notebook import faults
from ddt_notebook.faults import views as views_of_fault
from ddt_notebook.model import Finding, Fix, Snapshot
from ddt_notebook.symptoms import loader as taxonomy

from .advice import fixes as fixes_of
from .corrections import correction
from .tree import Answer, Interview, Question

#: Where a consultation stands: at a finding of the last run, at a question, at the symptom that the
#: answers told, or at a fault that the user recognised.
Stand = Literal["finding", "question", "symptom", "fault"]

QUESTIONS = "it is something else: go through the questions"
_REJECTED = " (rejected)"


@dataclass(frozen=True, slots=True)
class Repair:
    """A cell without the fault.

    Attributes
    ----------
    before, after
        The source of the cell with the fault and of the one without.
    says
        What is changed, or what the cells are.
    derived
        True if it is the user's own cell; False if it is the example of a fault card.
    setup
        What has to run before it.
    """

    before: str
    after: str
    says: str
    derived: bool
    setup: str = ""

    @property
    def whole(self) -> str:
        """All that has to run."""
        return f"{self.setup}\n\n{self.after}" if self.setup else self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Consultation:
    """The steps so far. Immutable: a step gives a new one.

    Attributes
    ----------
    topics
        What was found in the last run: findings, then hints.
    topic
        Number of the one that is talked about, from 0; None where the questions are.
    interview
        The questions and their answers.
    card
        Id of the fault that the user recognised in the symptom, empty if none yet.
    detail
        What is looked at more closely: the name of a view, ``"repair"`` or ``"explain"``.
    earlier
        How it stood before the last step, None at the beginning.
    """

    topics: tuple[Finding, ...] = ()
    topic: int | None = None
    interview: Interview = field(default_factory=Interview)
    card: str = ""
    detail: str = ""
    earlier: Consultation | None = field(default=None, repr=False, compare=False)

    @property
    def stand(self) -> Stand:
        """Where it stands."""
        if self.topic is not None:
            return "finding"
        if self.card:
            return "fault"
        return "question" if self.question is not None else "symptom"

    @property
    def finding(self) -> Finding | None:
        """The finding that is talked about."""
        return None if self.topic is None else self.topics[self.topic]

    @property
    def question(self) -> Question | None:
        """What is asked next; None once a symptom is told."""
        return None if self.topic is not None else _stands(self.interview)[0]

    @property
    def symptom(self) -> str | None:
        """Code of the symptom; None as long as it is not told."""
        finding = self.finding
        return finding.symptom if finding is not None else _stands(self.interview)[1]

    @property
    def cause(self) -> str:
        """Id of the fault card; empty if the fault is not told, or has none."""
        finding = self.finding
        cause = self.card if finding is None else finding.cause or ""
        return cause if cause in faults.card_ids() else ""

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        """Stage, symptom and fault as far as they are told: what each is, and its name."""
        code = self.symptom
        if code is None:
            return ()
        symptom = taxonomy.symptom(code)
        steps = [("stage", symptom.stage_title), ("symptom", f"{symptom.title} {code}")]
        if self.cause:
            steps.append(("fault", self.cause))
        return tuple(steps)

    @property
    def choices(self) -> tuple[str, ...]:
        """What can be chosen by its number."""
        match self.stand:
            case "finding":
                others = tuple(self.topics[at].title for at in self._other_topics())
                return (*others, QUESTIONS)
            case "question":
                assert self.question is not None
                return self.question.choices
            case "symptom":
                out = self._rejected()
                return tuple(c.title + _REJECTED * (c.id in out) for c in self._cards())
            case "fault":
                return ()

    @property
    def views(self) -> tuple[str, ...]:
        """The views of a run that show what was told, the one that shows most first."""
        if self.cause:
            return views_of_fault.of_card(self.cause)
        return views_of_fault.of_symptom(self.symptom) if self.symptom is not None else ()

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """What to change, best first; of a mere symptom, what repaired it in the study."""
        finding = self.finding
        if finding is not None:
            return tuple(finding.fixes)
        if self.symptom is None:
            return ()
        if self.cause:
            ranks = faults.card(self.cause).expected.ranks
            return tuple(fixes_of(self.symptom, self.cause, rank=ranks[0] if ranks else 0))
        patterns = taxonomy.fixes(self.symptom)
        return tuple(Fix(pattern=p.pattern, advice="", share=p.share) for p in patterns)

    def chosen(self, number: int) -> Consultation:
        """With one of the choices.

        Parameters
        ----------
        number
            Of the choice, from 0.

        Raises
        ------
        ValueError
            If there is none of that number.
        """
        if not 0 <= number < len(self.choices):
            there = f"there are {len(self.choices)}" if self.choices else "nothing is asked"
            raise ValueError(f"there is no answer {number + 1}; {there}")
        match self.stand:
            case "finding":
                others = self._other_topics()
                return self._step(topic=others[number] if number < len(others) else None)
            case "question":
                return self._step(interview=self.interview.answered(number))
            case _:
                return self._step(card=self._cards()[number].id)

    def unknown(self) -> Consultation:
        """With "I don't know" to the question.

        Raises
        ------
        ValueError
            If nothing is asked.
        """
        if self.question is None:
            raise ValueError("nothing is asked")
        return self._step(interview=self.interview.answered(None))

    def observed(self, answer: Answer) -> Consultation:
        """With what a check of the question came to."""
        return self._step(interview=self.interview.observed(answer))

    def undone(self) -> Consultation:
        """As it stood before the last step; itself at the beginning."""
        return self.earlier or replace(self, detail="")

    def restarted(self) -> Consultation:
        """As it stood at the beginning."""
        first = self
        while first.earlier is not None:
            first = first.earlier
        return replace(first, detail="")

    def looking_at(self, detail: str) -> Consultation:
        """With a view, the repair or the explanation opened; empty closes it."""
        return replace(self, detail=detail)

    def repair(self, snapshot: Snapshot | None) -> Repair | None:
        """A cell without the fault: the user's own where it can be derived, else an example.

        Parameters
        ----------
        snapshot
            The run that the findings are about.
        """
        finding = self.finding
        made = correction(finding, snapshot) if finding and snapshot is not None else None
        if made is not None and snapshot is not None:
            return Repair(snapshot.cell.source, made.source, made.says, derived=True)
        if not self.cause:
            return None
        card = faults.card(self.cause)
        return Repair(card.broken, card.fixed, card.title, derived=False, setup=card.setup)

    def _other_topics(self) -> list[int]:
        return [at for at in range(len(self.topics)) if at != self.topic]

    def _cards(self) -> list[faults.FaultCard]:
        """The faults that show themselves so; what was found, and is not it, comes last."""
        found = [card for card in faults.cards() if self.symptom in card.symptoms]
        found.sort(key=lambda card: card.symptoms.index(self.symptom or ""))
        out = self._rejected()
        return sorted(found, key=lambda card: card.id in out)

    def _rejected(self) -> set[str]:
        """Ids of the faults that were talked about before the user went on to the questions."""
        rejected, before = set(), self.earlier
        while before is not None:
            if before.finding is not None and before.finding.cause:
                rejected.add(before.finding.cause)
            before = before.earlier
        return rejected

    def _step(self, **changes: Any) -> Consultation:
        return replace(self, detail="", earlier=self, **changes)


def begin(
    topics: Sequence[Finding] = (), interview: Interview | None = None, *, ask: bool = False
) -> Consultation:
    """A consultation about what was found; with questions where nothing was.

    Parameters
    ----------
    topics
        Findings, then hints.
    interview
        What is known already.
    ask
        Begin at the questions all the same.
    """
    return Consultation(
        topics=tuple(topics),
        topic=0 if topics and not ask else None,
        interview=interview or Interview(),
    )


@functools.lru_cache(maxsize=16)
def _stands(interview: Interview) -> tuple[Question | None, str | None]:
    """What an interview asks next, and what it came to: much is computed for it."""
    return interview.question, interview.conclusion
