"""Answers questions without the user: from the last run, or with a short test.

`answers_of_run` reads what the last run already shows. `offer` says what a check would do, and
`check` does it. A check that runs cells again runs them on fresh ranks and ends these afterwards,
so the variables of the session stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..diagnosis import diagnose
from ..diagnosis.compare_runs import compare_alone
from ..diagnosis.errors import first_of_chain, is_peer_error
from ..diagnosis.text import diagnose_text
from ..formatting import count
from ..host.errors import SessionError
from ..host.rerun import limit_of, run_alone, run_apart
from ..host.run_result import RunResult
from ..host.session import active
from ..model import Fact, Finding, RankReport, Snapshot
from ..preflight.versions import form_group, read_versions
from .questions import Answer, Question, Questionnaire, find

#: Shows the user what a check is doing.
Progress = Callable[[str], None]

#: How often a cell without a failure runs again: some faults occur only now and then.
_TIMES = 3
#: The largest and the smallest number of processes in a test of the process group.
_MOST, _LEAST = 4, 2
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError")
#: A choice is the answer to which a finding points if it is at least this likely to be true.
_POINTS = 0.5


def last_run() -> RunResult | None:
    """The last run of the session, or of the one that was stopped; None before the first run."""
    session = active.get()
    run = session.last_run if session is not None else None
    return run or active.last_run()


# -- what the last run already answers -------------------------------------------------------------

#: The name of a choice, and what was observed; None if the run does not answer the question.
_Seen = tuple[str, Fact] | None


def answers_of_run(snapshot: Snapshot | None) -> Questionnaire:
    """The questions that a run answers by itself.

    Parameters
    ----------
    snapshot
        Of the run; None if nothing has run.
    """
    if snapshot is None:
        return Questionnaire()
    answers = [answer_of_run(question, snapshot) for question in _READ_FROM_RUN]
    hints = dict.fromkeys(hint.symptom for hint in diagnose(snapshot).hints)
    return Questionnaire(tuple(one for one in answers if one is not None), tuple(hints))


def answer_of_run(question: str, snapshot: Snapshot) -> Answer | None:
    """The answer of a run to the question with this id; None if it does not answer it."""
    seen = _READ_FROM_RUN[question](snapshot) if question in _READ_FROM_RUN else None
    return Answer(question, find(question).choice_named(seen[0]), "run", seen[1]) if seen else None


def own_error(report: RankReport) -> str | None:
    """The class of the exception that a rank raised itself, not because another rank failed."""
    if report.error is None or report.error.released or is_peer_error(report.error):
        return None
    first = first_of_chain(report.error)
    return first.type if first is not None else report.error.type


def _ended(snapshot: Snapshot) -> _Seen:
    return ("yes", _seen("ended-well")) if snapshot.outcome == "ok" else None


def _group_formed(snapshot: Snapshot) -> _Seen:
    if not snapshot.has_group or any(own_error(r) in _IMPORT_ERRORS for r in snapshot.ranks):
        return None
    return "yes", _seen("group-formed")


def _stage_reached(snapshot: Snapshot) -> _Seen:
    for report in snapshot.ranks:
        if (error := own_error(report)) in _IMPORT_ERRORS:
            return "import", _seen("raised", report.rank, error=error)
    calls = [call for report in snapshot.ranks for call in report.calls]
    if not snapshot.has_group and not any(call.kind != "setup" for call in calls):
        if any(call.op == "init_process_group" and call.status != "done" for call in calls):
            return "setup", _seen("setup-unfinished")
        return None
    return ("training", _seen("steps-taken")) if _steps(snapshot) else None


def _failure_shown(snapshot: Snapshot) -> _Seen:
    for report in snapshot.ranks:
        if report.state == "died" and report.exit_signal is not None:
            return "exit", _seen("killed", report.rank, signal=report.exit_signal)
    if snapshot.outcome == "hung":
        return "hang", _seen("hung")
    for report in snapshot.ranks:
        if (error := own_error(report)) is not None:
            return "error", _seen("raised", report.rank, error=error)
    return None


def _failed_later(snapshot: Snapshot) -> _Seen:
    steps = _steps(snapshot)
    if snapshot.outcome not in ("failed", "hung") or not steps:
        return None
    return "later", _seen("steps-before-failure", steps=steps)


def _steps(snapshot: Snapshot) -> int:
    """The largest number of steps that an optimizer took."""
    return max((o.steps for t in snapshot.training for o in t.optimizers), default=0)


def _seen(kind: str, *ranks: int, **values: Any) -> Fact:
    return Fact(kind=kind, ranks=ranks, values=values)


#: For each question that a run can answer the function that reads the answer.
_READ_FROM_RUN: dict[str, Callable[[Snapshot], _Seen]] = {
    "end": _ended,
    "formed": _group_formed,
    "stage": _stage_reached,
    "shows": _failure_shown,
    "first": _failed_later,
}


# -- checks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scene:
    """What a check works with.

    Attributes
    ----------
    snapshot
        Of the last run, None if nothing has run.
    ranks, backend
        The number of ranks and the backend of the last run, else those of the session.
    """

    snapshot: Snapshot | None
    ranks: int
    backend: str

    @property
    def last(self) -> Snapshot:
        """The last run; only checks that are offered after a run read it."""
        assert self.snapshot is not None
        return self.snapshot


@dataclass(frozen=True, slots=True)
class _Check:
    """A check.

    Attributes
    ----------
    offer
        Says what the check would do; empty if it can do nothing in this scene.
    run
        Does it.
    """

    offer: Callable[[_Scene], str]
    run: Callable[[Question, _Scene, Progress], Answer]


def offer(question: Question) -> str:
    """What `check` would do to answer a question, in words; empty if no check can answer it."""
    known = _CHECKS.get(question.check)
    return known.offer(_scene()) if known is not None else ""


def check(question: Question, progress: Progress = lambda text: None) -> Answer:
    """Answer a question with the last run or with a short test.

    Parameters
    ----------
    question
        A question for which `offer` is not empty.
    progress
        Called with a line about what the check is doing.

    Returns
    -------
    Answer
        Its ``choice`` is None if the check has no result; ``seen`` says why.

    Raises
    ------
    ValueError
        If no check can answer the question.
    """
    scene = _scene()
    known = _CHECKS.get(question.check)
    if known is None or not known.offer(scene):
        raise ValueError("no check can answer this question")
    try:
        return known.run(question, scene, progress)
    except SessionError as error:
        return _answer(question, None, "test-not-started", message=str(error))


def _scene() -> _Scene:
    run, session = last_run(), active.get()
    if run is not None:
        return _Scene(run.snapshot, run.snapshot.world_size, run.snapshot.backend)
    if session is not None:
        return _Scene(None, session.world_size, session.backend)
    return _Scene(None, _LEAST, "gloo")


def _answer(question: Question, choice: int | None, kind: str, **values: Any) -> Answer:
    return Answer(question.id, choice, "check", _seen(kind, **values))


# -- from the error of the last run ----------------------------------------------------------------


def _error_offer(scene: _Scene) -> str:
    message = _error_of(scene)
    return f"read the error of the last run: {message.splitlines()[0]}" if message else ""


def _read_error(question: Question, scene: _Scene, progress: Progress) -> Answer:
    message = _error_of(scene)
    for found in (*diagnose(scene.last).findings[:1], *diagnose_text(message).findings[:1]):
        if found.confidence != "possible":
            return _answer(question, question.choice_for(found.symptom), **_named(found))
    return _answer(question, None, "unknown-error", message=message.splitlines()[0])


def _error_of(scene: _Scene) -> str:
    """The first error that a rank raised itself, as Python prints it; empty if there is none."""
    for report in scene.snapshot.ranks if scene.snapshot is not None else ():
        if report.error is not None and own_error(report) is not None:
            return f"{report.error.type}: {report.error.message}".rstrip(": ")
    return ""


def _named(finding: Finding) -> dict[str, str]:
    return {"kind": "finding", "symptom": finding.symptom, "title": finding.title}


# -- a new process group ---------------------------------------------------------------------------


def _start_offer(scene: _Scene) -> str:
    return f"import torch in a fresh Python, then {_group_offer(scene)}"


def _group_offer(scene: _Scene) -> str:
    return (
        f"let {_processes(scene)} fresh processes form a group ({_backend(scene)}) and reduce one "
        "number, on this machine; this takes some seconds"
    )


def _processes(scene: _Scene) -> int:
    least = 1 if _backend(scene) == "nccl" else _LEAST  # NCCL needs a GPU for each process
    return min(_MOST, max(least, scene.ranks))


def _backend(scene: _Scene) -> str:
    return scene.backend or "gloo"


def _start(question: Question, scene: _Scene, progress: Progress) -> Answer:
    """Check the start of a job: import torch, then form a group."""
    progress("importing torch in a fresh Python …")
    versions, ended = read_versions()
    if not versions:
        message = ended.last_error or "it took longer than a minute"
        return _answer(question, question.choice_for("A.2"), "import-failed", message=message)
    symptom, kind, values = _form_group(scene, progress)
    if symptom:
        return _answer(question, question.choice_for(symptom), kind, **values)
    return _answer(question, None, "torch-and-group-work", **values)


def _group(question: Question, scene: _Scene, progress: Progress) -> Answer:
    symptom, kind, values = _form_group(scene, progress)
    return _answer(question, question.choice_named("no" if symptom else "yes"), kind, **values)


def _form_group(scene: _Scene, progress: Progress) -> tuple[str, str, dict[str, Any]]:
    """The symptom of a group that could not be formed (empty if it could), and the observation."""
    backend, size = _backend(scene), _processes(scene)
    progress(f"forming a group of {size} processes …")
    failed = form_group(backend, size)
    values = {"processes": size, "backend": backend}
    if failed is None:
        return "", "group-works", values
    if failed.status is None:
        return "B.2", "group-timed-out", values
    return "B.1", "group-failed", values | {"message": failed.last_error}


# -- the last cell once more -----------------------------------------------------------------------


def _again_offer(scene: _Scene) -> str:
    if scene.snapshot is None:
        return ""
    times = _times(scene.snapshot)
    often = "once more" if times == 1 else f"up to {times} more times, each time"
    return f"run the last cell {often} on {_fresh_ranks(scene.snapshot, scene.snapshot.world_size)}"


def _reached_offer(scene: _Scene) -> str:
    return _again_offer(scene) or _start_offer(scene)


def _trace_offer(scene: _Scene) -> str:
    again = _again_offer(scene)
    return f"{again}; every probe is on" if again else ""


def _alone_offer(scene: _Scene) -> str:
    snapshot = scene.snapshot
    if snapshot is None or snapshot.outcome not in ("failed", "hung") or scene.ranks == 1:
        return ""
    return f"run the last cell on {_fresh_ranks(snapshot, 1)}"


def _fresh_ranks(snapshot: Snapshot, ranks: int) -> str:
    """Where a cell runs again, and for how long."""
    limit, earlier = limit_of(snapshot), len(snapshot.earlier_cells)
    after = f" after {count(earlier, 'earlier cell')} of the session" if earlier else ""
    each = " and at most as long for the earlier cells" if earlier else ""
    return (
        f"{count(ranks, 'fresh rank')}{after}, for at most {limit:.0f} s{each}; the variables of "
        "the session stay as they are, and files that the cells write are written again"
    )


def _times(snapshot: Snapshot) -> int:
    return _TIMES if snapshot.outcome == "ok" else 1


def _run_again(snapshot: Snapshot, progress: Progress, *, trace: bool) -> Snapshot:
    """The first of some runs that fails or hangs, else the last."""
    times = _times(snapshot)
    for number in range(1, times + 1):
        of = f" ({number} of {times})" if times > 1 else ""
        ranks = count(snapshot.world_size, "fresh rank")
        progress(f"running {snapshot.cell.title} on {ranks}{of} …")
        ran = run_apart(snapshot, n=snapshot.world_size, trace=trace).snapshot
        if ran.outcome != "ok":
            break
    return ran


def _without_result(question: Question, last: Snapshot, ran: Snapshot) -> Answer | None:
    """The answer if another run of the cell gave no result; None if it gave one."""
    if ran.outcome == "interrupted":
        return _answer(question, None, "still-running")
    errors = {own_error(report) for report in ran.ranks}
    if "NameError" in errors and "NameError" not in map(own_error, last.ranks):
        return _answer(question, None, "needs-variables")
    return None


def _again(question: Question, scene: _Scene, progress: Progress) -> Answer:
    ran = _run_again(scene.last, progress, trace=False)
    found = _without_result(question, scene.last, ran) or answer_of_run(question.id, ran)
    if found is not None:
        return found
    if ran.outcome == "ok":
        return _answer(question, None, "ran-well", runs=_times(scene.last))
    return _answer(question, None, "failed-without-answer")


def _reached(question: Question, scene: _Scene, progress: Progress) -> Answer:
    return (_start if scene.snapshot is None else _again)(question, scene, progress)


def _trace(question: Question, scene: _Scene, progress: Progress) -> Answer:
    """Check whether the findings of a run with every probe on point to one of the choices."""
    ran = _run_again(scene.last, progress, trace=True)
    if without := _without_result(question, scene.last, ran):
        return without
    report = diagnose(ran)
    pointed = _pointed_to(question, (*report.findings, *report.hints))
    if pointed is not None:
        return pointed
    if not report.findings:
        return _answer(question, None, "nothing-found")
    # a question about one symptom: another one that is certain answers it
    no = question.symptom and report.findings[0].confidence == "certain"
    choice = question.choice_named("no") if no else None
    return _answer(question, choice, **_named(report.findings[0]))


def _pointed_to(question: Question, findings: Iterable[Finding]) -> Answer | None:
    """The choice of the first finding that points to a choice."""
    for finding in findings:
        choice = question.choice_for(finding.symptom)
        points = question.likelihoods[finding.symptom][choice] > _POINTS
        if points and question.choices[choice].name not in ("other", "no"):
            return _answer(question, choice, **_named(finding))
    return None


def _alone(question: Question, scene: _Scene, progress: Progress) -> Answer:
    last = scene.last
    progress(f"running {last.cell.title} on one rank …")
    ran = run_alone(last).snapshot
    if without := _without_result(question, last, ran):
        return without
    found = compare_alone(last, diagnose(last), ran)
    if found.verdict in ("also", "called"):
        yes = question.choice_named("yes")
        return _answer(question, yes, "fails-alone", ending=found.alone)
    if found.verdict == "several":
        return _answer(question, question.choice_named("no"), "works-alone")
    return _answer(question, None, "fails-otherwise-alone", ending=found.alone)


_CHECKS = {
    "alone": _Check(_alone_offer, _alone),
    "again": _Check(_again_offer, _again),
    "error": _Check(_error_offer, _read_error),
    "group": _Check(_group_offer, _group),
    "reached": _Check(_reached_offer, _reached),
    "start": _Check(_start_offer, _start),
    "trace": _Check(_trace_offer, _trace),
}
#: Names of the checks, as ``questions.toml`` uses them.
NAMES = frozenset(_CHECKS)
