"""One conversation with a user: takes the words that they type or the buttons that they press."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .. import api
from ..host.errors import SessionError
from ..host.run_result import RunResult
from ..host.session import active
from ..model import Snapshot
from ..runs import view_of
from ..views import words
from ..views.comparison import ComparisonView
from ..views.displayable import Displayable, Message
from ..views.explain import page
from ..views.report import DisplayedReport
from . import checks
from .checks import Progress, answers_of_run, last_run
from .errors import in_magics
from .state import FixedCell, State, corrected, start
from .view import AssistantView, FixedCellView

#: The words that mean "I don't know".
UNKNOWN = ("unknown", "?")
#: All words that `Assistant.take` understands; beside them, the number of a choice.
WORDS = (*UNKNOWN, "check", "undo", "restart", "leave")

_NO_CHECK = "no check can answer this question here; answer it with a number, or unknown"
_BUSY = "a cell is running on the ranks; try again when it has ended"
#: What `opened` holds instead of the name of a view.
FIX, EXPLAIN, TRIED = "fix", "explain", "tried"


@dataclass(slots=True)
class Assistant:
    """What a conversation is about, and where it is.

    Attributes
    ----------
    run
        The run that was diagnosed, None if nothing has run.
    state
        Where the user is.
    before
        What is shown above the first state, such as the report of a healthy run.
    left
        Whether the user has ended the conversation.
    """

    run: RunResult | None
    state: State
    before: Displayable | None = None
    left: bool = False
    _comparison: ComparisonView | None = field(default=None, repr=False)

    @classmethod
    def asking(cls, before: Displayable | None = None) -> Assistant:
        """Start with the questions; what the last run shows is answered already."""
        run = last_run()
        return cls(run, _questions_about(run), before)

    @classmethod
    def about(cls, report: DisplayedReport, run: RunResult) -> Assistant:
        """Start with what was found in a run: its findings, then its hints."""
        before: Displayable | None = None
        if not report.findings:  # the healthy result comes first, then what may be intended
            before = replace(report, hints=[])
        elif report.notes:
            before = Message("\n".join(report.notes))
        findings = (*report.findings, *report.hints)
        return cls(run, start(findings, answers_of_run(run.snapshot)), before)

    @property
    def snapshot(self) -> Snapshot | None:
        """What was observed in the run."""
        return self.run.snapshot if self.run is not None else None

    @property
    def offer(self) -> str:
        """What a check of the question would do; empty if there is none, or it has no result."""
        question = self.state.question
        if question is None or not self.state.questionnaire.can_check(question):
            return ""
        return checks.offer(question)

    @property
    def fixed_cell(self) -> FixedCell | None:
        """The cell without the fault; None if there is no fault, or if something has run since."""
        return self.state.fixed_cell(self.snapshot) if self.run is last_run() else None

    def take(self, word: str, progress: Progress = lambda text: None) -> None:
        """Take the number of a choice, or one of `WORDS`.

        Parameters
        ----------
        word
            The number, from 1, or the word.
        progress
            Called with a line about what a check is doing.

        Raises
        ------
        ValueError
            If there is no such choice, or no question to answer or to check.
        """
        if word in UNKNOWN:
            self.state = self.state.unknown()
        elif word == "check":
            self._check(progress)
        elif word == "undo":
            self.state = self.state.undone()
        elif word == "restart":
            self.state = self.state.restarted()
        elif word == "leave":
            self.left = True
        else:
            self.state = self.state.chosen(int(word) - 1)

    def refresh(self) -> None:
        """Start again with the questions if something has run since: checks read the last run."""
        if self.run is not last_run():
            self.run = last_run()
            self.state, self.before = _questions_about(self.run), None

    def _check(self, progress: Progress) -> None:
        self.refresh()
        question = self.state.question
        if question is None:
            raise ValueError("there is no question any more; undo takes an answer back")
        if not self.offer:
            raise ValueError(_NO_CHECK)
        session = active.get()
        if session is not None and session.busy:
            raise ValueError(_BUSY)
        self.state = self.state.checked(checks.check(question, progress))

    def toggle(self, opened: str) -> None:
        """Open a view by its name, the fixed cell or the explanation; close it if it is open."""
        self.state = self.state.with_opened("" if self.state.opened == opened else opened)

    def run_fixed_cell(self) -> None:
        """Run the corrected cell instead of the diagnosed one, and compare the runs.

        Raises
        ------
        SessionError
            If the session cannot run it.
        """
        session, cell = active.get(), self.fixed_cell
        if session is None or self.run is None or cell is None:
            return
        was = self.run.snapshot
        again = session.run_cell(
            cell.after,
            ranks=_ranks(was),
            trace=bool(was.timeline),
            number=was.cell.number,
            first_line=was.cell.first_line,
        )
        self._comparison = api.compare(was, again)
        self.state = self.state.with_opened(TRIED)

    def offer_to_run(self) -> str:
        """What `run_fixed_cell` would do; empty unless the user has the corrected cell open."""
        session, run = active.get(), self.run
        if session is None or run is None or session.last_run is not run or session.frozen:
            return ""
        cell = self.fixed_cell if self.state.opened == FIX else None
        if cell is None or not cell.own or run.snapshot.cell.file:
            return ""
        ranks = words.count(len(_ranks(run.snapshot)), "rank")
        return f"runs the corrected cell on {ranks} of the session, with their present variables"

    def view(self) -> AssistantView:
        """The state as text, HTML and JSON."""
        return AssistantView(
            self.state,
            snapshot=self.snapshot,
            offer=self.offer,
            before=self.before if self.state.previous is None else None,
            opened=self._opened(),
        )

    def _opened(self) -> Displayable | None:
        match self.state.opened:
            case "":
                return None
            case "fix":
                cell = self.state.fixed_cell(self.snapshot)
                return FixedCellView(cell) if cell is not None else None
            case "explain":
                return page(self.state.cause or self.state.symptom or "")
            case "tried":
                return self._comparison
            case name:
                return _view_of_run(name, self.run)


def fixed_cell_of(report: DisplayedReport) -> FixedCell:
    """The user's cell, corrected for the first fault if possible; else the card's example.

    Raises
    ------
    ValueError
        If nothing was found, or there is neither.
    """
    made, snapshot = report.correction, report.snapshot
    if made is not None and snapshot is not None:
        return corrected(made, snapshot, report.findings)
    findings = (*report.findings, *report.hints)
    if not findings:
        raise ValueError("nothing was found in the last run, so there is nothing to fix")
    example = start(findings).fixed_cell(snapshot)
    if example is not None:
        return example
    first = findings[0]
    hint = f"{words.more(first)[-1]} shows an example"
    if words.is_unclassified(first):
        hint = "the line that raised says what to change"
    raise ValueError(f"the change cannot be derived from this cell; {hint}")


def _questions_about(run: RunResult | None) -> State:
    return start(questionnaire=answers_of_run(run.snapshot if run is not None else None))


def _view_of_run(name: str, run: RunResult | None) -> Displayable:
    """A view of a run by its name, or the reason why there is none."""
    if run is None:
        return Message("nothing has run on ranks yet")
    try:
        return view_of(name, run)
    except (SessionError, ValueError) as error:
        return Message(f"{name}: {in_magics(error)}")


def _ranks(snapshot: Snapshot) -> tuple[int, ...]:
    """The ranks that ran the cell."""
    return tuple(report.rank for report in snapshot.ranks if report.state != "idle")
