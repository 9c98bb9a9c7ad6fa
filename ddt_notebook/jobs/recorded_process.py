"""One process of a recorded job: what its files show, and how it ended."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from ..host.call_log_reader import RankRecorder
from ..host.observed_rank import ObservedRank
from ..host.process import LocalProcess
from ..model import FormatError
from ..wire import job_files
from ..wire.branch_ring import BranchRingReader
from ..wire.channel import Channel
from ..wire.job_files import RankAnswers, RankGone, RankStarted
from ..wire.messages import CellEnded, Message
from ..wire.ring import RingReader

#: Signals by which a launcher or a person ends a process. The process did nothing wrong.
FROM_OUTSIDE = (-signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT, -signal.SIGHUP)
#: What faulthandler writes for the signals that it handles.
_FATAL = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Floating": signal.SIGFPE,
    "Illegal": signal.SIGILL,
}
#: Two readings of a process's start, from its clock ticks, differ by less than this, in seconds.
_SAME_START_S = 1.0
#: Within this time an exception that left a call has left the user's code, too, in seconds.
_UNWINDS_S = 5.0
#: No job has so many ranks, and no clock shows such a time, in seconds.
_MOST_RANKS, _LATEST_S = 1 << 20, 1e11
#: faulthandler writes at most 100 threads with 100 lines each.
_LONGEST_CRASH = 2_000_000
#: A rank's monitor accepts a connection within this time, in seconds.
_CONNECT_LIMIT_S = 1.0

M = TypeVar("M", bound=Message)


class RecordedRank(ObservedRank):
    """A process of a recorded job.

    Parameters
    ----------
    file
        Its `RankStarted`.
    watched
        True for the watcher of a running job, which notes when processes end. Another reader
        takes a process of another machine as running only if that machine's watcher answers.
    """

    def __init__(self, file: Path, *, watched: bool) -> None:
        started = job_files.read(file)
        if not isinstance(started, RankStarted) or not _is_possible(started):
            raise FormatError(f"{file} does not describe a rank")
        super().__init__(started.rank or 0, file.with_suffix(""))
        self.started = started
        self.pid = started.pid
        self.torch_version = started.torch_version
        self.missing_features = started.missing_features
        self.is_here = started.host == socket.gethostname()
        self.gone_s: float | None = None  #: when its process ended; None while it runs
        self.end_is_known = False  #: whether anything shows that its process has ended
        self.shared: RankAnswers | None = None  #: what the watcher of another host has shared
        self.answers: bool | None = (
            None  #: whether that watcher answered this reader; None: unasked
        )
        self._blocked_seen = 0.0, 0.0  # since when it waits on its own clock, and here
        self._watched = watched
        self._process: psutil.Process | None = None
        self._calls = RingReader(self._file("calls"))
        self.recorder = RankRecorder(self._calls, lambda cell, line: "", wall_s=self.wall_s)
        with suppress(OSError, FormatError):
            self.branch_ring = BranchRingReader(self._file("branches"))
        if self.is_here:
            with suppress(psutil.Error):
                process = psutil.Process(self.pid)
                if abs(process.create_time() - started.born_s) < _SAME_START_S:
                    self._process, self.host_process = process, LocalProcess(process)

    @property
    def host(self) -> str:
        """The name of its host, as the rank has recorded it."""
        return self.started.host

    @property
    def generation(self) -> tuple[str, int]:
        """Its job, and how often torchrun had restarted the ranks of it."""
        return self.started.job, self.started.generation

    @property
    def noted_end_s(self) -> float | None:
        """When it ended, in seconds since the epoch, if it or a watcher has noted that."""
        noted = self.end or self._message("gone", RankGone)
        return None if noted is None else noted.ended_s + self.wall_s

    @property
    def last_recorded_s(self) -> float:
        """When it last began or ended a call, or started."""
        return max(self.started.started_s, self._calls.changed_s)

    @property
    def wall_s(self) -> float:
        """The wall clock of its host minus the monotonic clock."""
        return self.started.wall_s - self.started.started_s

    @property
    def now_s(self) -> float:
        """The time at which the rank is looked at: now, or the end of its process."""
        if self.gone_s is not None:
            return self.gone_s
        if self.is_here:
            return time.monotonic()
        return max(self.last_recorded_s, self.shared.at_s if self.shared is not None else 0.0)

    def lasts_s(self, since_s: float) -> float:
        """For how long a wait has lasted so far; of another host's rank, since it was first seen.

        The clocks of the hosts are not aligned before a report is made.
        """
        if self.is_here:
            return super().lasts_s(since_s)
        if self._blocked_seen[0] != since_s:
            self._blocked_seen = since_s, time.monotonic()
        return time.monotonic() - self._blocked_seen[1]

    @property
    def silent_s(self) -> float:
        """For how long an answer of the monitor has been missing, in seconds."""
        return super().silent_s if self.shared is None else self.shared.silent_s

    @property
    def stopped(self) -> bool:
        """Whether the operating system has suspended it."""
        return super().stopped if self.shared is None else self.shared.stopped

    @property
    def end(self) -> CellEnded | None:
        """What it wrote when it ended by itself; None if it has not."""
        return self._message("end", CellEnded)

    @property
    def process(self) -> psutil.Process | None:
        """Its process, if it ran on this machine when it was found."""
        return self._process

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        if self._process is not None:
            try:
                running = self._process.is_running()
                return bool(running and self._process.status() != psutil.STATUS_ZOMBIE)
            except psutil.Error:
                return False
        return (self._watched or self.answers is True) and self.may_run_elsewhere

    @property
    def is_exiting(self) -> bool:
        """Whether it noted its end and no longer answers, although its process is still there.

        Python's finalization stops the monitor first; then it may wait in destructors for long. A
        short run may come to its end before its watcher has connected: then its socket is gone.
        """
        if self.questions is None:
            left = bool(self.started.socket) and not Path(self.started.socket).exists()
        else:
            left = self.silent_s > 0
        return left and self.end is not None

    @property
    def may_run_elsewhere(self) -> bool:
        """Whether it belongs to another host, and nobody noted that its process has ended."""
        return not self.is_here and not any(self._file(name).exists() for name in ("end", "gone"))

    def note_end(self, latest_s: float) -> CellEnded | None:
        """Find out how and when its process has ended; returns what it wrote about that.

        Parameters
        ----------
        latest_s
            The time of the last record of its machine. The process ended later, but when is known
            only if it or a watcher noted it.
        """
        self.disconnect()
        end = self.end
        if end is not None:
            self.gone_s, self.end_is_known = end.ended_s, True
            return end
        gone = self._message("gone", RankGone)
        marks = self._file("exit").exists() or bool(self.crash_text(1))
        self.end_is_known = gone is not None or self.is_here or self._watched or marks
        if gone is None:
            status = self._exit_status()
            gone = RankGone(
                exit_status=status, ended_s=time.monotonic() if self._watched else latest_s
            )
            if self._watched:
                with suppress(OSError):
                    job_files.write(self._file("gone"), gone)
        self.gone_s = gone.ended_s
        failed = self._failed_call()
        if failed is not None and gone.exit_status in FROM_OUTSIDE:
            return failed
        self.exit_status = gone.exit_status
        return None

    def _failed_call(self) -> CellEnded | None:
        """What it noted when a call failed, if it did nothing more until its process ended."""
        failed = self._message("failure", CellEnded)
        if failed is None or self.gone_s is None or failed.ended_s < self._calls.changed_s:
            return None
        return failed if self.gone_s - failed.ended_s < _UNWINDS_S else None

    def _message(self, ending: str, kind: type[M]) -> M | None:
        try:
            message = job_files.read(self._file(ending))
        except (OSError, FormatError):
            return None
        return message if isinstance(message, kind) else None

    def _exit_status(self) -> int:
        """Exit code, or negative signal, of its process."""
        with suppress(OSError, ValueError):
            return int(self._file("exit").read_text())
        known = self._signal_noted()
        if known is not None:
            return -known
        code = _zombies_status(self.pid) if self.is_here else None
        return -signal.SIGKILL if code is None else code

    def _signal_noted(self) -> int | None:
        """The signal at which faulthandler wrote the stack; None if there was none."""
        text = self.crash_text(_LONGEST_CRASH)
        before, fatal, _ = text.partition("Fatal Python error")
        if "most recent call first" in before:  # faulthandler writes the stack at SIGTERM
            return signal.SIGTERM
        if not fatal:
            _, fatal, text = self._error_text().rpartition("Fatal Python error")
        if fatal:
            found = (number for word, number in _FATAL.items() if word in text)
            return next(found, signal.SIGABRT)
        return None

    def _error_text(self) -> str:
        """The end of what it wrote to a file of its own as standard error."""
        started = self.started
        with suppress(OSError):
            if started.errors and self.is_here:
                with Path(started.errors).open("rb") as file:
                    end = file.seek(0, os.SEEK_END)
                    file.seek(max(started.errors_from, end - _LONGEST_CRASH))
                    return file.read(_LONGEST_CRASH).decode("utf-8", "replace")
        return ""

    @property
    def died_at_exit(self) -> int | None:
        """The signal that ended its process after its script had ended without an error."""
        end = self.end
        noted = self._signal_noted() if end is not None and end.error is None else None
        return None if noted == signal.SIGTERM else noted  # a launcher ends all after the first

    def kill(self) -> None:
        """End its process, if that runs on this machine."""
        if self._process is not None:
            with suppress(psutil.Error):
                self._process.kill()

    def connect(self) -> bool:
        """Connect to its monitor, unless it is connected; returns whether it is."""
        if self.questions is not None:
            return True
        if not self.started.socket or not self.is_here or self.gone_s is not None:
            return False
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_CONNECT_LIMIT_S)
        try:
            connection.connect(self.started.socket)
            connection.settimeout(None)
        except OSError:
            connection.close()
            return False
        self.questions = Channel(connection)
        return True

    def disconnect(self) -> None:
        """Close the connection to its monitor, which has closed its end."""
        if self.questions is not None:
            self.questions.close()
            self.questions = None


def _is_possible(started: RankStarted) -> bool:
    """Whether its numbers can be those of a rank."""
    numbers = (started.rank or 0, started.world_size or 0)
    times = (started.wall_s, started.started_s)
    return (
        all(0 <= number < _MOST_RANKS for number in numbers)
        and all(0.0 <= time_s < _LATEST_S for time_s in times)
        and 0 < started.pid < 1 << 31
    )


def _zombies_status(pid: int) -> int | None:
    """The status of a process whose parent has not asked for it yet; None if it is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] != "Z":
        return None
    status = int(fields[-1])
    return os.waitstatus_to_exitcode(status)
