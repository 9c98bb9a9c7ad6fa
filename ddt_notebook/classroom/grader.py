"""Runs a student's cell on fresh ranks and grades what it did."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.host.session import Session, active
from ddt_notebook.model import Position
from ddt_notebook.program.parse import without_cell_magic
from ddt_notebook.symptoms import loader as taxonomy

from .evidence import Evidence, Journal, NotReached
from .exercise import Exercise
from .exercise_data import DATA_FILE, ExerciseData, draw_data
from .grade import Grade, Stop, Verdict

#: The cell numbers of the grader's own cells, and of the student's cell.
_OWN, CELL = 0, 1
_READ_LIMIT_S = 15.0
#: An interrupt takes two seconds; what runs for so long after it gets killed.
_LAST_S = 20.0
_SYMPTOMS_SHOWN = 2
_SPARE_PROCESSES = 100
_GIVE = """
from ddt_notebook.classroom.exercise_variable import ExerciseVariable as _ddt_variable
exercise = _ddt_variable(rank, {folder!r})
"""
_ENCLOSE = """
from ddt_notebook.classroom.sandbox import enclose as _ddt_enclose
_ddt_enclose({folder!r}, processes={processes}, file_bytes={file_bytes}, cpu_seconds={cpu},
             user_processes={user})
"""
_SEE = """
import ddt_notebook.classroom.exercise_variable as _ddt_variable
_ddt_seen = _ddt_variable.look(globals(), {names!r})
"""
_LOAD = """
import torch, ddt_notebook.classroom.exercise_variable as _ddt_variable
_ddt_seen = _ddt_variable.plain(torch.load({path!r}, weights_only=True))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits for a graded cell.

    Attributes
    ----------
    seconds
        Time limit, after which it is interrupted.
    timeout, hang_after
        As in `Session`.
    memory
        Memory that each rank may allocate.
    processes
        Number of processes that each rank may start.
    file_bytes
        The largest file that a rank may write, in bytes.
    """

    seconds: float = 30.0
    timeout: float = 5.0
    hang_after: float = 1.0
    memory: str = "1G"
    processes: int = 16
    file_bytes: int = 64 << 20


def give_variable(session: Session, data: ExerciseData, folder: Path) -> None:
    """Give the ranks of a session the variable ``exercise``.

    Raises
    ------
    SessionError
        If the ranks cannot create it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    data.save(folder / DATA_FILE)
    before = session.last_run, active.last_run()
    _run_own(session, _GIVE.format(folder=str(folder)))
    session.last_run = before[0]
    active.keep(before[1])


class Grader:
    """Grades one cell after the other, each on ranks that have run nothing else.

    Parameters
    ----------
    limits
        For each cell.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._sessions: dict[int, Session] = {}
        self._graded = 0

    def grade(self, exercise: Exercise, source: str, seed: int) -> Grade:
        """Run a cell and grade it.

        Parameters
        ----------
        exercise
            The exercise of the cell.
        source
            The cell, which may begin with a magic.
        seed
            Seed of the grader's data.

        Raises
        ------
        SessionError
            If the ranks cannot be started.
        """
        started = time.monotonic()
        seen = self._run(exercise, source, seed)
        verdicts = tuple(_judge(exercise, seen))
        passed = all(verdict.state == "ok" for verdict in verdicts)
        return Grade(
            exercise.name,
            verdicts,
            world_size=exercise.graded_n,
            seconds=time.monotonic() - started,
            symptoms=() if passed else _symptoms(seen),
            stop=_stop(seen),
        )

    def close(self) -> None:
        """Stop all sessions."""
        for session in self._sessions.values():
            session.stop()
        self._sessions.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, exercise: Exercise, source: str, seed: int) -> Evidence:
        session = self._fresh(exercise.graded_n)
        data = draw_data(exercise.setting, seed, exercise.graded_n)
        self._graded += 1
        folder = session.pool.directory / f"exercise{self._graded}"
        give_variable(session, data, folder)
        (folder / DATA_FILE).unlink()
        # opened, then unlinked: the cell finds no file in which it could write other events
        with contextlib.ExitStack() as stack:
            journals = {}
            for rank in range(exercise.graded_n):
                path = folder / f"rank{rank}.journal"
                journals[rank] = stack.enter_context(open(path, "rb"))
                path.unlink()
            _run_own(session, self._enclosing(folder))
            run = self._run_bounded(session, without_cell_magic(source))
            variables = _variables(session, exercise.leaves) if run.ok else {}
            noted = {rank: Journal.parse(file.read()) for rank, file in journals.items()}
        loaded = self._load(session, folder / exercise.file) if exercise.file and run.ok else None
        shutil.rmtree(folder, ignore_errors=True)  # the next cell must not read what is in it
        return Evidence(
            data=data,
            snapshot=run.snapshot,
            errors={rank: f"{e.type}: {e.message}" for rank, e in run.errors.items()},
            journals=noted,
            variables=variables,
            folder=folder,
            loaded=loaded,
            seconds=run.duration_s,
        )

    def _fresh(self, n: int) -> Session:
        session = self._sessions.get(n)
        if session is not None:
            try:
                session.restart()
            except SessionError:
                self._sessions.pop(n).stop()
            else:
                return session
        limits = self.limits
        with _other_session_stays_active():
            self._sessions[n] = Session(
                n,
                timeout=limits.timeout,
                hang_after=limits.hang_after,
                memory=limits.memory,
                confined=True,
            )
        return self._sessions[n]

    def _enclosing(self, folder: Path) -> str:
        limits = self.limits
        return _ENCLOSE.format(
            folder=str(folder),
            processes=limits.processes,
            file_bytes=limits.file_bytes,
            cpu=int(2 * limits.seconds) + 30,
            user=processes_allowed(limits.processes * len(self._sessions) * 4),
        )

    def _run_bounded(self, session: Session, source: str) -> RunResult:
        with _limit(session, self.limits.seconds):
            return session.run_cell(source, number=CELL, first_line=2)

    @staticmethod
    def _load(session: Session, path: Path) -> Any:
        """The content of a file that the cell wrote, as one fresh process reads it."""
        if not path.is_file():
            return None
        session.restart()
        with contextlib.suppress(SessionError), _limit(session, _READ_LIMIT_S):
            _run_own(session, _LOAD.format(path=str(path)), ranks=0)
            return session.pull("_ddt_seen", rank=0)
        return None


def _variables(session: Session, names: tuple[str, ...]) -> dict[int, dict[str, Any]]:
    """The named variables of each rank; empty if the ranks do not answer any more."""
    found: dict[int, dict[str, Any]] = {}
    try:
        with _limit(session, _READ_LIMIT_S):
            _run_own(session, _SEE.format(names=list(names)))
        for rank in range(session.world_size):
            held = session.pull("_ddt_seen", rank=rank)
            found[rank] = held if isinstance(held, dict) else {}
    except SessionError:
        return {rank: {} for rank in range(session.world_size)}
    return found


def _run_own(session: Session, source: str, ranks: int | None = None) -> None:
    run = session.run_cell(source, ranks, number=_OWN)
    if not run.ok:
        problem = next(map(str, run.errors.values()), run.snapshot.outcome)
        raise SessionError(f"the ranks could not be prepared: {problem}")


def _judge(exercise: Exercise, seen: Evidence) -> Iterator[Verdict]:
    for behaviour in exercise.behaviours:
        key, title = behaviour.key, behaviour.title
        try:
            message = behaviour.check(seen)
        except NotReached:
            yield Verdict(key, title, "not reached")
        except Exception as error:  # noqa: BLE001  (a cell can leave anything behind)
            yield Verdict(
                key, title, "fails", f"the variables of the ranks cannot be judged: {error}"
            )
        else:
            yield Verdict(key, title, "fails" if message else "ok", message)


def _symptoms(seen: Evidence) -> tuple[str, ...]:
    """The symptoms in the diagnosis; the student has to find the place and the cause."""
    codes = dict.fromkeys(finding.symptom for finding in diagnose(seen.snapshot).findings)
    return tuple(f"{c} {taxonomy.symptom(c).title}" for c in list(codes)[:_SYMPTOMS_SHOWN])


def _stop(seen: Evidence) -> Stop | None:
    """Where the first rank raised, else where a rank was when the cell did not end."""
    reports = seen.snapshot.ranks
    raised = [(r.error.at_s or 0.0, r.error) for r in reports if r.error and not r.error.released]
    if raised:
        first = min(raised, key=lambda one: one[0])[1]
        return Stop(_line(first.where), first.undefined_name)
    stood = next((r.position for r in reports if r.state not in ("finished", "idle")), None)
    return None if seen.ended else Stop(_line(stood))


def _line(at: Position | None) -> int:
    """The line of the cell without its magic, which a position counts."""
    return at.line - 1 if at is not None and at.cell == CELL else 0


def processes_allowed(more: int) -> int | None:
    """The limit for RLIMIT_NPROC: the present processes and threads of this user, and some more.

    None for root, to whom the kernel does not apply it.
    """
    user = os.getuid()
    if user == 0:
        return None
    now = 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == user:
            now += process.info["num_threads"] or 1
    return now + more + _SPARE_PROCESSES


@contextlib.contextmanager
def _other_session_stays_active() -> Iterator[None]:
    before = active.get()
    try:
        yield
    finally:
        active.set(before)


@contextlib.contextmanager
def _limit(session: Session, seconds: float) -> Iterator[None]:
    """Interrupt the session after the time limit, and kill its ranks if that did not help."""

    def kill() -> None:
        for handle in session.pool.handles:
            handle.signal(signal.SIGKILL)

    timers = [
        threading.Timer(seconds, session.interrupt),
        threading.Timer(seconds + _LAST_S, kill),
    ]
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
