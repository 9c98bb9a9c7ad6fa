"""Reads from the logs of a job how each rank ended: its exception, its signal, its last stack."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..diagnosis.text import digest, exceptions, job, stamps
from ..diagnosis.text.lines import Line, separate
from ..model import RankError
from . import stacks
from .evidence import Ending

#: The end of a log that is searched for stacks, in bytes.
_TAIL_BYTES = 1 << 18
#: A traceback with more lines of its rank after it was caught. Chosen, not measured.
_LINES_AFTER = 40
#: Lines before an exception's last one in which its time stamp is looked for: a traceback has none.
_STAMP_ABOVE = 80
#: torchrun's summary of the processes that failed, the first of them last.
_FIRST = "Root Cause (first observed failure)"
_RANK = re.compile(r"\s*rank\s+: (\d{1,6}) \(local_rank: \d+\)")
_EXIT = re.compile(r"\s*exitcode\s+: (-?\d{1,3}) \(pid: \d+\)")
_FATAL = re.compile(r"Fatal Python error: ([A-Z][a-z ]+)")
_SIGNALS = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Floating": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
}
#: Exceptions with which a process ends on purpose.
_ON_PURPOSE = frozenset({"SystemExit", "KeyboardInterrupt"})


@dataclass(slots=True)
class Log:
    """What one log shows.

    Attributes
    ----------
    text
        The lines that may matter, each with the mark of its rank.
    errors, endings, stacks
        By rank, as in `Evidence`.
    times
        When each of ``errors`` was printed, by the clock of its host.
    """

    text: str = ""
    errors: dict[int, RankError] = field(default_factory=dict)
    endings: dict[int, Ending] = field(default_factory=dict)
    stacks: dict[int, stacks.Stack] = field(default_factory=dict)
    times: dict[int, stamps.Stamp] = field(default_factory=dict)


def read(file: Path, rank: int | None, whole: job.Reader, name: str) -> Log:
    """Read a log of any size, of one rank or of all.

    Parameters
    ----------
    rank
        The rank that wrote it; None if several did.
    whole
        Reads what the logs of the job say together.
    name
        The file as a report names it.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with file.open("rb") as stream:
        kept = digest.read(stream)
        stream.seek(max(0, file.stat().st_size - _TAIL_BYTES))
        tail = stream.read(_TAIL_BYTES).decode(errors="replace")
    lines = separate(kept.lines)
    whole.read(lines, name, rank)
    log = of_lines(lines, rank)
    if rank is not None:
        _add_fatal(log, tail, rank)
    return log


def of_lines(found: list[Line], rank: int | None) -> Log:
    """What lines show; those without a mark are of ``rank``."""
    lines = [
        Line(line.number, line.rank if line.rank is not None else rank, line.text) for line in found
    ]
    errors, times = _errors(lines)
    return Log(
        text="\n".join(map(_marked, lines)),
        errors=errors,
        times=times,
        endings=_endings(line.text for line in lines),
    )


def _marked(line: Line) -> str:
    return line.text if line.rank is None else f"[rank{line.rank}]: {line.text}"


def _errors(lines: list[Line]) -> tuple[dict[int, RankError], dict[int, stamps.Stamp]]:
    """The last exception of each rank, if the rank printed little after it, and its time."""
    found, times = {}, {}
    written = Counter(line.rank for line in lines)
    before: Counter[int | None] = Counter()
    position = {}
    for line in lines:
        before[line.rank] += 1
        position[line.number] = before[line.rank]
    for raised in exceptions.find(lines):
        if raised.rank is None or not raised.error.frames or raised.error.type in _ON_PURPOSE:
            continue
        if written[raised.rank] - position[raised.line] <= _LINES_AFTER:
            found[raised.rank] = raised.error
            at = next(n for n, line in enumerate(lines) if line.number == raised.line)
            stamp = _stamp_above(lines[max(0, at - _STAMP_ABOVE) : at + 1], raised.rank)
            if stamp is not None:
                times[raised.rank] = stamp
    return found, times


def _stamp_above(lines: list[Line], rank: int) -> stamps.Stamp | None:
    own = (stamps.read(line.text) for line in reversed(lines) if line.rank == rank)
    return next((stamp for stamp in own if stamp is not None), None)


def _endings(lines: Iterable[str]) -> dict[int, Ending]:
    """How processes ended by torchrun's summary, which names the first of them at its end."""
    found: dict[int, Ending] = {}
    rank, first = None, False
    for line in lines:
        first = first or _FIRST in line
        if match := _RANK.match(line):
            rank = int(match[1])
        elif (match := _EXIT.match(line)) and rank is not None:
            status = int(match[1])
            number = -status if status < 0 else None
            found[rank] = Ending(code=None if number else status, signal=number, first=first)
            rank = None
    return found


def _add_fatal(log: Log, tail: str, rank: int) -> None:
    """Add what faulthandler printed of a rank: before a signal ended it, or on request."""
    fatal = list(_FATAL.finditer(tail))
    text = tail[fatal[-1].start() :] if fatal else tail
    if fatal:
        number = next((n for name, n in _SIGNALS.items() if fatal[-1][1].startswith(name)), None)
        log.endings[rank] = Ending(
            signal=number, code=None if number else 1, text=text[:20_000], first=True
        )
    elif stack := stacks.read(text):
        log.stacks[rank] = stack
