"""The messages between the notebook and the agents, one of which runs on each host of a session.

What a rank sends and receives is not read by its agent: it travels as blocks of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..model.hosts import HostFacts, Trial
from .messages import Message

#: The connections of a rank: to its main thread, and to its monitor.
Connection = Literal["commands", "questions"]
#: The files of a rank that are copied to the notebook, by the ends of their names.
RankFile = Literal["out", "err", "crash", "threads", "calls", "branches"]

#: How many bytes of one connection may be on their way; more only after `Credit`.
STREAM_WINDOW = 1 << 22
#: The same for the files of all ranks of a host.
FILE_WINDOW = 1 << 23
#: The longest block of bytes in one message.
BLOCK_BYTES = 1 << 18
#: Credit is sent for so many bytes at once. Most messages are shorter, and each credit wakes who
#: gets it.
CREDIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHello(Message):
    """An agent's first message; `AgentWelcome` or `Failed` answers.

    Attributes
    ----------
    host, pid
        Name of its host and its process id.
    label
        What the user calls the host; empty for its name.
    address, interface
        Where other hosts reach its ranks.
    directory
        The folder of its ranks' files.
    wall_s
        The wall clock of the host minus its monotonic clock.
    """

    host: str
    pid: int
    address: str
    interface: str
    directory: str
    wall_s: float
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWelcome(Message):
    """The agent takes part in the session.

    Attributes
    ----------
    framework
        What its fork server imports beside torch; see `model.frameworks`.
    """

    framework: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAgent(Message):
    """End the agent with all its ranks; nothing answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartHostRank(Message):
    """Start a rank on the agent's host; `Started` answers.

    Attributes
    ----------
    key
        Names this process in later messages; it is never used twice.
    rank
        Its rank.
    fork
        As in `StartRank`.
    """

    key: int
    rank: int
    fork: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalProcess(Message):
    """Send a signal to a process that the agent has started; nothing answers."""

    pid: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBytes(Message):
    """The payload was sent by a rank, or is for it, on one of its connections."""

    key: int
    connection: Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClosed(Message):
    """One end of a connection was closed."""

    key: int
    connection: Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit(Message):
    """So many bytes of a connection, or of the files if ``key`` is 0, have been processed.

    It follows at the latest when `CREDIT_BYTES` have been processed.
    """

    key: int
    connection: Connection
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBytes(Message):
    """The payload is what has changed in a rank's file.

    Attributes
    ----------
    key, file
        The rank and its file.
    size
        Size of the whole file, in bytes.
    pieces
        Where each piece begins and how long it is, in the order in which they may be written.
    """

    key: int
    file: RankFile
    size: int
    pieces: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskFile(Message):
    """Send what has changed in a file that is copied on request only; `Done` follows."""

    key: int
    file: RankFile


@dataclass(frozen=True, slots=True, kw_only=True)
class AskClock(Message):
    """Ask for the monotonic clock of the host; `ClockTold` answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTold(Message):
    """The monotonic clock of the host, in seconds."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskMemory(Message):
    """Ask for the memory of a process; `MemoryTold` answers.

    Attributes
    ----------
    pid
        Its process id.
    cap_bytes
        As in `HostProcess.allocated_bytes`; None without a cap.
    """

    pid: int
    cap_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTold(Message):
    """The memory of a process in bytes; None is not known."""

    share: int = 0
    resident: int | None = None
    allocated: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesSeen(Message):
    """What the operating system shows of the agent's processes, a few times per second.

    Attributes
    ----------
    at_s
        When, on the monotonic clock of the host.
    used_s
        Processor time of each process.
    stopped
        Those that are suspended.
    """

    at_s: float
    used_s: dict[int, float]
    stopped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskFacts(Message):
    """Ask for the facts of the host, with these environment variables; `FactsTold` answers."""

    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsTold(Message):
    """The facts of the host."""

    facts: HostFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenForTrials(Message):
    """Listen at a free port where the ranks are reached; `TrialListening` answers.

    Attributes
    ----------
    token
        What who connects must know.
    limit_s
        How long to listen at most, in seconds.
    """

    token: str
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialListening(Message):
    """The agent listens at this port until `EndTrials`."""

    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTrials(Message):
    """Listen no more; nothing answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TryConnection(Message):
    """Connect to the port of another host; `TrialEnded` answers.

    Attributes
    ----------
    address, port, token
        Where the other agent listens, and its token.
    limit_s
        Limit for each step, in seconds.
    size
        How many bytes to send to measure the bandwidth; 0 to measure none.
    """

    address: str
    port: int
    token: str
    limit_s: float
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded(Message):
    """How the trial of a connection ended."""

    trial: Trial
