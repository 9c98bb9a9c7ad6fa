"""What one rank did, and where it was when a run ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .collective import Call
from .position import Position
from .threads import ThreadCall

__all__ = ["Activity", "Position", "RankError", "RankReport", "RankState", "WaitsFor"]

RankState = Literal[
    "finished",  # ran the cell to its end
    "raised",  # an exception left the cell
    "died",  # the process ended
    "blocked",  # inside a call that waits for other ranks
    "running",  # executing code outside any such call
    "stopped",  # suspended by the operating system (SIGSTOP)
    "silent",  # its monitor does not answer because C code holds the interpreter
    "idle",  # was not asked to run this cell
    "recorded",  # only its recorded calls are known, not where it was outside them
]

#: What a main thread waits for outside of collectives: "lock" is also a wait for another thread,
#: "data" comes from a pipe or a socket. For a "missing file" and a "busy lock" it asks again and
#: again. An exception has ended an "ended thread", and no other thread can end the wait. In a
#: "build", it waits for what compiles an extension of PyTorch; a "build lock" is the file by which
#: others wait for that. Empty if it runs, or if that is not known.
WaitsFor = Literal[
    "",
    "time",
    "file",
    "lock",
    "file lock",
    "process",
    "data",
    "missing file",
    "busy lock",
    "ended thread",
    "build lock",
    "build",
]

#: A rank that uses this share of a core is at work. One that sleeps or waits uses a few per cent,
#: because its monitor answers.
_COMPUTES = 0.2
#: A rank that seems to wait for a lock is at work if it uses this share: it was seen waiting for
#: the interpreter, which the monitor held. A rank that waits for another lock uses 2 per cent.
_HOLDS_NO_LOCK = 0.05
#: A rank that waits inside a graph of TensorFlow uses 1 to 2 per cent.
_STANDS_STILL = 0.05
#: The message of a NameError, as Python writes it; for errors whose name was not noted.
_UNDEFINED = re.compile(r"name '(\w+)' is not defined")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankError:
    """The exception that left a rank's cell.

    Attributes
    ----------
    type, message
        Name of the exception's class and its text.
    traceback
        As IPython prints it, without colours.
    where
        The innermost line that belongs to the user (a cell, or a file outside site-packages).
    frames
        The whole stack, outermost first.
    call
        Index of the `Call` in which it was raised, None if it was raised elsewhere.
    at_s
        When, on the machine's monotonic clock in seconds.
    missing_name
        The name that a NameError reports as not defined, as Python noted it; None if it did not, in
        older files, and for an exception that was read from text.
    released
        True if the session itself ended this rank's wait, after a hang or an interrupt. The
        exception is then a consequence, never a cause.
    made
        The line that made the loader with which a library worked when it raised; None if it was
        raised elsewhere.
    """

    type: str
    message: str
    traceback: str = ""
    where: Position | None = None
    frames: tuple[Position, ...] = ()
    call: int | None = None
    at_s: float | None = None
    missing_name: str | None = None
    released: bool = False
    made: Position | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def undefined_name(self) -> str:
        """The name that a NameError reports as not defined; empty for any other error."""
        if self.type != "NameError":
            return ""
        if self.missing_name is not None:
            return self.missing_name
        named = _UNDEFINED.match(self.message)
        return named[1] if named is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a rank outside of collectives does, as the operating system shows it.

    Attributes
    ----------
    cpu_share
        Processor time that its process used, divided by the time that passed; 1.0 is one core.
    waits_for
        What its main thread, or the function ``inside``, waited for when last seen.
    file
        Path of the file that it read, wanted to lock, or asked for, or of the folder of a build.
    held_by
        Process id of the holder of that lock; None if it waits for none, or it is not known. Of a
        build lock, None if no process of its user on its host has the file open.
    compiled
        How many files of an extension that it builds are compiled, and of how many.
    thread_error
        The exception that ended the thread for which it waits; None if it waits for none.
    threads_run
        Whether a thread of it runs, would run if it had a processor, or waits for a disk; True if
        that was not looked at.
    inside
        The line of a function of the user that a thread of a framework runs for the main thread,
        such as one of a pipeline that reads data; None if none runs.
    inside_s
        How long that function had been running, in seconds.
    """

    cpu_share: float
    waits_for: WaitsFor = ""
    file: str = ""
    held_by: int | None = None
    compiled: tuple[int, int] | None = None
    thread_error: RankError | None = None
    threads_run: bool = True
    inside: Position | None = None
    inside_s: float | None = None

    @property
    def computes(self) -> bool:
        """Whether it uses a processor; a wait that was seen is then only a moment of its work."""
        return self.cpu_share >= (_HOLDS_NO_LOCK if self.waits_for == "lock" else _COMPUTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """One rank at the end of a run; after a hang, at the moment before the hang was ended.

    Attributes
    ----------
    rank, pid
        Global rank and process id.
    host
        The name of its machine; empty if all ranks run on the same one.
    state
        See `RankState`.
    blocked_in
        Index of the `Call` in which a rank is blocked.
    blocked_s
        How long it had been blocked there, in seconds.
    device_waits
        True if its device waits in that call, which had returned when the collective was issued.
        ``position`` is then the line at which the host stands.
    position
        The innermost line of the user's code at which it was, or the last line that it ran.
    stack
        The whole Python stack, outermost first, if the rank had not finished.
    activity
        What it did if it was running; None if that was not observed.
    error
        The exception that ended its cell. After a hang: the exception that freed it
        (``released`` is then True).
    exited_at
        The line at which it ended its script by ``sys.exit()`` or ``sys.exit(0)``; None if the
        script ran to its end.
    exit_code, exit_signal
        How a rank died; one of the two is set.
    crash_text
        What ``faulthandler`` wrote when the process was killed by a signal.
    abort_text
        What the C++ runtime printed about an exception that nothing caught, before it aborted the
        process: its type and its message.
    calls
        The calls of this run, oldest first. If there were many, calls that matched on every member
        may have been dropped.
    calls_dropped
        How many were dropped.
    joined
        The ``init_process_group`` before these calls, if an earlier cell made it or it was
        dropped. It shows the number of the rank in the group.
    thread_calls
        The calls of this run that threads other than the main one made. They may be among
        ``calls``, too, as the Flight Recorder shows them.
    memory_bytes
        Resident set size when last measured.
    killed
        True if the session had to kill this rank to free the others, so its variables are lost.
    garbled
        True if the session ended this rank, since it had sent something else than messages.
    host_lost
        True if its host no longer answers, so that nobody knows how the process ended.
    """

    rank: int
    pid: int = 0
    host: str = ""
    state: RankState = "finished"
    blocked_in: int | None = None
    blocked_s: float | None = None
    device_waits: bool = False
    position: Position | None = None
    stack: tuple[Position, ...] = ()
    activity: Activity | None = None
    error: RankError | None = None
    exited_at: Position | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    crash_text: str = ""
    abort_text: str = ""
    calls: tuple[Call, ...] = ()
    calls_dropped: int = 0
    joined: Call | None = None
    thread_calls: tuple[ThreadCall, ...] = ()
    memory_bytes: int | None = None
    killed: bool = False
    garbled: bool = False
    host_lost: bool = False

    @property
    def stands_still(self) -> bool:
        """Whether its process does nothing and waits for no processor, as far as was looked at.

        On a busy machine a process that works may get next to no processor time.
        """
        seen = self.activity
        return seen is not None and not seen.threads_run and seen.cpu_share < _STANDS_STILL

    @property
    def waits_for_ever(self) -> bool:
        """Whether it runs, but waits for a thread that has ended."""
        waits_for = self.activity.waits_for if self.activity is not None else ""
        return self.state == "running" and waits_for == "ended thread"

    @property
    def builds(self) -> bool:
        """Whether it builds an extension of PyTorch, or waits for the lock of such a build."""
        return self.activity is not None and self.activity.waits_for in ("build", "build lock")

    @property
    def blocked_call(self) -> Call | None:
        """The call in which the rank is blocked, None if it is not blocked."""
        if self.blocked_in is None:
            return None
        return next((call for call in self.calls if call.index == self.blocked_in), None)

    @property
    def may_go_on(self) -> bool:
        """Whether its host may still issue calls although its device waits.

        A C call that begins at the user's line may wait for the device, as ``item()`` does, or
        compute. In torch's own Python code, a host that stands still waits.
        """
        return self.device_waits and not (self.stack and "/torch/" in self.stack[-1].file)
