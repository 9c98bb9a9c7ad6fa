"""The assistant: what was found or is asked, with a button for every step.

What it shows is in two places. The panel of buttons works while the notebook is open. Beside it
stands an ordinary display with the same content, updated at every step: it stays in the saved
notebook, where no button can work, and the style sheet hides it wherever the panel is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING
from uuid import uuid4

from .. import api, inquiry
from ..diagnosis.consultation import Consultation, Repair
from ..host import active
from ..host.errors import SessionError
from ..runs import view_of
from ..views import html, words
from ..views.bundle import Displayable, Message
from ..views.consultation import ConsultationView, RepairView
from ..views.html import Markup
from ..views.pages import page
from .controls import Controls, style_sheet

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ..host.result import RunResult
    from ..model import Snapshot

_AS_BUTTONS = "the assistant's buttons work while the notebook is open; %ddt_debug opens it again"
_BUSY = "a cell runs on the ranks: this can be done when it has ended"
_INTERRUPTED = "interrupted"
_LEFT = "left; %ddt_debug opens the assistant again"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a consultation is about.

    Attributes
    ----------
    run
        The run that was diagnosed, None if there was none.
    before
        What is shown before the first question, such as the report of a healthy run.
    """

    run: RunResult | None = None
    before: Displayable | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        """What was observed in the run."""
        return self.run.snapshot if self.run is not None else None


class Assistant(Displayable):
    """Shows a consultation, and takes the next step when a button is pressed.

    Parameters
    ----------
    consultation
        Where it begins.
    subject
        What it is about.
    shell
        The notebook's shell.
    on_step
        Told of every step; None when the user leaves.
    """

    def __init__(
        self,
        consultation: Consultation,
        subject: Subject,
        shell: InteractiveShell,
        on_step: Callable[[Consultation | None], None] = lambda consultation: None,
    ) -> None:
        self.consultation = consultation
        self._subject = subject
        self._shell = shell
        self._on_step = on_step
        self._id = uuid4().hex
        self._one_at_a_time = Lock()
        self._note = ""
        self._tried: Displayable | None = None
        self._controls = Controls(self._pressed)
        self.view = self._view()
        self._draw()

    # -- steps ---------------------------------------------------------------------------------

    def _pressed(self, step: str, *about: int | str) -> None:
        """Take one step, and show what it came to."""
        if not self._one_at_a_time.acquire(blocking=False):
            return
        try:
            self._note = ""
            try:
                getattr(self, f"_do_{step}")(*about)
            except (SessionError, ValueError) as error:
                self._note = words.one_line(str(error), 1000)
            except KeyboardInterrupt:
                self._note = _INTERRUPTED
            self.view = self._view()
            self._draw()
            self._publish(update=True)
            self._controls.move_on(step)
        finally:
            self._one_at_a_time.release()

    def _do_choose(self, number: int) -> None:
        self._step(self.consultation.chosen(number))

    def _do_unknown(self) -> None:
        self._step(self.consultation.unknown())

    def _do_back(self) -> None:
        self._step(self.consultation.undone())

    def _do_restart(self) -> None:
        self._step(self.consultation.restarted())

    def _do_leave(self) -> None:
        self._note = _LEFT
        self._on_step(None)

    def _do_check(self) -> None:
        question = self.consultation.question
        if question is None:
            return
        session = active.get()
        if session is not None and session.busy:
            self._note = _BUSY
            return
        self._controls.say("checking …")
        answer = inquiry.check(question, session, progress=self._controls.say)
        self._step(self.consultation.observed(answer))

    def _do_open(self, detail: str) -> None:
        """Look at something more closely; the same once more closes it."""
        now = "" if self.consultation.detail == detail else detail
        self._step(self.consultation.looking_at(now))

    def _do_repair(self) -> None:
        self._do_open("repair")

    def _do_explain(self) -> None:
        self._do_open("explain")

    def _do_run(self) -> None:
        """Run the corrected cell in place of the one that was diagnosed."""
        session, run, repair = active.get(), self._subject.run, self.view.repair
        if session is None or run is None or repair is None:
            return
        self._controls.say("the corrected cell runs …")
        cell = run.snapshot.cell
        again = session.run(
            repair.after,
            ranks=_ranks(run),
            trace=bool(run.snapshot.timeline),
            cell=cell.number,
            first_line=cell.first_line,
        )
        self._tried = api.compare(run, again)
        self._step(self.consultation.looking_at("tried"))

    def _step(self, consultation: Consultation) -> None:
        self.consultation = consultation
        self._on_step(consultation)

    # -- what is shown -------------------------------------------------------------------------

    def _view(self) -> ConsultationView:
        at_start = self.consultation.earlier is None
        return ConsultationView(
            self.consultation,
            snapshot=self._subject.snapshot,
            offer=offered(self.consultation),
            before=self._subject.before if at_start else None,
            detail=self._detail(),
        )

    def _detail(self) -> Displayable | None:
        match self.consultation.detail:
            case "":
                return None
            case "repair":
                repair = self.consultation.repair(self._subject.snapshot)
                return RepairView(repair) if repair is not None else None
            case "explain":
                return page(self.consultation.cause or self.consultation.symptom or "")
            case "tried":
                return self._tried
            case name:
                return _look(name, self._subject.run)

    def _draw(self) -> None:
        runs = self._runs(self.view.repair)
        self._controls.draw(self.view, note=self._note, runs=runs)
        if self._note == _LEFT:
            self._controls.close()

    def _runs(self, repair: Repair | None) -> str:
        """What running the corrected cell would do; empty unless it stands there to be read."""
        session, run = active.get(), self._subject.run
        if repair is None or not repair.derived or self.consultation.detail != "repair":
            return ""
        if session is None or run is None or session.last_run is not run or session.frozen:
            return ""
        ranks = words.count(len(_ranks(run)), "rank")
        return (
            f"runs the corrected cell on {ranks} of the session, with the variables they hold now"
        )

    # -- outputs -------------------------------------------------------------------------------

    def to_text(self) -> str:
        """What is shown now, as text."""
        return self.view.to_text()

    def to_html(self) -> str:
        """What is shown now, without buttons."""
        return self.view.to_html()

    def _publish(self, *, update: bool) -> None:
        bundle = self.view._repr_mimebundle_()
        saved = html.tag("div", Markup(bundle["text/html"]), role="saved")
        bundle["text/html"] = f"{style_sheet()}{saved}"
        self._shell.display_pub.publish(bundle, transient={"display_id": self._id}, update=update)

    def _ipython_display_(self) -> None:
        self._publish(update=False)
        bundle = self._controls.panel._repr_mimebundle_()
        bundle["text/plain"] = _AS_BUTTONS
        bundle["text/html"] = html.line(_AS_BUTTONS)
        self._shell.display_pub.publish(bundle)


def offered(consultation: Consultation) -> str:
    """What a check of the next question would do; empty if none would help."""
    question = consultation.question
    if question is None or not consultation.interview.can_check(question):
        return ""
    return inquiry.offer(question, active.get())


def _look(view: str, run: RunResult | None) -> Displayable:
    """A view of a run, or the reason for which there is none."""
    if run is None:
        return Message("nothing has run on ranks yet")
    try:
        return view_of(view, run)
    except (SessionError, ValueError) as error:
        return Message(f"{view}: {error}")


def _ranks(run: RunResult) -> tuple[int, ...]:
    """The ranks that were asked to run the cell."""
    return tuple(report.rank for report in run.snapshot.ranks if report.state != "idle")
