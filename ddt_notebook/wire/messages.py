"""What the notebook, its fork server and its ranks say to each other.

Each kind of message is a dataclass: its name is the kind, its fields are the schema. `encode` and
`decode` turn a message into JSON and back with `model.codec`, together with the version of this
module and a number. An answer carries the number of its request; what nobody has asked for carries
0. To add a message, add a class.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ..model import FormatError, Position, RankError, codec
from ..model.torch_features import MissingFeature
from .records import FlightEntry

#: Raise it when a message changes so that an older reader would misunderstand it.
VERSION = 1

DisplayKind = Literal["display", "result", "clear"]


class Message:
    """Base of all messages."""

    __slots__ = ()
    kinds: ClassVar[dict[str, type[Message]]] = {}

    def __init_subclass__(cls) -> None:
        Message.kinds[cls.__name__] = cls


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message on its way.

    Attributes
    ----------
    message
        What is said.
    number
        Number of the request, also in its answer; 0 for what nobody has asked for.
    payload
        A block of bytes that travels beside the message.
    """

    message: Message
    number: int = 0
    payload: bytes | None = None


def encode(envelope: Envelope) -> bytes:
    """One line of JSON: version, kind, number, whether a payload follows, fields."""
    message = envelope.message
    head = VERSION, type(message).__name__, envelope.number, envelope.payload is not None
    return json.dumps([*head, codec.to_plain(message)], separators=(",", ":")).encode()


def decode(data: bytes) -> tuple[Envelope, bool]:
    """The message, and whether a payload follows.

    Raises
    ------
    FormatError
        If it is no message, or one of another version or of an unknown kind.
    """
    try:
        version, kind, number, has_payload, fields = json.loads(data)
        known = Message.kinds.get(kind)
    except (ValueError, TypeError) as error:
        raise FormatError("what was received is not a message of ddt_notebook") from error
    if version != VERSION or known is None:
        what = f"of kind {kind!r}" if version == VERSION else f"of version {version}"
        raise FormatError(
            f"a message {what} was received, which this ddt_notebook (messages of version "
            f"{VERSION}) does not know: install the same ddt_notebook for the ranks and for the "
            "notebook"
        )
    return Envelope(codec.from_plain(known, fields), number), has_payload


# -- answers that several requests have ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Message):
    """The request was carried out; a variable that was asked for is the payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Message):
    """The request was not carried out.

    Attributes
    ----------
    error
        Why not, in one line.
    reason
        ``"error"``: something was raised. ``"memory"``: the rank's memory is full.
        ``"no answer"``: the notebook's own verdict on a rank that died or took too long.
    """

    error: str
    reason: Literal["error", "memory", "no answer"] = "error"


# -- from the notebook to a rank's main thread -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpec(Message):
    """The first message: what kind of rank this is to be.

    Attributes
    ----------
    rank, world_size, backend
        As for ``init_process_group``.
    directory
        Folder of the session's files.
    port
        Port of the session's TCPStore on loopback.
    device
        What the variable ``device`` is to be: ``"cpu"`` or ``"cuda"``.
    simulated_gpus
        How many GPUs are simulated; 0 for none.
    group
        Whether the session forms the process group.
    group_timeout_s
        Limit that the backend itself is given, in seconds.
    memory
        Cap on what the cells may allocate, in bytes; None for no cap.
    cwd, sys_path, environ
        Of the notebook's process.
    """

    rank: int
    world_size: int
    directory: str
    port: int
    backend: str
    device: str
    simulated_gpus: int
    group: bool
    group_timeout_s: float
    memory: int | None
    cwd: str
    sys_path: tuple[str, ...]
    environ: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCell(Message):
    """Run a cell; `CellEnded` answers.

    Attributes
    ----------
    cell, source, first_line
        See `model.Cell`.
    group_timeout_s
        Limit that the backend itself is given for this cell, in seconds.
    trace
        Whether to record the timeline and the memory by kind.
    """

    cell: int
    source: str
    first_line: int
    group_timeout_s: float
    trace: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FormGroup(Message):
    """Leave any process group and join a new one; `GroupFormed` or `Failed` answers.

    Attributes
    ----------
    prefix
        Of the keys in the session's store; never used twice.
    generation
        How often the session's group has been formed, this time included.
    port
        Port of the session's TCPStore on loopback.
    """

    prefix: str
    generation: int
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup(Message):
    """Destroy all process groups, which frees the ranks that wait in one; `Done` answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreVariable(Message):
    """Give a variable the object in the payload; `Done` or `Failed` answers."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchVariable(Message):
    """Send a variable; `Done` with a payload, or `Failed`, answers."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe(Message):
    """Run probes; `Observed` answers.

    Attributes
    ----------
    probes
        Their names, see `probe_names`.
    names
        Variables to look at; None for all.
    options
        Further arguments of the probes.
    """

    probes: tuple[str, ...]
    names: tuple[str, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRank(Message):
    """End the process; nothing answers."""


# -- from a rank's main thread ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReady(Message):
    """The rank answers commands from now on; `Failed` instead if it could not start.

    Attributes
    ----------
    torch_version
        Version of torch.
    device
        What the variable ``device`` is.
    missing_features
        Features that are off, because this PyTorch lacks names that they need.
    """

    torch_version: str
    device: str
    missing_features: tuple[MissingFeature, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEnded(Message):
    """A cell has ended on this rank.

    Attributes
    ----------
    error
        The exception that left it, None if none did.
    ended_s
        When, on the machine's monotonic clock in seconds.
    flight
        New entries of the Flight Recorder.
    missing_features
        Features that are off by now, because this PyTorch lacks names that they need.
    formed
        Whether there is a default process group now.
    names
        The user's variables.
    recorded
        What was recorded while a traced cell ran: plain data of fields of `model.Observation`.
    observed
        What was observed at its end without being asked for: likewise.
    notes
        What the user is to know about this observation.
    """

    error: RankError | None
    ended_s: float
    flight: tuple[FlightEntry, ...] = ()
    missing_features: tuple[MissingFeature, ...] = ()
    formed: bool = True
    names: tuple[str, ...] = ()
    recorded: dict[str, Any] = field(default_factory=dict)
    observed: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFormed(Message):
    """The rank has joined the process group; ``notes`` say what was carried over."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed(Message):
    """What probes saw.

    Attributes
    ----------
    observed
        Plain data of the fields of `model.Observation`, by name of the probe.
    failed
        Why a probe saw nothing, by its name.
    """

    observed: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionRaised(Message):
    """An exception has left the cell; `CellEnded` follows once it has been described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayShown(Message):
    """The cell shows rich output.

    Attributes
    ----------
    kind, data, metadata, transient, update
        See `host.listeners.DisplayMessage`.
    stdout_bytes, stderr_bytes
        How long the rank's output files are now: earlier text comes before this output.
    """

    kind: DisplayKind
    data: dict[str, Any]
    metadata: dict[str, Any]
    transient: dict[str, Any]
    update: bool
    stdout_bytes: int
    stderr_bytes: int


# -- between the notebook and a rank's monitor -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStatus(Message):
    """Where does the main thread stand? `MonitorStatus` answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskFlight(Message):
    """What does the Flight Recorder hold? `FlightEntries` answers.

    Attributes
    ----------
    stacks
        False: entries since the last answer. True: all entries of this cell, with the lines that
        they came from, which is slow.
    """

    stacks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSockets(Message):
    """Shut down the connections of the process groups: a call that waits on them raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorStatus(Message):
    """Where a rank stands.

    Attributes
    ----------
    position
        The user's line at which its main thread is.
    stack
        The main thread's stack, outermost first.
    groups
        For each process group: how many operations its backend was given, and how many of them
        are complete, as the Flight Recorder counts.
    cpu_s
        Processor time that the process has used, in seconds.
    memory_bytes
        Resident set size.
    at_s
        When, on the machine's monotonic clock in seconds.
    """

    position: Position | None
    stack: tuple[Position, ...]
    groups: dict[str, tuple[int, int]]
    cpu_s: float
    memory_bytes: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightEntries(Message):
    """Entries of the Flight Recorder."""

    entries: tuple[FlightEntry, ...]


# -- between the notebook and its fork server ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRank(Message):
    """Start a rank with the two sockets that come with this request; `Started` answers.

    Attributes
    ----------
    directory
        Folder of the session's files, which the server removes if the notebook is killed.
    fork
        True to fork the rank, False to start an interpreter.
    """

    directory: str
    fork: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStore(Message):
    """Start the TCPStore of a session; `Started` answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDirectory(Message):
    """Remove a session's files; `Done` answers."""

    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReady(Message):
    """The fork server answers requests from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Message):
    """A process was started.

    Attributes
    ----------
    pid
        Its process id.
    port
        Of a store: the port on loopback.
    """

    pid: int
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnded(Message):
    """A process that the fork server had started has ended.

    Attributes
    ----------
    pid
        Its process id.
    status
        Exit code; the negative number of the signal that ended it.
    """

    pid: int
    status: int
