"""The file with what one rank of a job received: ``HOST-PID.inputs``.

It holds messages in the order in which they were written, `InputsBegun` first. Each is the length
of its JSON in four bytes, the JSON, the length of its payload in eight bytes, and the payload: the
bytes of tensors, one after the other, or plain Python objects as `objects` packs them. Nothing in
it can make a reader run code. Only its user can read it. A rank that is killed while it writes
leaves an incomplete last message, which a reader ignores.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ..model import FormatError
from ..model.replay import InputCall
from .messages import Envelope, Message, decode, encode

#: The name of such a file ends so.
INPUTS = ".inputs"
#: The variable that makes one rank of a job keep its inputs: ``RANK:BYTES``.
VARIABLE = "DDT_JOB_INPUTS"
#: A record ends after so many calls.
MOST_CALLS = 100_000
_HEAD, _PAYLOAD = struct.Struct("<I"), struct.Struct("<Q")
_LONGEST_HEAD = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomStates(Message):
    """The states of the random generators of a process.

    Attributes
    ----------
    torch
        That of torch's generator on the CPU, in hexadecimal.
    python, python_gauss
        That of the module ``random``.
    numpy, numpy_position, numpy_gauss
        That of ``numpy.random``; empty if numpy was not imported.
    """

    torch: str
    python: tuple[int, ...]
    python_gauss: float | None = None
    numpy: tuple[int, ...] = ()
    numpy_position: int = 0
    numpy_gauss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsBegun(Message):
    """A rank begins to keep its inputs.

    Attributes
    ----------
    rank, world_size, backend
        As for ``init_process_group``.
    torch_version, python_version
        The versions with which it runs.
    threads
        The number of threads with which torch computes.
    script, package, arguments, directory, sys_path
        The main program, its package if it was started with ``-m``, its arguments, the working
        directory, and where it finds modules.
    source
        The SHA-256 of the script.
    environment
        The variables that launchers set, and those that change how torch computes.
    random
        The random states at the end of ``import torch``.
    problem
        Why this process cannot be replayed; empty if it can.
    """

    rank: int
    world_size: int
    backend: str
    torch_version: str
    python_version: str
    threads: int
    script: str
    package: str = ""
    arguments: tuple[str, ...] = ()
    directory: str = ""
    sys_path: tuple[str, ...] = ()
    source: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    random: RandomStates | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallIssued(Message):
    """A call begins; its number is its place in the file, from 0."""

    call: InputCall


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReceived(Message):
    """The result of a call has arrived; the payload is what the rank received.

    Attributes
    ----------
    call
        Its number.
    dtypes, shapes
        Of the tensors in the payload; without any, the payload is a list of plain objects.
    handle
        Whether the call returned a handle.
    returned
        The number that it returned, such as the sender of a message.
    error, message
        The exception that left it; empty if none did.
    not_kept
        Why its result is not in the payload; empty if it is.
    """

    call: int
    dtypes: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    handle: bool = False
    returned: int | None = None
    error: str = ""
    message: str = ""
    not_kept: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsEnded(Message):
    """Nothing more is kept, although the rank goes on."""

    reason: str


class InputsFull(Exception):
    """The record has reached its limit."""


class InputsWriter:
    """Writes the file. Its methods may be called by several threads.

    Parameters
    ----------
    path
        The file, which must not exist.
    limit_bytes
        The largest size of the file.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._limit, self._size, self._calls = limit_bytes, 0, 0
        self._lock = threading.Lock()
        self.ended = False

    def begin(self, call: InputCall) -> int:
        """Write that a call begins; returns its number.

        Raises
        ------
        InputsFull
            If it is one too many.
        """
        with self._lock:
            if self._calls >= MOST_CALLS:
                raise InputsFull(f"it holds {MOST_CALLS:,} calls")
            self._write(CallIssued(call=call))
            self._calls += 1
            return self._calls - 1

    def write(self, message: Message, payload: Sequence[bytes | memoryview] = ()) -> None:
        """Append a message.

        Raises
        ------
        InputsFull
            If there is no room for it.
        OSError
            If it cannot be written.
        """
        with self._lock:
            self._write(message, payload)

    def _write(self, message: Message, payload: Sequence[bytes | memoryview] = ()) -> None:
        if self.ended:
            raise InputsFull("it has ended")
        size = sum(len(part) for part in payload)
        head = encode(Envelope(message, payload=b"" if payload else None))
        parts = [_HEAD.pack(len(head)), head, _PAYLOAD.pack(size), *payload]
        size += _HEAD.size + len(head) + _PAYLOAD.size
        if self._size + size > self._limit:
            raise InputsFull(f"it holds {self._limit / 2**20:,.0f} MB")
        try:
            for part in parts:
                _write_all(self._file, part)
        except OSError:  # the disk may be full: leave room for the reason
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        self._size += size

    def end(self, reason: str) -> None:
        """Write why nothing more is kept; the last message."""
        with self._lock:
            if self.ended:
                return
            self._limit += 1 << 12  # room for this
            try:
                self._write(InputsEnded(reason=reason))
            except OSError:
                pass  # a reader sees that the file is incomplete, or that the rank went on
            self.ended = True

    def leave(self) -> None:
        """Close the file in a child of the process."""
        self.ended = True
        os.close(self._file)


def _write_all(file: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        written = os.write(file, view)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A call with its result.

    Attributes
    ----------
    call
        The call.
    ended
        Its end; None if it had not ended when the process did.
    offset, size
        Where the payload of its end is in the file.
    """

    call: InputCall
    ended: InputReceived | None = None
    offset: int = 0
    size: int = 0


class InputsFile:
    """What a rank has kept.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    FormatError
        If it is not such a file, or another version wrote it.
    OSError
        If it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: list[KeptCall] = []
        self.why_ended = ""  #: why the record ends before the rank did
        begun: InputsBegun | None = None
        with path.open("rb") as file:
            for message, offset, size in _messages(file, path.stat().st_size):
                match message:
                    case InputsBegun():
                        begun = message
                    case CallIssued(call=call):
                        self.calls.append(KeptCall(call))
                    case InputReceived(call=number):
                        if not 0 <= number < len(self.calls):
                            raise FormatError(f"{path.name}: call {number} ends before it begins")
                        call = self.calls[number].call
                        self.calls[number] = KeptCall(call, message, offset, size)
                    case InputsEnded(reason=reason):
                        self.why_ended = reason
                    case None:
                        self.why_ended = "its last message is incomplete"
        if begun is None:
            raise FormatError(f"{path.name} does not hold the inputs of a rank")
        self.begun = begun

    def payload(self, kept: KeptCall) -> bytes:
        """The bytes that a call received."""
        with self.path.open("rb") as file:
            file.seek(kept.offset)
            return file.read(kept.size)


def _messages(file: BinaryIO, size: int) -> Iterator[tuple[Message | None, int, int]]:
    """The messages of a file, with place and size of their payloads; None if one is incomplete."""
    while head := file.read(_HEAD.size):
        length = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else 0
        if length > _LONGEST_HEAD:
            raise FormatError("a message of the inputs is too long")
        text, count = file.read(length), file.read(_PAYLOAD.size)
        payload = _PAYLOAD.unpack(count)[0] if len(count) == _PAYLOAD.size else size
        offset = file.tell()
        if payload > size - offset:
            yield None, 0, 0
            return
        yield decode(text)[0].message, offset, payload
        file.seek(payload, os.SEEK_CUR)
