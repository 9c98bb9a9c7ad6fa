"""Where ranks run: what a session asks of the machine or the machines of its ranks."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..wire.branch_ring import BranchRingReader
from ..wire.channel import Channel
from ..wire.messages import RankSpec


class HostProcess(Protocol):
    """A process of a rank or a store, which its host and its process id identify.

    Attributes
    ----------
    host
        Name of its host; empty for the machine of the notebook.
    pid
        Its process id there.
    """

    host: str
    pid: int

    @property
    def exists(self) -> bool:
        """Whether the operating system still lists it."""
        ...

    @property
    def ending(self) -> bool:
        """Whether it has ended or ends now, though nobody may have reported that."""
        ...

    @property
    def host_lost(self) -> bool:
        """Whether its host no longer answers, so that nobody knows how it ended."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether the operating system has suspended it."""
        ...

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""

    def used(self) -> tuple[float, float]:
        """The processor time that it has used, and when that was measured, in seconds."""
        ...

    def memory_share(self) -> int:
        """Its share of memory in bytes; pages that processes share are divided among them."""
        ...

    def resident_bytes(self) -> int | None:
        """Its resident set size; None if it has ended."""
        ...

    def allocated_bytes(self, cap: int) -> int | None:
        """What it has allocated since its limit was set to ``cap`` bytes above its use at start."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRank:
    """A rank whose process was started.

    Attributes
    ----------
    process
        Its process.
    commands, questions
        The connections to its main thread and to its monitor.
    files
        The common path at which its files can be read here: ``.out``, ``.err``, ``.calls``,
        ``.branches`` and ``.crash`` follow.
    ahead_s
        The monotonic clock of its host minus that of this machine.
    wall_s
        The wall clock of its host minus its monotonic clock; None if it is this machine.
    branches
        Opens the file of its branch events.
    """

    process: HostProcess
    commands: Channel
    questions: Channel
    files: Path
    ahead_s: float = 0.0
    wall_s: float | None = None
    branches: Callable[[Path], BranchRingReader] = BranchRingReader


@dataclass(frozen=True, slots=True)
class StartedStore:
    """The TCPStore of a session: its process, and the address and port at which it listens."""

    process: HostProcess
    address: str
    port: int


class Place(Protocol):
    """Starts the processes of one session, and reports how they end."""

    @property
    def usable(self) -> bool:
        """Whether its processes run; they all end with it."""
        ...

    @property
    def framework(self) -> str:
        """The framework that its processes find imported; empty for none."""
        ...

    @property
    def machines(self) -> int:
        """How many machines it has; each can start a rank while another one does."""
        ...

    @property
    def complete(self) -> bool:
        """Whether all of its machines still take part, so that new processes can be started."""
        ...

    def fileno(self) -> int:
        """A descriptor for selectors: readable when `ended` may return new ones."""
        ...

    def open(self) -> None:
        """Prepare the start of processes.

        Raises
        ------
        SessionError
            If that fails.
        """

    def make_directory(self, directory: Path) -> None:
        """Make the folder of a session's files, which disappears with the notebook.

        Raises
        ------
        SessionError
            If that fails.
        """

    def remove_directory(self, directory: Path) -> None:
        """Remove it."""

    def start_store(self, directory: Path) -> StartedStore:
        """Start a TCPStore for the session that has this folder.

        Raises
        ------
        SessionError
            If that fails.
        """
        ...

    def start_rank(self, spec: RankSpec, *, fork: bool) -> StartedRank:
        """Start a rank in a new process.

        Parameters
        ----------
        spec
            The rank; what depends on its host is filled in here.
        fork
            True to fork it, False to spawn it in a new interpreter.

        Raises
        ------
        SessionError
            If that fails.
        """
        ...

    def ended(self, processes: Iterable[HostProcess]) -> dict[tuple[str, int], int]:
        """Those that have ended, by host and process id: exit code, or negative signal."""
        ...

    def shares_with(self, other: Place) -> bool:
        """Whether `rest` of one would disturb the processes of the other."""
        ...

    def rest(self) -> None:
        """Free memory that only the start of ranks needs, until `open`."""

    def close(self) -> None:
        """End what was made for this session only."""

    def process_ids(self) -> list[int]:
        """Process ids of its own helpers on this machine."""
        ...
