"""The files of ranks in a job's folder: which were written, and which of them belong together.

A folder may hold the ranks of several launches: those before a restart, those of several jobs that
one command runs at the same time, and those of an older job on another host.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ..model import FormatError
from ..wire import job_files
from ..wire.job_files import RankStarted
from .recorded_process import RecordedRank

#: The folder is searched for new ranks at least at this interval, in seconds. A change of the last
#: second may be followed by one that has the same time.
_FIND_EVERY_S, _FOLDER_SETTLES_S = 2.0, 1.0
#: The wall clocks of hosts may be this far apart, in seconds, when ends and starts are compared.
_CLOCKS_APART_S = 60.0


class JobFolder:
    """The ranks of one job that have written to a folder.

    Parameters
    ----------
    folder, watched, only
        See `recorded_job.RecordedJob`.
    """

    def __init__(self, folder: Path, *, watched: bool, only: str) -> None:
        #: The jobs that run at the same time as this one, which others have to look at.
        self.beside: set[str] = set()
        self._folder, self._watched, self._only = folder, watched, only
        self._known: dict[str, RecordedRank] = {}
        # a watcher leaves out the ranks of other hosts that had ended before its own job began
        self._left_out: set[str] = _ended_earlier(folder) if watched else set()
        self._found_s, self._changed_ns = -math.inf, 0  # when the folder was read, and its change

    def find(self) -> list[RecordedRank]:
        """The ranks of this job that were found now for the first time."""
        if not self._changed():
            return []
        files = [
            file
            for file in self._folder.glob(f"*{job_files.STARTED}")
            if file.name not in self._known and file.name not in self._left_out
        ]
        read = []
        for file in files:
            try:
                read.append((file.name, RecordedRank(file, watched=self._watched)))
            except (OSError, FormatError):
                self._left_out.add(file.name)
        found = []
        for name, rank in sorted(read, key=lambda one: one[1].started.wall_s):
            if self._is_own(rank):
                self._known[name] = rank
                found.append(rank)
            else:
                self._left_out.add(name)
                rank.close()
        return found

    def last_launch(self) -> dict[int, RecordedRank]:
        """The ranks that were started last, by number."""
        return _last_launch(self._known.values()) if self._known else {}

    def drop_others(self) -> bool:
        """Leave out ranks whose job was found to be another one only after they had been taken.

        Returns whether there were any.
        """
        names = [name for name, one in self._known.items() if one.started.job in self.beside]
        for name in names:
            self._left_out.add(name)
            self._known.pop(name).close()
        return bool(names)

    def close(self) -> None:
        """Close the files of all ranks."""
        for rank in self._known.values():
            rank.close()

    def _is_own(self, rank: RecordedRank) -> bool:
        """Whether a rank that was found belongs to this job, or to one that follows it.

        Another job runs at the same time if it has a number that a running rank of this one has, or
        another number of ranks.
        """
        job = rank.started.job
        if self._only:
            return job == self._only
        if not self._watched:
            return True
        for one in self._known.values():
            clash = one.rank == rank.rank or one.started.world_size != rank.started.world_size
            if clash and one.started.job not in (job, *self.beside) and one.is_here and one.runs:
                self.beside.add(job)
        return job not in self.beside

    def _changed(self) -> bool:
        """Whether to look for new files; reading the folder of 512 ranks takes milliseconds."""
        now_s = time.monotonic()
        try:
            changed_ns = self._folder.stat().st_mtime_ns
        except OSError:
            changed_ns = 0
        # file systems note a change to some milliseconds, and those of the network later
        settled = time.time() - changed_ns / 1e9 > _FOLDER_SETTLES_S
        if changed_ns == self._changed_ns and settled and now_s - self._found_s < _FIND_EVERY_S:
            return False
        self._found_s, self._changed_ns = now_s, changed_ns
        return True


def _last_launch(known: Iterable[RecordedRank]) -> dict[int, RecordedRank]:
    """The ranks that were started last, by number.

    A restart by torchrun has its own generation, and a batch system's job its own id. Two commands
    one after the other may have equal ids (torchrun's is ``none`` unless it is given); a rank that
    starts for the second time, or long after all others have ended, then begins the later one.
    """
    ordered = sorted(known, key=lambda one: one.started.wall_s)
    newest = [one for one in ordered if one.generation == ordered[-1].generation]
    # a launcher may pass the batch system's variables to some hosts only
    allocations = [one.started.allocation for one in newest if one.started.allocation]
    ranks: dict[int, RecordedRank] = {}
    for one in newest:
        if one.started.allocation in ("", *allocations[-1:]):
            if one.rank in ranks or _ended_before(ranks.values(), one.started.wall_s):
                ranks = {}
            ranks[one.rank] = one
    return ranks


def _ended_before(ranks: Iterable[RecordedRank], wall_s: float) -> bool:
    """Whether all ranks had ended long before that time."""
    ends = (rank.noted_end_s for rank in ranks)
    return all(end is not None and end + _CLOCKS_APART_S < wall_s for end in ends)


def is_recorded(folder: Path, host: str = "") -> bool:
    """Whether a folder is that of a recorded job in which a rank was seen, on a host if given."""
    if not folder.is_dir():
        return False
    recorded = (file.stem.rpartition("-")[0] for file in folder.glob(f"*{job_files.STARTED}"))
    return any(not host or one == host for one in recorded)


def _ended_earlier(folder: Path) -> set[str]:
    """The names of the files of ranks that ended long ago."""
    found = set()
    for file in folder.glob(f"*{job_files.STARTED}"):
        with suppress(OSError, FormatError):
            rank = RecordedRank(file, watched=False)
            if _ended_before([rank], time.time()):
                found.add(file.name)
            rank.close()
    return found


def allocation_of(folder: Path) -> str:
    """The batch system's job that recorded to a folder; empty if none is known."""
    for file in sorted(folder.glob(f"*{job_files.STARTED}")):
        with suppress(OSError, FormatError):
            started = job_files.read(file)
            if isinstance(started, RankStarted) and started.allocation:
                return started.allocation
    return ""
