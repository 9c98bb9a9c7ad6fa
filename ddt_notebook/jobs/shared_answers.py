"""Shares what monitors answer with readers on other hosts, through the job's folder.

Only the watcher of a rank's host can ask the rank's monitor, and only while that rank runs. It
writes the answers of a rank that begins or ends to wait inside a library, which the log of calls
does not show, and those of all its ranks when a reader asks a question. It also renews the time of
a file again and again. A reader believes that a rank still waits only as long as it sees that.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ..host.observed_rank import SILENT_AFTER_S
from ..host.rank_run import RankRun
from ..model import FormatError
from ..wire import job_files
from ..wire.job_files import Question, RankAnswers

#: The folder is searched for questions and answers at this interval, in seconds.
_LOOK_EVERY_S = 0.25
#: Seconds between two renewals of a watcher's file, and seconds without one after which a reader
#: ignores the waits in it.
_RENEW_EVERY_S, _BELIEVED_S = 2.0, 10.0
#: How many entries of the Flight Recorder ranks that wait write, and ranks that are asked: a rank
#: keeps 2,000.
_LATEST_ENTRIES, _ALL_ENTRIES = 60, 2000

#: On one host, waits that have lasted so long are written, in seconds, for who reads the folder
#: when everything was killed.
_LONG_WAIT_S = 2.0

#: What is written anew when it changes: the wait inside a library, silence, suspension.
_Shown = tuple[tuple[str, int] | None, bool, bool]
_AT_WORK: _Shown = (None, False, False)


class AnswersWriter:
    """Writes the answers of the ranks of this host.

    Parameters
    ----------
    folder
        The job's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._question = folder / job_files.QUESTION
        self._renewed = folder / f"{socket.gethostname()}{job_files.WATCHED}"
        self._answered = ""
        self._looked_s = self._renewed_s = 0.0
        self._shown: dict[Path, _Shown] = {}

    def write(
        self, runs: Iterable[RankRun], ask: Callable[[list[RankRun]], None], *, changes: bool
    ) -> None:
        """Answer a new question, and write what has changed; does nothing if called too soon.

        Parameters
        ----------
        runs
            The parts of the ranks whose monitors are asked here.
        ask
            Asks their monitors for everything.
        changes
            Whether other hosts take part in the job, so that all changes have to be shared.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = now_s
        if changes and now_s - self._renewed_s > _RENEW_EVERY_S:
            self._renewed_s = now_s
            with suppress(OSError):
                self._renewed.touch()
        name = self._new_question()
        runs = list(runs)
        if name is not None:
            self._answered = name
            ask(runs)
            self.write_all(runs)
            return
        for run in runs:
            shown = _shown(run) if changes else _long_wait(run)
            if shown != self._shown.get(run.handle.files, _AT_WORK):
                self._write(run, whole=False, shown=shown)

    def write_all(self, runs: Iterable[RankRun]) -> None:
        """Write all that is known of these ranks."""
        for run in runs:
            self._write(run, whole=True, shown=_shown(run))

    def _new_question(self) -> str | None:
        try:
            question = job_files.read(self._question)
        except (OSError, FormatError):
            return None
        known = isinstance(question, Question) and question.name != self._answered
        return question.name if isinstance(question, Question) and known else None

    def _write(self, run: RankRun, *, whole: bool, shown: _Shown) -> None:
        files = run.handle.files
        with suppress(OSError):  # such as a full disk: the others miss the answers
            job_files.write(_file(files), _answers(run, self._answered, whole=whole))
            self._shown[files] = shown


def _file(files: Path) -> Path:
    """The file of a rank's answers."""
    return files.with_name(f"{files.name}{job_files.ANSWERS}")


def _shown(run: RankRun) -> _Shown:
    if not run.unfinished:
        return _AT_WORK
    wait = run.library_wait[0] if run.library_wait is not None else None
    return wait, run.handle.silent_s > SILENT_AFTER_S, run.handle.stopped


def _long_wait(run: RankRun) -> _Shown:
    long = run.library_wait is not None and run.handle.lasts_s(run.library_wait[1]) > _LONG_WAIT_S
    return (_shown(run)[0], False, False) if long else _AT_WORK


def _answers(run: RankRun, question: str, *, whole: bool) -> RankAnswers:
    handle, recorder = run.handle, run.handle.recorder
    (group, number), since_s = run.library_wait or ((None, None), None)
    said = whole or _shown(run) != _AT_WORK
    most = _ALL_ENTRIES if whole else _LATEST_ENTRIES
    return RankAnswers(
        question=question,
        at_s=time.monotonic(),
        status=handle.status if said else None,
        waits_group=group,
        waits_number=number,
        waits_since_s=since_s,
        cpu_share=run.cpu_share if said else None,
        silent_s=handle.silent_s,
        stopped=handle.stopped,
        flight=recorder.flight(most) if recorder is not None else (),
        branches=handle.branch_values if whole else None,
    )


class AnswersReader:
    """Reads what the watchers of other hosts have written.

    Parameters
    ----------
    folder
        The job's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._looked_s = 0.0
        self._versions: dict[Path, tuple[int, int]] = {}
        self._renewed: dict[str, tuple[int, float]] = {}  # time of each host's file, and when seen

    def due(self) -> bool:
        """Whether to look again; True once in a while."""
        now_s = time.monotonic()
        due = now_s - self._looked_s >= _LOOK_EVERY_S
        if due:
            self._looked_s = now_s
        return due

    def new(self, files: Path) -> RankAnswers | None:
        """The answers of the rank that has these files, if they have changed."""
        try:
            # a network's file system looks a file up again when it is opened
            with _file(files).open("rb") as opened:
                found = os.fstat(opened.fileno())
            version = found.st_ino, found.st_mtime_ns
            if version == self._versions.get(files):
                return None
            answers = job_files.read(_file(files))
        except (OSError, FormatError):
            return None
        self._versions[files] = version
        return answers if isinstance(answers, RankAnswers) else None

    def ask(
        self, ranks: Mapping[Path, str], give: Callable[[Path, RankAnswers], None], limit_s: float
    ) -> set[Path]:
        """Ask the watchers what their ranks do now, and wait for the answers.

        Parameters
        ----------
        ranks
            The files of each rank, and the question that was answered before.
        give
            Gets the answers of a rank.
        limit_s
            How long to wait.

        Returns
        -------
        set
            The ranks whose watcher has answered.
        """
        answered: set[Path] = set()
        file, question = self._folder / job_files.QUESTION, Question(name=secrets.token_hex(8))
        try:
            job_files.write(file, question)
        except OSError:  # this user may only read
            return answered
        until_s = time.monotonic() + limit_s
        while len(answered) < len(ranks) and time.monotonic() < until_s:
            for files in ranks.keys() - answered:
                answers = self.new(files)
                if answers is not None:
                    give(files, answers)
                    # an answer to the later question of another reader is as fresh
                    if answers.question != ranks[files]:
                        answered.add(files)
            time.sleep(_LOOK_EVERY_S / 5)
        with suppress(OSError, FormatError):
            if job_files.read(file) == question:
                file.unlink()
        return answered

    def watched(self, host: str) -> bool:
        """Whether the watcher of a host has renewed its file lately, on the clock of this one."""
        try:
            with (self._folder / f"{host}{job_files.WATCHED}").open("rb") as opened:
                renewed_ns = os.fstat(opened.fileno()).st_mtime_ns
        except OSError:
            return False
        before_ns, seen_s = self._renewed.get(host, (0, 0.0))
        if renewed_ns != before_ns:
            seen_s = time.monotonic()
            self._renewed[host] = renewed_ns, seen_s
        return time.monotonic() - seen_s < _BELIEVED_S
