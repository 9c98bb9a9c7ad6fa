"""What ``%ddt_debug`` has come to with its user: keeps the steps between two calls of the magic.

In a notebook it shows the assistant's panel, elsewhere the same as text; both take their steps in
one `Consultation`, so that a button and a typed word mean the same.
"""

from __future__ import annotations

from dataclasses import replace

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from .. import inquiry
from ..diagnosis import consultation as steps
from ..diagnosis.consultation import Consultation
from ..diagnosis.known import begin
from ..host import active
from ..host.result import RunResult
from ..views.bundle import Displayable, Message
from ..views.consultation import ConsultationView, RepairView
from ..views.report import DisplayedReport
from ..widgets.assistant import Assistant, Subject, offered
from .config import DDT
from .correcting import place
from .stream import live_line

UNKNOWN = ("unknown", "?")
WORDS = (*UNKNOWN, "ask", "check", "undo", "restart", "leave")
_NOTHING_ASKED = "ddt_debug: nothing was asked; %ddt_debug ask begins"


class Guide:
    """One consultation at a time.

    Parameters
    ----------
    shell
        The notebook's shell, or a terminal's.
    defaults
        Says whether there may be buttons.
    """

    def __init__(self, shell: InteractiveShell, defaults: DDT) -> None:
        self._shell = shell
        self._defaults = defaults
        self._consultation: Consultation | None = None
        self._subject = Subject()

    @property
    def has_buttons(self) -> bool:
        """Whether the panel can be shown."""
        return self._defaults.widgets and getattr(self._shell, "kernel", None) is not None

    def open(self, before: Displayable | None = None) -> Displayable:
        """Begin with questions; what the last run tells is answered already.

        Parameters
        ----------
        before
            What is shown before the first question.
        """
        return self._show(self._anew(before))

    def _anew(self, before: Displayable | None = None) -> Consultation:
        self._subject = Subject(_last_run(), before)
        return steps.begin(interview=begin(self._subject.snapshot))

    def discuss(self, report: DisplayedReport, run: RunResult) -> Displayable:
        """Begin with what was found in a run, findings before hints."""
        before: Displayable | None = None
        if not report.findings:  # that the run was well comes before what may be intended
            before = replace(report, hints=[])
        elif report.notes:
            before = Message("\n".join(report.notes))
        self._subject = Subject(run, before)
        topics = [*report.findings, *report.hints]
        return self._show(steps.begin(topics, begin(run.snapshot)))

    @staticmethod
    def understands(text: str) -> bool:
        """Whether words belong to the consultation and are no text to be diagnosed.

        Raises
        ------
        UsageError
            If they are more than one answer.
        """
        given = text.split()
        if not given or not all(word in WORDS or word.isdigit() for word in given):
            return False
        if len(given) > 1:
            raise UsageError(
                f"ddt_debug: one at a time: %ddt_debug {given[0]}, then %ddt_debug {given[1]}"
            )
        return True

    def say(self, word: str) -> Displayable:
        """Take an answer, or ``check``, ``undo``, ``restart``, ``leave``; ``ask`` begins anew.

        Raises
        ------
        UsageError
            If nothing was asked, or there is no such answer.
        """
        if word == "ask":
            return self.open()
        if self._consultation is None:
            raise UsageError(_NOTHING_ASKED)
        if word == "leave":
            self._consultation = None
            return Message("the questions are put away; %ddt_debug ask begins anew")
        if word == "undo":
            return self._show(self._consultation.undone())
        if word == "restart":
            return self._show(self._consultation.restarted())
        if word == "check":
            is_of_last = self._subject.run is _last_run()
            return self._check(self._consultation if is_of_last else self._anew())
        try:
            if word in UNKNOWN:
                return self._show(self._consultation.unknown())
            return self._show(self._consultation.chosen(int(word) - 1))
        except ValueError as error:
            raise UsageError(f"ddt_debug: {error}; undo takes the last answer back") from error

    def repair(self) -> RepairView | None:
        """Offer the cell without the fault that is talked about as the next input.

        Returns
        -------
        RepairView or None
            None if no fault is talked about, or if something has run since.
        """
        run = self._subject.run
        if self._consultation is None or run is not _last_run():
            return None
        made = self._consultation.repair(self._subject.snapshot)
        return place(self._shell, made) if made is not None else None

    def _check(self, consultation: Consultation) -> Displayable:
        """Have the question answered by a look or a test run, which is told first."""
        question, offer = consultation.question, offered(consultation)
        if question is None:
            raise UsageError("ddt_debug: nothing is asked any more; undo takes an answer back")
        if not offer:
            raise UsageError(
                "ddt_debug: nothing that could run here answers this question; answer it with a "
                "number, or unknown"
            )
        print(f"check: {offer}")
        with live_line(self._shell, "checking …") as say:
            answer = inquiry.check(question, active.get(), say)
        return self._show(consultation.observed(answer))

    def _show(self, consultation: Consultation) -> Displayable:
        self._took(consultation)
        if self.has_buttons:
            return Assistant(consultation, self._subject, self._shell, self._took)
        first = consultation.earlier is None
        return ConsultationView(
            consultation,
            snapshot=self._subject.snapshot,
            offer=offered(consultation),
            before=self._subject.before if first else None,
        )

    def _took(self, consultation: Consultation | None) -> None:
        self._consultation = consultation


def _last_run() -> RunResult | None:
    """The last run of the session, or of the one that was stopped."""
    session = active.get()
    run = session.last_run if session is not None else None
    return run or active.last_run()
