"""Checks that answer a question of the guided tree: from the last run, or from a short test run.

What a check would do is said by `offer`, before `check` does it. Cells run again on fresh ranks,
which are ended afterwards: the variables of the session stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .diagnosis import diagnose, known
from .diagnosis.compare import compare_alone
from .diagnosis.text import diagnose_text
from .diagnosis.tree import ELSE, NO, YES, Answer, Question
from .formatting import count
from .host import active
from .host.errors import SessionError
from .host.session import Session
from .host.single_rank import limit_of, run_alone, run_apart
from .model import Finding, Snapshot
from .preflight.versions import form_group, read_versions

Progress = Callable[[str], None]

#: How often a cell runs again that was well: some faults come and go.
_TIMES = 3
#: Processes that a group is formed of, and the fewest.
_MOST, _LEAST = 4, 2
_HERE = "on this machine"


@dataclass(frozen=True, slots=True)
class _Scene:
    """What a check has to go by: the last run, if any, and how many ranks with which backend."""

    snapshot: Snapshot | None
    ranks: int
    backend: str


@dataclass(frozen=True, slots=True)
class _Probe:
    """What a check would do, in words (empty: it can do nothing here), and the check."""

    offer: Callable[[Question, _Scene], str]
    check: Callable[[Question, _Scene, Progress], Answer]


def last_snapshot(session: Session | None) -> Snapshot | None:
    """What was observed last, also after the session was stopped; None if nothing has run."""
    run = session.last_run if session is not None else None
    run = run or active.last_run()
    return run.snapshot if run is not None else None


def offer(question: Question, session: Session | None) -> str:
    """What `check` would do to answer a question, in words; empty if nothing can answer it.

    Parameters
    ----------
    question
        Of the guided tree.
    session
        The active one, None if there is none.
    """
    probe = _PROBES.get(question.probe)
    return probe.offer(question, _scene(session)) if probe is not None else ""


def check(
    question: Question, session: Session | None, progress: Progress = lambda text: None
) -> Answer:
    """Answer a question by looking, or by a short test run.

    Parameters
    ----------
    question
        Of the guided tree, one for which `offer` is not empty.
    session
        The active one, None if there is none.
    progress
        Told what is done now.

    Returns
    -------
    Answer
        ``choice`` is None if it could not be told; ``told_by`` says what was observed.

    Raises
    ------
    ValueError
        If nothing can answer the question.
    """
    scene = _scene(session)
    probe = _PROBES.get(question.probe)
    if probe is None or not probe.offer(question, scene):
        raise ValueError("no check answers this question")
    try:
        return probe.check(question, scene, progress)
    except SessionError as error:
        return Answer(question.id, None, f"the test run could not begin: {error}")


def _scene(session: Session | None) -> _Scene:
    snapshot = last_snapshot(session)
    if snapshot is not None:
        return _Scene(snapshot, snapshot.world_size, snapshot.backend)
    if session is not None:
        return _Scene(None, session.world_size, session.backend)
    return _Scene(None, _LEAST, "gloo")


# -- from the last run -----------------------------------------------------------------------------


def _error_offer(question: Question, scene: _Scene) -> str:
    message = _error_of(scene)
    return f"read the error of the last run: {message.splitlines()[0]}" if message else ""


def _read_error(question: Question, scene: _Scene, progress: Progress) -> Answer:
    assert scene.snapshot is not None
    message = _error_of(scene)
    for found in (*diagnose(scene.snapshot).findings[:1], *diagnose_text(message).findings[:1]):
        if found.confidence != "possible":
            return _as_symptom(question, found.symptom, f"{found.symptom}: {found.title}")
    first = message.splitlines()[0]
    return Answer(question.id, None, f"the words «{first}» are of no known error")


def _error_of(scene: _Scene) -> str:
    """The first rank's own error in the last run, as Python prints it; empty if none raised."""
    if scene.snapshot is None:
        return ""
    for report in scene.snapshot.ranks:
        if report.error is not None and known.own_error(report) is not None:
            return f"{report.error.type}: {report.error.message}".rstrip(": ")
    return ""


def _pointed_to(question: Question, findings: Iterable[Finding], else_told: str) -> Answer:
    """The choice to which the first finding points that points to any."""
    for finding in findings:
        chances = question.truths[finding.symptom]
        choice = chances.index(max(chances))
        if max(chances) > 0.5 and question.choices[choice] not in (ELSE, NO):
            return Answer(question.id, choice, f"{finding.symptom}: {finding.title}")
    return Answer(question.id, None, else_told)


# -- a group of processes --------------------------------------------------------------------------


def _start_offer(question: Question, scene: _Scene) -> str:
    return f"import torch in a fresh Python, then {_group_words(scene)}"


def _group_offer(question: Question, scene: _Scene) -> str:
    return _group_words(scene)


def _group_words(scene: _Scene) -> str:
    return (
        f"have {_processes(scene)} fresh processes form a group ({_backend(scene)}) and reduce one "
        f"number, {_HERE}; some seconds"
    )


def _processes(scene: _Scene) -> int:
    least = 1 if _backend(scene) == "nccl" else _LEAST  # NCCL wants a GPU for each
    return min(_MOST, max(least, scene.ranks))


def _backend(scene: _Scene) -> str:
    return scene.backend or "gloo"


def _start(question: Question, scene: _Scene, progress: Progress) -> Answer:
    """Of how a job starts: torch is imported, then a group is formed."""
    progress("importing torch in a fresh Python …")
    facts, ended = read_versions()
    if not facts:
        told = ended.last_error or "it took longer than a minute"
        return _as_symptom(question, "A.2", f"importing torch fails {_HERE}: {told}")
    code, told = _formed(scene, progress)
    if code:
        return _as_symptom(question, code, told)
    return Answer(question.id, None, f"torch can be imported {_HERE}, and {told}")


def _group(question: Question, scene: _Scene, progress: Progress) -> Answer:
    code, told = _formed(scene, progress)
    # "D.2.1": any symptom after the group was formed
    return _as_symptom(question, code or "D.2.1", told)


def _formed(scene: _Scene, progress: Progress) -> tuple[str, str]:
    """The symptom with which no group is formed, empty if one is; and what was seen."""
    backend, size = _backend(scene), _processes(scene)
    progress(f"forming a group of {size} processes …")
    failed = form_group(backend, size)
    if failed is None:
        return "", f"{size} processes formed a group ({backend}) and reduced a number {_HERE}"
    if failed.status is None:
        return "B.2", f"{size} processes formed no group ({backend}) within the limit {_HERE}"
    return "B.1", f"{size} processes formed no group ({backend}) {_HERE}: {failed.last_error}"


def _as_symptom(question: Question, code: str, told_by: str) -> Answer:
    """The choice that is true for a symptom."""
    chances = question.truths[code]
    return Answer(question.id, chances.index(max(chances)), told_by)


# -- the last cell once more -----------------------------------------------------------------------


def _again_offer(question: Question, scene: _Scene) -> str:
    return _run_words(scene) if scene.snapshot is not None else ""


def _reached_offer(question: Question, scene: _Scene) -> str:
    return _again_offer(question, scene) or _start_offer(question, scene)


def _trace_offer(question: Question, scene: _Scene) -> str:
    words = _again_offer(question, scene)
    return f"{words}; every probe looks on" if words else ""


def _run_words(scene: _Scene) -> str:
    snapshot = scene.snapshot
    assert snapshot is not None
    times = _times(snapshot)
    often = "once more" if times == 1 else f"up to {times} times more, each time"
    return f"run the last cell {often} on {_fresh(snapshot, snapshot.world_size)}"


def _fresh(snapshot: Snapshot, ranks: int) -> str:
    """Where and for how long cells run again."""
    limit, earlier = limit_of(snapshot), len(snapshot.earlier_cells)
    after = f" after {count(earlier, 'earlier cell')} of the session" if earlier else ""
    each = ", the earlier ones for as long" if earlier else ""
    return (
        f"{count(ranks, 'fresh rank')}{after}, for at most {limit:.0f} s{each}; the session's "
        "variables stay as they are, files that the cells write are written again"
    )


def _times(snapshot: Snapshot) -> int:
    return _TIMES if snapshot.outcome == "ok" else 1


def _run_again(scene: _Scene, progress: Progress, *, trace: bool) -> Snapshot:
    """The first of a few runs that is not well, else the last."""
    snapshot = scene.snapshot
    assert snapshot is not None
    times = _times(snapshot)
    for number in range(1, times + 1):
        of = f" ({number} of {times})" if times > 1 else ""
        ranks = count(snapshot.world_size, "fresh rank")
        progress(f"running cell[{snapshot.cell.number}] on {ranks}{of} …")
        ran = run_apart(snapshot, n=snapshot.world_size, trace=trace).snapshot
        if ran.outcome != "ok":
            break
    return ran


def _untold(snapshot: Snapshot, ran: Snapshot) -> str:
    """Why another run tells nothing; empty if it does."""
    if ran.outcome == "interrupted":
        return "the cell was still running when its time was over, or it was interrupted"
    missing = {known.own_error(report) for report in ran.ranks}
    if "NameError" in missing and "NameError" not in map(known.own_error, snapshot.ranks):
        return "the cell needs variables that only the session has"
    return ""


def _again(question: Question, scene: _Scene, progress: Progress) -> Answer:
    assert scene.snapshot is not None
    ran = _run_again(scene, progress, trace=False)
    if told := _untold(scene.snapshot, ran):
        return Answer(question.id, None, told)
    found = known.answer(question.id, ran)
    return found or Answer(question.id, None, _uneventful(scene.snapshot, ran, question))


def _uneventful(snapshot: Snapshot, ran: Snapshot, question: Question) -> str:
    if ran.outcome == "ok":
        times = count(_times(snapshot), "run")
        return f"{times}: the cell came to its end, and no rank failed"
    return "the cell failed again, but how it did does not tell"


def _reached(question: Question, scene: _Scene, progress: Progress) -> Answer:
    if scene.snapshot is None:
        return _start(question, scene, progress)
    return _again(question, scene, progress)


def _trace(question: Question, scene: _Scene, progress: Progress) -> Answer:
    """Whether what is found with every probe on points to one of the choices."""
    assert scene.snapshot is not None
    ran = _run_again(scene, progress, trace=True)
    if told := _untold(scene.snapshot, ran):
        return Answer(question.id, None, told)
    report = diagnose(ran)
    seen = next((f"found: {f.symptom} {f.title}" for f in report.findings), "nothing stood out")
    answer = _pointed_to(question, [*report.findings, *report.hints], seen)
    if answer.choice is None and question.choices == (YES, NO):
        certain = any(finding.confidence == "certain" for finding in report.findings[:1])
        return Answer(question.id, question.choices.index(NO) if certain else None, seen)
    return answer


def _alone_offer(question: Question, scene: _Scene) -> str:
    snapshot = scene.snapshot
    if snapshot is None or snapshot.outcome not in ("failed", "hung") or scene.ranks == 1:
        return ""
    return f"run the last cell on {_fresh(snapshot, 1)}"


def _alone(question: Question, scene: _Scene, progress: Progress) -> Answer:
    snapshot = scene.snapshot
    assert snapshot is not None
    progress(f"running cell[{snapshot.cell.number}] on one rank …")
    ran = run_alone(snapshot).snapshot
    if told := _untold(snapshot, ran):
        return Answer(question.id, None, told)
    found = compare_alone(snapshot, diagnose(snapshot), ran)
    if found.verdict in ("also", "called"):
        return Answer(question.id, 0, f"one rank alone fails as well: {found.alone}")
    if found.verdict == "several":
        return Answer(question.id, 1, "one rank alone finishes the cell")
    return Answer(question.id, None, f"one rank alone fails in another way: {found.alone}")


_PROBES = {
    "alone": _Probe(_alone_offer, _alone),
    "again": _Probe(_again_offer, _again),
    "error": _Probe(_error_offer, _read_error),
    "group": _Probe(_group_offer, _group),
    "reached": _Probe(_reached_offer, _reached),
    "start": _Probe(_start_offer, _start),
    "trace": _Probe(_trace_offer, _trace),
}
#: Names of the checks, as ``questions.toml`` uses them.
PROBES = frozenset(_PROBES)
