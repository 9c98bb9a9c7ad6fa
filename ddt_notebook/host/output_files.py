"""Reads the text that a rank prints from the rank's output file."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

#: Read at most this much at once, and skip text if a rank prints faster than it is shown.
_CHUNK_BYTES = 1 << 18
_BACKLOG_BYTES = 1 << 22
#: Characters kept of one rank and cell for ``RunResult.outputs``.
_KEPT_CHARACTERS = 200_000


class Tail:
    """Follows one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch(mode=0o600)
        self._file = path.open("rb")
        self._at = 0
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def read(self, until: int | None = None) -> str:
        """New text, at most up to byte ``until`` of the file."""
        # of the open file, which a cell may have removed
        size = os.fstat(self._file.fileno()).st_size if until is None else until
        if size <= self._at:
            return ""
        skipped = ""
        if size - self._at > _BACKLOG_BYTES:
            left_out = size - self._at - _CHUNK_BYTES
            self._file.seek(size - _CHUNK_BYTES)
            self._at = size - _CHUNK_BYTES
            skipped = f"\n… {left_out:,} bytes are not shown; the whole text is in {self.path} …\n"
        data = self._file.read(min(size - self._at, _CHUNK_BYTES))
        self._at += len(data)
        return skipped + self._decode(data)

    def read_all(self, until: int | None = None) -> str:
        """New text up to ``until`` or the current end."""
        parts = []
        while part := self.read(until):
            parts.append(part)
        return "".join(parts)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class KeptText:
    """The beginning and the end of a text, of limited length."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail = ""
        self._room = _KEPT_CHARACTERS // 2
        self._dropped = 0

    def add(self, text: str) -> None:
        """Append text."""
        head, rest = text[: self._room], text[self._room :]
        if head:
            self._head.append(head)
            self._room -= len(head)
        self._tail += rest
        surplus = len(self._tail) - _KEPT_CHARACTERS // 2
        if surplus > 0:
            self._dropped += surplus
            self._tail = self._tail[surplus:]

    def __str__(self) -> str:
        gap = f"\n… {self._dropped:,} characters left out …\n" if self._dropped else ""
        return "".join(self._head) + gap + self._tail
