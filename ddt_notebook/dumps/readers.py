"""Reads many dumps in several processes, whose number the cores and the size of the dumps limit."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from ..model.codec import FormatError
from . import columns
from .columns import Columns, StrangeEntries

#: This process reads so many bytes in the time in which another one starts (0.3 s), which reads
#: them in a tenth of the time.
_HERE_BYTES = 1 << 20
#: One process reads this many bytes in the time in which another one starts.
_WORTH_A_PROCESS = 32 << 20
_MOST_PROCESSES = 16
#: The longest time for one file, in seconds; `child` limits its processor time.
_LIMIT_S = 300.0
_MODULE = "ddt_notebook.dumps.child"
#: An answer begins with one of these and its length.
READ, REFUSED, STRANGE = b"r", b"f", b"s"
LENGTH_BYTES = 8

#: A dump, or why it cannot be read.
Read = Columns | FormatError


def read_all(files: Sequence[tuple[Path, int]]) -> Iterator[Read]:
    """Read the dumps of ranks, in the order of ``files``; `StrangeEntries` is returned as well."""
    size = sum(file.stat().st_size for file, _ in files)
    if size <= _HERE_BYTES or not sys.executable:
        yield from (_read_here(file, rank) for file, rank in files)
        return
    processes = min(_cores(), _MOST_PROCESSES, size // _WORTH_A_PROCESS + 1, len(files))
    readers: list[_Reader] = []
    own = threading.local()

    def read(file: Path, rank: int) -> Read:
        if not hasattr(own, "reader"):
            own.reader = _Reader()
            readers.append(own.reader)
        result: Read = own.reader.read(file, rank)
        return result

    with ThreadPoolExecutor(processes, "ddt-dumps") as pool:
        try:
            for start in range(0, len(files), 64):  # so that few wait to be merged
                yield from pool.map(lambda one: read(*one), files[start : start + 64])
        finally:
            for reader in readers:
                reader.end()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_here(file: Path, rank: int) -> Read:
    try:
        return columns.read(file, rank)
    except FormatError as error:
        return error


class _Reader:
    """A process that reads dumps, and its successors: a file may end the process that reads it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, file: Path, rank: int) -> Read:
        if self._process is None:
            self._process = _start()
        request, answer = self._process.stdin, self._process.stdout
        assert request is not None
        assert answer is not None
        try:
            request.write(f"{rank} {os.fsencode(file).hex()}\n".encode())
            request.flush()
            outcome = _exactly(answer, 1)
            data = _exactly(answer, int.from_bytes(_exactly(answer, LENGTH_BYTES), "big"))
        except (OSError, EOFError) as error:  # including a TimeoutError
            self.end()
            ended = isinstance(error, (BrokenPipeError, EOFError))
            return FormatError("the process that read it ended" if ended else str(error))
        if outcome == READ:
            return Columns.from_bytes(data)
        text = data.decode(errors="replace")
        return StrangeEntries(text) if outcome == STRANGE else FormatError(text)

    def end(self) -> None:
        """End the process; the next `read` starts another one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with contextlib.suppress(OSError):
            process.communicate(timeout=10)


def _start() -> subprocess.Popen[bytes]:
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,  # Ctrl-C is for the caller, which ends this process
    )


def _exactly(stream: IO[bytes], size: int) -> bytes:
    parts = []
    while size:
        if not select.select([stream], [], [], _LIMIT_S)[0]:
            raise TimeoutError(f"it took more than {_LIMIT_S:.0f} s to read")
        part = stream.read(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
