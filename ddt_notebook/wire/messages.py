"""The messages between the notebook, its fork server and its ranks.

Each kind of message is a dataclass. Its name is the kind, and its fields are the schema. `encode`
and `decode` turn a message into JSON and back with `model.codec`, together with the version of this
module and a number. An answer carries the number of its request; other messages carry 0. To add a
message, add a class.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ..model import FormatError, Observation, Position, RankError, codec
from ..model.rank import WaitsFor
from ..model.replay import ReplayOutcome
from ..model.torch_features import MissingFeature
from .records import FlightEntry

#: Increase it when a message changes in a way that an older reader would misunderstand.
VERSION = 2

DisplayKind = Literal["display", "result", "clear"]


class Message:
    """Base of all messages."""

    __slots__ = ()
    kinds: ClassVar[dict[str, type[Message]]] = {}

    def __init_subclass__(cls) -> None:
        Message.kinds[cls.__name__] = cls


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with its number and payload.

    Attributes
    ----------
    message
        The message.
    number
        Number of the request, repeated in its answer; 0 for a message without request.
    payload
        A block of bytes that is sent with the message.
    """

    message: Message
    number: int = 0
    payload: bytes | None = None


def encode(envelope: Envelope) -> bytes:
    """Encode as one line of JSON: version, kind, number, whether a payload follows, fields."""
    message = envelope.message
    head = VERSION, type(message).__name__, envelope.number, envelope.payload is not None
    return json.dumps([*head, codec.to_plain(message)], separators=(",", ":")).encode()


def decode(data: bytes, parse: Callable[[bytes], Any] = json.loads) -> tuple[Envelope, bool]:
    """The message, and whether a payload follows.

    Parameters
    ----------
    data
        What `encode` returned.
    parse
        Reads the JSON.

    Raises
    ------
    FormatError
        If it is not a message, or has another version or an unknown kind.
    """
    try:
        version, kind, number, has_payload, fields = parse(data)
        known = Message.kinds.get(kind)
    except (ValueError, TypeError) as error:
        raise FormatError("what was received is not a message of ddt_notebook") from error
    if version != VERSION or known is None:
        what = f"of kind {kind!r}" if version == VERSION else f"of version {version}"
        raise FormatError(
            f"a message {what} was received, which this ddt_notebook (messages of version "
            f"{VERSION}) cannot read: install the same ddt_notebook for the ranks and for the "
            "notebook"
        )
    return Envelope(codec.from_plain(known, fields), number), has_payload


# -- answers that several requests have ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Message):
    """The request succeeded; the payload is the requested variable, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Message):
    """The request failed.

    Attributes
    ----------
    error
        The reason, in one line.
    reason
        ``"error"``: an exception was raised. ``"memory"``: the rank's memory is full.
        ``"broken"``: an exception was raised outside of the cell that the rank should run.
        ``"no answer"``: the notebook sets it if the rank died or took too long.
    """

    error: str
    reason: Literal["error", "memory", "broken", "no answer"] = "error"


# -- from the notebook to a rank's main thread -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpec(Message):
    """The first message, which describes the rank.

    Attributes
    ----------
    rank, world_size, backend
        As for ``init_process_group``.
    local_rank, local_world_size
        Number of the rank among those of its host, and how many these are.
    node, nodes
        Number of its host, and how many hosts there are.
    directory
        Folder of the session's files.
    store_address, port
        Where the session's TCPStore listens.
    device
        Value of the variable ``device``: ``"cpu"`` or ``"cuda"``.
    simulated_gpus
        How many GPUs are simulated; 0 for none.
    group
        Whether the session forms the process group.
    group_timeout_s
        Timeout of the backend itself, in seconds.
    memory
        Limit of the memory that cells may allocate, in bytes; None for no limit.
    seed
        As in `rank.script.seed`.
    cwd, sys_path, environ
        Working directory, ``sys.path`` and environment of the notebook's process, or of the agent
        on another host.
    confined
        Whether the rank may read only Python and the system, and write only ``directory``.
    framework
        The framework for which the session prepares the rank; see `model.frameworks`.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    directory: str
    store_address: str
    port: int
    backend: str
    device: str
    simulated_gpus: int
    group: bool
    group_timeout_s: float
    memory: int | None
    seed: int | None
    cwd: str = ""
    sys_path: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    confined: bool = False
    node: int = 0
    nodes: int = 1
    framework: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCell(Message):
    """Run a cell or a script; `CellEnded` answers.

    Attributes
    ----------
    cell, source, first_line, file, arguments
        See `model.Cell`.
    group_timeout_s
        Timeout of the backend itself for this cell, in seconds.
    trace
        Whether to record the timeline and the memory by kind.
    branches
        Whether to observe branches also where that slows the user's code, as on Python 3.11.
    keep_names
        Whether the names that a script defines become names of the cells.
    replay
        The file with what the script receives, if it runs as one rank of a recorded job; see
        `rank_inputs`.
    """

    cell: int
    source: str
    first_line: int
    group_timeout_s: float
    trace: bool
    branches: bool = False
    file: str = ""
    arguments: tuple[str, ...] = ()
    keep_names: bool = False
    replay: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormGroup(Message):
    """Leave any process group and join a new one; `GroupFormed` or `Failed` answers.

    Attributes
    ----------
    prefix
        Prefix of the keys in the session's store; never used twice.
    generation
        How often the session's group has been formed, this time included.
    port
        Port of the session's TCPStore.
    join
        False only to leave: a script forms its groups itself.
    """

    prefix: str
    generation: int
    port: int
    join: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup(Message):
    """Destroy all process groups, which frees the ranks that wait in one; `Done` answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreVariable(Message):
    """Assign the object in the payload to a variable; `Done` or `Failed` answers."""

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
        Variables to inspect; None for all.
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
    """The rank accepts commands from now on; it sends `Failed` instead if it could not start.

    Attributes
    ----------
    torch_version
        Version of torch.
    device
        Value of the variable ``device``.
    missing_features
        Features that are off because this PyTorch lacks names that they need.
    python_version
        Version of Python; empty if the rank does not say it.
    """

    torch_version: str
    device: str
    missing_features: tuple[MissingFeature, ...] = ()
    python_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEnded(Message):
    """A cell has ended on this rank.

    Attributes
    ----------
    error
        The exception that left the cell, None if there was none.
    ended_s
        When the cell ended, on the machine's monotonic clock in seconds.
    flight
        New entries of the Flight Recorder.
    missing_features
        Features that are now off because this PyTorch lacks names that they need.
    formed
        Whether a default process group exists now.
    names
        The user's variables.
    recorded
        What was recorded while a traced cell ran.
    observed
        What was observed at the end of the cell without a request; None if nothing was.
    notes
        Notes for the user about this observation.
    imported
        The user's files whose modules this run imported.
    replayed
        How far a replay got; None if the run was none.
    exited_at
        The line at which the script ended itself without an error; None if it ran to its end.
    """

    error: RankError | None
    ended_s: float
    flight: tuple[FlightEntry, ...] = ()
    missing_features: tuple[MissingFeature, ...] = ()
    formed: bool = True
    names: tuple[str, ...] = ()
    recorded: Observation | None = None
    observed: Observation | None = None
    notes: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    replayed: ReplayOutcome | None = None
    exited_at: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFormed(Message):
    """The rank has joined the process group; ``notes`` report what was carried over."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed(Message):
    """What probes observed.

    Attributes
    ----------
    observed
        What they observed; None if nothing was.
    failed
        Why a probe observed nothing, by its name.
    """

    observed: Observation | None = None
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
        Current sizes of the rank's output files; the text up to there precedes this output.
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
    """Ask where the main thread is; `MonitorStatus` answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskFlight(Message):
    """Ask for the entries of the Flight Recorder; `FlightEntries` answers.

    Attributes
    ----------
    stacks
        False for the entries since the last answer. True for all entries of this cell with their
        source lines, which is slow.
    """

    stacks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskBranches(Message):
    """Ask for the values in the conditions that this cell has decided; `BranchValues` answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskRunning(Message):
    """Ask a rank of a running job about the user's objects; `RunningAnswer` answers at once.

    Attributes
    ----------
    probes
        Names of fields of `Observation`.
    at_step
        If it is set, the rank's main thread compares what the ranks should agree on at the end of
        the optimizer step of this number. The same question later gets the result.
    """

    probes: tuple[str, ...] = ()
    at_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAnswer(Message):
    """What a running rank's objects are.

    Attributes
    ----------
    observed
        What was observed; None if nothing was, or not yet.
    failed
        Why a probe observed nothing, by its name.
    steps
        How many optimizer steps have ended.
    stepping
        Whether the rank is inside an optimizer step.
    """

    observed: Observation | None = None
    failed: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    stepping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSockets(Message):
    """Shut down the connections of the process groups, so that calls that wait on them raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorStatus(Message):
    """The status of a rank.

    Attributes
    ----------
    position
        The user's line at which its main thread is.
    stack
        The main thread's stack, outermost first.
    groups
        For each process group, how many operations were issued to its backend and how many of
        them are complete, as the Flight Recorder counts.
    on_device
        The same for the groups whose operations a device runs later than they are issued.
    cpu_s
        Processor time that the process has used so far, in seconds.
    memory_bytes
        Resident set size.
    waits_for, file, held_by, compiled, thread_error, threads_run, inside, inside_s
        As in `Activity`.
    at_s
        Time of the status, on the machine's monotonic clock in seconds.
    """

    position: Position | None
    stack: tuple[Position, ...]
    groups: dict[str, tuple[int, int]]
    cpu_s: float
    memory_bytes: int
    at_s: float
    waits_for: WaitsFor = ""
    file: str = ""
    held_by: int | None = None
    compiled: tuple[int, int] | None = None
    thread_error: RankError | None = None
    threads_run: bool = True
    inside: Position | None = None
    inside_s: float | None = None
    on_device: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchValues(Message):
    """What the ring of branch events does not hold.

    Attributes
    ----------
    values
        Values of the names in conditions, by the index of the outcome in the ring.
    unobserved, callbacks_only
        As in `RankBranches`.
    marks
        When passes through DDP began, in nanoseconds of the wall clock, with the number of branch
        events before; -1 when a pass ended. They give the events before DDP's own collectives.
    """

    values: dict[int, dict[str, str]] = field(default_factory=dict)
    unobserved: str = ""
    callbacks_only: bool = False
    marks: tuple[tuple[int, int], ...] = ()


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
    fork
        True to fork the rank, False to start an interpreter.
    """

    fork: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStore(Message):
    """Start the TCPStore of a session at an address of this machine; `Started` answers.

    In ``folder``, which only this user can read, a store on loopback makes and removes a file. On
    another host there is no folder of the session: a temporary one serves.
    """

    address: str = "127.0.0.1"
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeDirectory(Message):
    """Make the folder of a session's files, which only its user can read; `Done` answers.

    The server makes it, since it removes it if the notebook is killed.
    """

    directory: str


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
        For a store: its port.
    """

    pid: int
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnded(Message):
    """A process that the fork server started has ended.

    Attributes
    ----------
    pid
        Its process id.
    status
        Exit code, or the negative number of the signal that ended it.
    """

    pid: int
    status: int
