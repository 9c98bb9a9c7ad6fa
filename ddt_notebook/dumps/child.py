"""Reads dumps for `readers`: ``python -m ddt_notebook.dumps.child``.

Each line on stdin names a rank and its file; the answer on stdout is a kind, a length and data.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..model import flight
from ..model.codec import FormatError
from . import columns
from .columns import StrangeEntries
from .readers import LENGTH_BYTES, READ, REFUSED, STRANGE

if sys.platform == "linux":
    import resource

#: Memory for a file: the dicts of a dump need about seven times its size, and a memo some MB.
_ROOM_BYTES, _TIMES_SIZE = 1 << 28, 24
#: Processor time for a file, in seconds, and for each byte: four times what the largest file takes.
_LIMIT_S, _BYTE_S = 10, 60 / (1 << 28)


def main() -> None:
    """Answer until stdin is closed."""
    gc.disable()  # it would visit every dict of a dump repeatedly, in a third of the time
    unpickled = flight.unpickled
    if sys.platform == "linux":  # other systems do not enforce a limit of memory
        _limit(resource.RLIMIT_CORE, 0)
        unpickled = _limited
    for line in sys.stdin.buffer:
        rank, name = line.split()
        try:
            kind, data = READ, columns.read(_path(name), int(rank), unpickled).to_bytes()
        except StrangeEntries as error:
            kind, data = STRANGE, str(error).encode()
        except (FormatError, OSError) as error:
            kind, data = REFUSED, str(error).encode()
        sys.stdout.buffer.write(kind + len(data).to_bytes(LENGTH_BYTES, "big") + data)
        sys.stdout.buffer.flush()


def _path(name: bytes) -> Path:
    return Path(os.fsdecode(bytes.fromhex(name.decode())))


def _limited(data: bytes) -> Any:
    """The content of a dump; one that takes too much memory is refused, or ends this process.

    The latter happens if it takes too much time or too deep a stack, too.
    """
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    used = pages * resource.getpagesize()
    _limit(resource.RLIMIT_DATA, used + _ROOM_BYTES + _TIMES_SIZE * len(data))
    _limit(resource.RLIMIT_CPU, int(time.process_time() + _LIMIT_S + _BYTE_S * len(data)))
    return flight.unpickled_quickly(data)


def _limit(kind: int, value: int) -> None:
    """Limit this process until the next call, but never beyond a limit that others set."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(kind, (value, hard))


if __name__ == "__main__":
    main()
