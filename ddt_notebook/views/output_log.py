"""What the ranks printed in one cell, as a bounded log of lines in the order of arrival."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple

from . import safe
from .line_buffer import LineBuffer

#: The source of a line; empty where it is not known.
Source = Literal["stdout", "stderr", "display", ""]

#: Limits of the text that is kept of one cell; older lines are only counted.
LINES_KEPT, CHARACTERS_KEPT = 20_000, 8_000_000
#: The longest line, and the longest unfinished one, that is shown whole.
_LINE_LIMIT, _UNFINISHED_LIMIT = 2_000, 160


class Line(NamedTuple):
    """One line of one rank."""

    rank: int
    source: Source
    text: str


class OutputLog:
    """Collects one cell's output; lines are counted from 0.

    Parameters
    ----------
    cell
        The cell's number.
    ordered
        Whether lines of different ranks are added in the order in which they came.

    Attributes
    ----------
    running
        Whether more text may arrive.
    version
        Changes with every change.
    """

    def __init__(self, cell: int, *, ordered: bool = True) -> None:
        self.cell = cell
        self.ordered = ordered
        self.running = True
        self.version = 0
        self._lines: deque[Line] = deque()
        self._characters = 0
        self._total = 0
        self._buffers: dict[tuple[int, Source], LineBuffer] = {}

    @property
    def first(self) -> int:
        """The number of the first line that is kept."""
        return self._total - len(self._lines)

    @property
    def total(self) -> int:
        """How many lines there were."""
        return self._total

    def add(self, rank: int, source: Source, text: str) -> None:
        """Add text as it arrived: it may end within a line and may contain carriage returns."""
        self.version += 1
        self.running = True  # also after the end: a cell that was held goes on when it is released
        buffer = self._buffers.setdefault((rank, source), LineBuffer())
        for line in buffer.feed(text):
            self._append(Line(rank, source, line))

    def finish(self) -> None:
        """Make lines of the unfinished text, since the cell has ended or is held."""
        self.version += 1
        self.running = False
        for (rank, source), buffer in self._buffers.items():
            for line in buffer.finish():
                self._append(Line(rank, source, line))

    def page(self, after: int, limit_bytes: int) -> dict[str, Any]:
        """Lines from number ``after`` on, as plain data of at most ``limit_bytes`` as JSON.

        The last page also contains the lines that the ranks have not finished.
        """
        start = min(max(after, self.first), self._total)
        unfinished = [
            Line(rank, source, safe.one_line(buffer.partial, _UNFINISHED_LIMIT))
            for (rank, source), buffer in sorted(self._buffers.items())
            if buffer.partial
        ]
        room = limit_bytes - sum(map(_weight, unfinished))
        lines: list[Line] = []
        for line in islice(self._lines, start - self.first, None):
            shown = line._replace(text=_shown(line.text))
            room -= _weight(shown)
            if room < 0 and lines:
                break
            lines.append(shown)
        end = start + len(lines)
        return {
            "cell": self.cell,
            "running": self.running,
            "ordered": self.ordered,
            "first": self.first,
            "from": start,
            "next": end,
            "total": self._total,
            "lines": lines,
            "unfinished": unfinished if end == self._total else [],
        }

    def _append(self, line: Line) -> None:
        self._lines.append(line)
        self._total += 1
        self._characters += len(line.text)
        while len(self._lines) > LINES_KEPT or self._characters > CHARACTERS_KEPT:
            self._characters -= len(self._lines.popleft().text)


def of_texts(cell: int, texts: Mapping[int, str]) -> OutputLog:
    """The log of a cell that no front end followed: the text of each rank in turn."""
    log = OutputLog(cell, ordered=False)
    for rank, text in sorted(texts.items()):
        if text:
            log.add(rank, "", text.removesuffix("\n") + "\n")
    log.finish()
    return log


def _shown(text: str) -> str:
    return safe.bounded(safe.clean(text[: 4 * _LINE_LIMIT]), _LINE_LIMIT, len(text))


def _weight(shown: Line) -> int:
    return len(json.dumps(shown, ensure_ascii=False).encode()) + 1
