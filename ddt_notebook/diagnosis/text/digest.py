"""Reads a log of any size and keeps the lines that may matter, in bounded memory and time."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

#: Parts of words in lines about trouble. Searches for plain bytes are faster than for patterns.
_TRIGGERS = tuple(
    word.encode()
    for word in (
        "rror", "ERR", "Traceback", "xception", "imeout", "imed out", "ailed", "ailure", "atal",
        "FATAL", "arning", "WARN", "egmentation", "SIG", "ignal", "bort", "tall", "ismatch",
        "annot", "enied", "efused", "not found", "o such", "ut of memory", "OOM", "oom-kill", "NaN",
        "nan ", "undefined symbol", "exit", "illed", "erminat", "closed by", "not enough",
        "already", "nable to", "an't", "Root Cause", "exhausted", "atchdog", "waiting for", "peer",
        "will restart", "Rendezvous", " · ", "[ddt-notebook] ",
    )
)  # fmt: skip
#: Parts of lines in which a job says with what it runs (see `job`), and how far from the beginning
#: of the log they are looked for.
_START_TRIGGERS = tuple(
    word.encode()
    for word in (
        "ersion", "Using network", "NET/", "] via ", "set by environment", "nranks", "orld size",
        "orld_size", "WORLD_SIZE", "estart", "Bootstrap",
    )
)  # fmt: skip
_START_BLOCKS = 8
#: Every rank prints these lines, and which ranks did is evidence: this many of them are kept.
_WATCHDOG = b"Watchdog caught collective operation timeout"
_OF_EVERY_RANK = ((_WATCHDOG, 5_000), (b" nranks ", 2_000))
#: Lines with these words and another number after them are of another kind.
_VERSION = b"ersion"
_PER_VERSION, _VERSION_LENGTH = 250, 40
#: Lines before the first collective that was given up: they show who was still at work.
_BEFORE = 40
_TRACEBACK = b"Traceback (most recent call last)"
#: How a report of ddt_notebook begins (see `own_reports`); its lines are kept like a traceback.
_REPORT = tuple(f" · {word}".encode() for word in ("certain", "likely", "possible"))
#: The limits below bound memory and time. With them, a log of 200 MB takes 4 s and 32 MB
#: (``python -m benchmarks.text_diagnosis``); each value alone is chosen, without a measurement.
#: Bytes in one read.
_BLOCK = 1 << 21
#: How often a line is kept that differs from others only in its numbers, the compared characters,
#: and the number of such templates.
_PER_TEMPLATE = 3
_TEMPLATE = 200
_KEPT = 1500
#: A block with at least this many lines with triggers is searched line by line.
_DENSE = 2_000
#: Lines at the beginning and at the end that are always kept.
_HEAD = 40
_TAIL = 80
#: Lines that are kept after the head of a traceback, for the first and the last tracebacks.
_WINDOW = 60
_FIRST_TRACEBACKS = 24
_LAST_TRACEBACKS = 6
#: Characters that are kept of a line.
_LINE = 1200
#: A line is no text if more than this part of its characters are no text. Chosen, not measured: of
#: random bytes about two thirds are, of a line in another encoding than UTF-8 mostly less.
_NO_TEXT = 0.3
_UNREADABLE = re.compile("[\\x00-\\x08\\x0e-\\x1a\\x1c-\\x1f\\x7f-\\x9f\ufffd]")
_DIGITS = b"0123456789"


@dataclass(slots=True)
class Digest:
    """The kept lines of a log, and its length.

    Attributes
    ----------
    lines
        Number, counted from 1, and text of each kept line.
    total
        Number of lines in all.
    """

    lines: list[tuple[int, str]]
    total: int


@dataclass(slots=True)
class _Keeper:
    """Collects lines while the blocks are read."""

    kept: dict[int, bytes] = field(default_factory=dict)
    seen: Counter[bytes] = field(default_factory=Counter)
    tracebacks: int = 0
    watchdogs: int = 0
    blocks: int = 0
    windows: deque[dict[int, bytes]] = field(
        default_factory=lambda: deque[dict[int, bytes]](maxlen=_LAST_TRACEBACKS)
    )
    open: dict[int, bytes] | None = None
    wanted: int = 0
    tail: deque[tuple[int, bytes]] = field(
        default_factory=lambda: deque[tuple[int, bytes]](maxlen=_TAIL)
    )

    def offer(self, number: int, line: bytes) -> None:
        """Offer a line with a trigger in it."""
        kind = self.kind_of(line)
        if kind is not None:
            self.seen[kind] += 1
            self.kept[number] = line

    def kind_of(self, line: bytes) -> bytes | None:
        """Return the kind of a line of which more are wanted, else None."""
        plain = line[:_TEMPLATE].translate(None, _DIGITS)
        times = self.seen.get(plain, 0)
        if times < _PER_TEMPLATE:
            return plain if times or len(self.seen) < _KEPT else None
        at = line.find(_VERSION)
        if at >= 0:
            kind = plain + line[at : at + _VERSION_LENGTH]
            known = self.seen.get(kind, 0)
            return kind if known < _PER_VERSION and (known or len(self.seen) < _KEPT) else None
        for words, most in _OF_EVERY_RANK:
            if words in line:
                return plain if times < most else None
        return None

    def traceback(self, number: int, following: list[bytes]) -> None:
        """Add the head of a traceback and the lines after it."""
        self.tracebacks += 1
        window = {number + offset: line for offset, line in enumerate(following)}
        if self.tracebacks <= _FIRST_TRACEBACKS:
            self.kept.update(window)
            self.open = self.kept
        else:
            self.windows.append(window)
            self.open = window
        self.wanted = _WINDOW - len(following)

    def following(self, number: int, lines: list[bytes]) -> None:
        """Add the first lines of a block, which may belong to the last traceback before it."""
        if self.open is not None and self.wanted > 0:
            taken = lines[: self.wanted]
            self.open.update({number + offset: line for offset, line in enumerate(taken)})
            self.wanted -= len(taken)

    def lines(self) -> list[tuple[int, str]]:
        """Return all kept lines in order."""
        found = dict(self.kept)
        for window in self.windows:
            found.update(window)
        found.update(self.tail)
        decoded = (
            (number, found[number].decode("utf-8", "replace").rstrip("\r\n"))
            for number in sorted(found)
        )
        return [(number, text) for number, text in decoded if _is_text(text)]


def read(stream: BinaryIO) -> Digest:
    """Read a log to its end.

    Parameters
    ----------
    stream
        Opened in binary mode; it is not closed.
    """
    keeper = _Keeper()
    number = 1
    for block in _blocks(stream):
        if number <= _HEAD:
            for offset, line in enumerate(_first_lines(block, _HEAD + 1 - number)):
                keeper.kept[number + offset] = line
        if keeper.wanted > 0:
            keeper.following(number, _first_lines(block, keeper.wanted))
        _search(block, number, keeper)
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        last = _last_lines(block, _TAIL)
        keeper.tail.extend(
            (number + lines - len(last) + offset, line) for offset, line in enumerate(last)
        )
        number += lines
    return Digest(keeper.lines(), number - 1)


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield blocks of whole lines; a line longer than a block is cut."""
    rest = b""
    while chunk := stream.read(_BLOCK):
        rest += chunk
        end = rest.rfind(b"\n") + 1
        if not end and len(rest) >= 2 * _BLOCK:
            end = len(rest)
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def _search(block: bytes, number: int, keeper: _Keeper) -> None:
    keeper.blocks += 1
    triggers = _TRIGGERS + (_START_TRIGGERS if keeper.blocks <= _START_BLOCKS else ())
    hits = _hits(block, triggers)
    if len(hits) >= _DENSE:
        hits = _hits_by_line(block, keeper, triggers)
    counted = 0
    for start in sorted(hits):
        at, end = hits[start]
        number += block.count(b"\n", counted, start)
        counted = start
        line = block[start : min(end, start + _LINE)]
        if _TRACEBACK in line or line.rstrip().endswith(_REPORT):
            keeper.traceback(number, _first_lines(block[start : start + _WINDOW * 400], _WINDOW))
        else:
            line = _around(block, start, at, end)
            if not keeper.watchdogs and _WATCHDOG in line:
                keeper.watchdogs += 1
                before = _last_lines(block[:start], _BEFORE)
                for offset, one in enumerate(before, start=number - len(before)):
                    keeper.kept.setdefault(offset, one.rstrip(b"\r").rpartition(b"\r")[2])
            keeper.offer(number, line)


def _hits(block: bytes, triggers: tuple[bytes, ...]) -> dict[int, tuple[int, int]]:
    """Map the start of each line with a trigger to the trigger's place and the line's end.

    Stops after `_DENSE` lines.
    """
    found: dict[int, tuple[int, int]] = {}
    for trigger in triggers:
        at = block.find(trigger)
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            found.setdefault(start, (at, end))
            if len(found) >= _DENSE:
                return found
            at = block.find(trigger, end)
    return found


def _hits_by_line(
    block: bytes, keeper: _Keeper, triggers: tuple[bytes, ...]
) -> dict[int, tuple[int, int]]:
    """Do the same as `_hits`, faster if most lines have triggers and few kinds exist."""
    found: dict[int, tuple[int, int]] = {}
    start = 0
    for line in block.split(b"\n"):
        if _TRACEBACK in line or keeper.kind_of(line) is not None:
            places = (line.find(trigger) for trigger in triggers)
            at = next((place for place in places if place >= 0), -1)
            if at >= 0:
                found[start] = (start + at, start + len(line))
        start += len(line) + 1
    return found


def _is_text(line: str) -> bool:
    """Whether people can read a line; a file that is no log has words by chance."""
    return len(_UNREADABLE.findall(line)) <= _NO_TEXT * len(line)


def _around(block: bytes, start: int, at: int, end: int) -> bytes:
    """Return a line; for a very long one, or a progress bar, the part around the word."""
    if end - start > _LINE:
        start, end = max(start, at - _LINE // 2), min(end, at + _LINE // 2)
    line = block[start:end].rstrip(b"\r")
    if b"\r" in line:
        middle = at - start
        left = line.rfind(b"\r", 0, middle) + 1
        right = line.find(b"\r", middle)
        line = line[left:] if right < 0 else line[left:right]
    return line


def _first_lines(block: bytes, wanted: int) -> list[bytes]:
    lines = block[: wanted * _LINE].split(b"\n", wanted)[:wanted]
    if lines and not lines[-1]:
        lines.pop()
    return [line[:_LINE] for line in lines]


def _last_lines(block: bytes, wanted: int) -> list[bytes]:
    end = len(block) - block.endswith(b"\n")
    if not end:
        return []
    return [
        line[-_LINE:] for line in block[max(0, end - wanted * _LINE) : end].split(b"\n")[-wanted:]
    ]
