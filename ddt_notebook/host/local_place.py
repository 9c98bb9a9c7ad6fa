"""Runs the ranks of a session on this machine, as children of the notebook's fork server."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..wire.channel import channel_pair
from ..wire.messages import Failed, MakeDirectory, RankSpec, RemoveDirectory, StartRank, StartStore
from . import launcher
from .errors import SessionError
from .place import HostProcess, Place, StartedRank, StartedStore
from .process import LocalProcess

#: Files of an earlier process that would be taken for those of a new one.
_RECORDS = ("calls", "branches")


class LocalPlace:
    """The machine of the notebook.

    Parameters
    ----------
    warm
        True if ranks are forked, False if each is spawned in a new interpreter.
    framework
        A framework that the ranks find imported; empty for none.
    """

    complete = True
    machines = 1

    def __init__(self, *, warm: bool, framework: str = "") -> None:
        self._warm, self.framework = warm, framework
        self.server = launcher.server(warm=warm, framework=framework)

    @property
    def usable(self) -> bool:
        return self.server.usable

    def fileno(self) -> int:
        return self.server.fileno()

    def open(self) -> None:
        if not self.server.usable:
            self.server = launcher.server(warm=self._warm, framework=self.framework)

    def make_directory(self, directory: Path) -> None:
        made = self.server.request(MakeDirectory(directory=str(directory)))
        if isinstance(made, Failed):
            raise SessionError(f"the session's folder could not be made: {made.error}")

    def remove_directory(self, directory: Path) -> None:
        if self.server.usable and self.server.ready:  # else it has made none
            with suppress(SessionError):
                self.server.request(RemoveDirectory(directory=str(directory)))
        shutil.rmtree(directory, ignore_errors=True)

    def start_store(self, directory: Path) -> StartedStore:
        store = StartStore(folder=str(directory))
        started = self.server.start(store)
        return StartedStore(LocalProcess(started.pid), store.address, started.port)

    def start_rank(self, spec: RankSpec, *, fork: bool) -> StartedRank:
        spec = replace(
            spec, cwd=os.getcwd(), sys_path=tuple(sys.path), environ=_users_environment()
        )
        files = Path(spec.directory, f"rank{spec.rank}")
        for ending in _RECORDS:  # a new process needs a new log: the ring's count must start at 0
            files.with_suffix(f".{ending}").unlink(missing_ok=True)
        commands, rank_commands = channel_pair()
        questions, rank_questions = channel_pair()
        with rank_commands, rank_questions:
            descriptors = rank_commands.fileno(), rank_questions.fileno()
            process = LocalProcess(self.server.start(StartRank(fork=fork), descriptors).pid)
        commands.send(spec)
        return StartedRank(process=process, commands=commands, questions=questions, files=files)

    def ended(self, processes: Iterable[HostProcess]) -> dict[tuple[str, int], int]:
        found = self.server.ended(process.pid for process in processes)
        return {("", pid): status for pid, status in found.items()}

    def shares_with(self, other: Place) -> bool:
        return isinstance(other, LocalPlace) and other.server is self.server

    def rest(self) -> None:
        self.server.close()

    def close(self) -> None:
        """Nothing: other sessions use the fork server as well."""

    def process_ids(self) -> list[int]:
        return [self.server.pid] if self.server.usable else []


def _users_environment() -> dict[str, str]:
    """The notebook's environment without the variables that a rank gets from its parent process."""
    kept = ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "TORCH_", "MPLBACKEND")
    return {name: value for name, value in os.environ.items() if not name.startswith(kept)}
