"""What the last run already answers of the guided tree's questions."""

from __future__ import annotations

from ddt_notebook.model import RankReport, Snapshot

from .errors import first_of_chain, is_peer_error
from .tree import Answer, Interview, find

_SETUP, _TRAINING, _IMPORTING = "B.1", "D.2.1", "A.2"
_ERROR, _GONE, _STILL = "C.1", "D.1.7", "D.2.1"


def begin(snapshot: Snapshot | None) -> Interview:
    """An interview in which everything that was observed is answered.

    Parameters
    ----------
    snapshot
        Of the last run; None if nothing has run.
    """
    if snapshot is None:
        return Interview()
    answers = []
    stage = _stage(snapshot)
    if stage is not None:
        answers.append(_answer("stage", *stage))
    shows = _shows(snapshot)
    if shows is not None:
        answers.append(_answer("shows", *shows))
    return Interview(tuple(answers))


def _answer(question: str, like: str, told_by: str) -> Answer:
    """The choice that is true for a symptom."""
    chances = find(question).truths[like]
    return Answer(question, chances.index(max(chances)), told_by)


def _stage(snapshot: Snapshot) -> tuple[str, str] | None:
    """A symptom of the stage that the job reached, and what tells it; None if nothing does."""
    for report in snapshot.ranks:
        error = _own_error(report)
        if error in ("ImportError", "ModuleNotFoundError"):
            return _IMPORTING, f"rank {report.rank} raised {error}"
    calls = [call for report in snapshot.ranks for call in report.calls]
    if not snapshot.has_group and not any(call.kind != "setup" for call in calls):
        if any(call.op == "init_process_group" and call.status != "done" for call in calls):
            return _SETUP, "init_process_group did not come to its end"
        return None
    steps = sum(
        optimizer.steps for training in snapshot.training for optimizer in training.optimizers
    )
    if steps:
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
        if (error := _own_error(report)) is not None:
            return _ERROR, f"rank {report.rank} raised {error}"
    return None


def _own_error(report: RankReport) -> str | None:
    """The class of the exception that a rank raised itself."""
    if report.error is None or report.error.released or is_peer_error(report.error):
        return None
    first = first_of_chain(report.error)
    return first.type if first is not None else report.error.type
