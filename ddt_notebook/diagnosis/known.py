"""What a run already answers of the guided tree's questions."""

from __future__ import annotations

from ddt_notebook.formatting import count
from ddt_notebook.model import RankReport, Snapshot

from .errors import first_of_chain, is_peer_error
from .report import diagnose
from .tree import Answer, Interview, find

_SETUP, _TRAINING, _IMPORTING = "B.1", "D.2.1", "A.2"
_ERROR, _GONE, _STILL = "C.1", "D.1.7", "D.2.1"
_LATER, _SILENT = "D.1.2", "D.2.4"
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError")


def begin(snapshot: Snapshot | None) -> Interview:
    """An interview in which everything that was observed is answered.

    Parameters
    ----------
    snapshot
        Of the last run; None if nothing has run.
    """
    if snapshot is None:
        return Interview()
    known = [answer(question, snapshot) for question in _SEEN]
    hints = dict.fromkeys(hint.symptom for hint in diagnose(snapshot).hints)
    return Interview(tuple(one for one in known if one is not None), tuple(hints))


def answer(question: str, snapshot: Snapshot) -> Answer | None:
    """What a run answers to one question; None if it says nothing about it.

    Parameters
    ----------
    question
        Id of the question.
    snapshot
        Of the run.
    """
    told = _SEEN[question](snapshot) if question in _SEEN else None
    return None if told is None else _like(question, *told)


def own_error(report: RankReport) -> str | None:
    """The class of the exception that a rank raised itself."""
    if report.error is None or report.error.released or is_peer_error(report.error):
        return None
    first = first_of_chain(report.error)
    return first.type if first is not None else report.error.type


def _like(question: str, code: str, told_by: str) -> Answer:
    """The choice that is true for a symptom."""
    chances = find(question).truths[code]
    return Answer(question, chances.index(max(chances)), told_by)


def _end(snapshot: Snapshot) -> tuple[str, str] | None:
    """A symptom of runs that come to their end, if this one did."""
    if snapshot.outcome != "ok":
        return None
    return _SILENT, "the last run came to its end, and no rank failed"


def _formed(snapshot: Snapshot) -> tuple[str, str] | None:
    """A symptom of jobs whose group was formed, if it was before the cell began."""
    if not snapshot.has_group or any(own_error(r) in _IMPORT_ERRORS for r in snapshot.ranks):
        return None
    return _TRAINING, "the session formed it"


def _stage(snapshot: Snapshot) -> tuple[str, str] | None:
    """A symptom of the stage that the job reached, and what tells it; None if nothing does."""
    for report in snapshot.ranks:
        error = own_error(report)
        if error in _IMPORT_ERRORS:
            return _IMPORTING, f"rank {report.rank} raised {error}"
    calls = [call for report in snapshot.ranks for call in report.calls]
    if not snapshot.has_group and not any(call.kind != "setup" for call in calls):
        if any(call.op == "init_process_group" and call.status != "done" for call in calls):
            return _SETUP, "init_process_group did not come to its end"
        return None
    if _steps(snapshot):
        return _TRAINING, "optimizers took steps in the last run"
    return None


def _shows(snapshot: Snapshot) -> tuple[str, str] | None:
    """A symptom that shows itself as the last run did, and what tells it."""
    for report in snapshot.ranks:
        if report.state == "died" and report.exit_signal is not None:
            return _GONE, f"rank {report.rank} was ended by signal {report.exit_signal}"
    if snapshot.outcome == "hung":
        return _STILL, "the last run hung"
    for report in snapshot.ranks:
        if (error := own_error(report)) is not None:
            return _ERROR, f"rank {report.rank} raised {error}"
    return None


def _first(snapshot: Snapshot) -> tuple[str, str] | None:
    """A symptom of runs that go well for some steps, if this one did."""
    steps = _steps(snapshot)
    if snapshot.outcome not in ("failed", "hung") or not steps:
        return None
    return _LATER, f"optimizers had taken up to {count(steps, 'step')}"


def _steps(snapshot: Snapshot) -> int:
    """The most steps that an optimizer took."""
    return max((o.steps for t in snapshot.training for o in t.optimizers), default=0)


_SEEN = {"end": _end, "formed": _formed, "stage": _stage, "shows": _shows, "first": _first}
