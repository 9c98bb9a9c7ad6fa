"""The file in which a rank notes the collectives that threads beside its main thread enter.

Such calls are rare, and several threads may make them at once, so they are not in the ring of calls
(see `ring`), which has one writer. Each line of the file is one JSON array, written whole before
the call, and once more after it. The file only grows; an empty array begins a run.
"""

from __future__ import annotations

import json
import linecache
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..model import Position
from ..model.threads import ThreadCall

#: More calls of a run are not noted.
MOST_CALLS = 200
#: So many bytes at the end of the file are read.
_LONGEST = 1 << 20
#: File, line, function.
Line = tuple[str, int, str]

BEGINS = b"[]\n"


def entered(
    number: int, op: str, group: str, thread: str, where: Line | None, started: Sequence[Line]
) -> bytes:
    """The line to write before a call."""
    return json.dumps([number, op, group, thread, where, started]).encode() + b"\n"


def left(number: int) -> bytes:
    """The line to write after a call."""
    return json.dumps([number]).encode() + b"\n"


def read(file: Path) -> tuple[ThreadCall, ...]:
    """The calls of the last run; none if the file cannot be read."""
    with suppress(OSError), file.open("rb") as opened:
        opened.seek(max(0, opened.seek(0, os.SEEK_END) - _LONGEST))
        return _calls(opened.read(_LONGEST).rpartition(BEGINS)[2].splitlines())
    return ()


def _calls(lines: Iterable[bytes]) -> tuple[ThreadCall, ...]:
    found: dict[tuple[object, ...], ThreadCall] = {}
    open_: dict[int, tuple[object, ...]] = {}
    for line in lines:
        with suppress(ValueError, TypeError, LookupError):
            number, *rest = json.loads(line)
            if not rest:
                key = open_.pop(number)
                found[key] = replace(found[key], pending=key in open_.values())
                continue
            op, group, thread, where, started = rest
            call = ThreadCall(
                op=str(op),
                group=str(group),
                where=_position(where),
                thread=str(thread),
                started=tuple(filter(None, map(_position, started))),
                pending=True,
            )
            key = call.op, call.group, call.where, call.started
            times = found[key].times + 1 if key in found else 1
            found[key], open_[number] = replace(call, times=times), key
    return tuple(found.values())


def _position(plain: list[object] | None) -> Position | None:
    if plain is None:
        return None
    file, line, function = plain
    at = Position(file=str(file), line=int(line), function=str(function))  # type: ignore[call-overload]
    if at.cell is not None:
        return at
    with suppress(ValueError):  # no file has such a name
        return replace(at, code=linecache.getline(at.file, at.line).strip()[:200])
    return at
