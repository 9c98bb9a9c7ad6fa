"""Finds what has changed in a rank's files, so that an agent can send it to the notebook.

A reader may look at the copy at any time. So pieces are listed in the order in which the rank wrote
them: what a record refers to comes before the record, and the head of the ring comes last.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from . import branch_ring, ring
from .agent_messages import BLOCK_BYTES, FileBytes, RankFile

#: A text that grows faster than it is sent is skipped, up to this many bytes before its end.
_BACKLOG_BYTES, _KEPT_BYTES = 1 << 22, 1 << 18
_PAGE = 4096
_NO_PAGE = hash(bytes(_PAGE))
_ATTEMPTS = 20
_WHOLE_FILES = {"calls": ring.FILE_BYTES, "branches": branch_ring.FILE_BYTES}
_LONGEST_TEXT = 1 << 40

#: The files that only grow.
_TEXTS = ("out", "err", "crash", "threads")

#: Where a piece begins, and its content.
Piece = tuple[int, bytes]


class FileCopy:
    """The copy of one file.

    Parameters
    ----------
    path
        Path of the file, which need not exist yet.
    """

    #: Whether a copy needs the whole file's size at once.
    whole = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self.size = 0

    def changes(self, most: int) -> list[Piece]:
        """What has changed since the last call, and at most about ``most`` bytes of it."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY)
            except OSError:
                return []
        self.size = os.fstat(self._descriptor).st_size
        return list(self._changes(most))

    def _changes(self, most: int) -> Iterator[Piece]:
        raise NotImplementedError

    def _read(self, at: int, size: int) -> bytes:
        assert self._descriptor is not None
        return os.pread(self._descriptor, size, at).ljust(size, b"\0")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class TextCopy(FileCopy):
    """The copy of a file that only grows."""

    whole = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._at = 0

    def _changes(self, most: int) -> Iterator[Piece]:
        if self.size - self._at > _BACKLOG_BYTES:
            self._at = self.size - _KEPT_BYTES
        size = min(self.size - self._at, most)
        if size > 0:
            at, self._at = self._at, self._at + size
            yield at, self._read(at, size)


class RingCopy(FileCopy):
    """The copy of a call log, see `ring`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._count = 0
        self._turn = 0
        self._turns_seen = -1
        self._open: set[int] = set()
        self._slots: dict[int, bytes] = {}
        self._table_end = ring.TABLE_AT
        self._table_tail = b""

    def _changes(self, most: int) -> Iterator[Piece]:
        if self.size < ring.FILE_BYTES:
            return
        seen = self._turns_seen
        if not self._open and ring.NUMBER.unpack(self._read(0, ring.NUMBER.size))[0] == seen:
            return
        stamp = self._read(ring.STAMP_AT, ring.STAMP.size)
        if not any(stamp):  # the rank still makes the file
            return
        turn, head = self._head()
        count = ring.HEAD.unpack(head)[0]
        if self._turns_seen < 0:
            yield ring.STAMP_AT, stamp
        yield from self._table()
        first = max(self._count, count - ring.SLOTS)
        for index in (*sorted(self._open), *range(first, count)):
            yield from self._slot(index)
        self._count = count
        if turn != self._turns_seen:
            self._turns_seen = turn
            self._turn += 1  # so that the head which a reader uses is never written to
            yield ring.head_at(self._turn), head
            yield 0, ring.NUMBER.pack(self._turn)

    def _head(self) -> tuple[int, bytes]:
        turn, head = 0, b""
        for _ in range(_ATTEMPTS):
            (turn,) = ring.NUMBER.unpack(self._read(0, ring.NUMBER.size))
            head = self._read(ring.head_at(turn), ring.HEAD.size)
            if ring.NUMBER.unpack(self._read(0, ring.NUMBER.size))[0] == turn:
                break
        return turn, head

    def _table(self) -> Iterator[Piece]:
        full = self._read(ring.TABLE_AT, ring.NUMBER.size)
        if self._table_end == ring.TABLE_AT:
            self._table_end += ring.NUMBER.size
        if any(full):
            yield ring.TABLE_AT, full
        begin = at = last = self._table_end
        while at + ring.LENGTH.size <= ring.FILE_BYTES:
            (length,) = ring.LENGTH.unpack(self._read(at, ring.LENGTH.size))
            end = at + ring.LENGTH.size + length
            if not length or end > ring.FILE_BYTES:
                break
            last, at = at, end
        if at > begin:
            content = self._read(begin, at - begin)
            if content != self._table_tail:
                yield begin, content
            # the rank may still have written to the last entry, so that it is read again
            self._table_end, self._table_tail = last, content[last - begin :]

    def _slot(self, index: int) -> Iterator[Piece]:
        at = ring.slot_at(index)
        for _ in range(_ATTEMPTS):
            content = self._read(at, ring.SLOT_BYTES)
            number, status, *_ = ring.SLOT.unpack_from(content)
            if number != index + 1:  # a later record takes this slot
                self._open.discard(index)
                self._slots.pop(index, None)
                return
            if self._read(at, ring.SLOT.size) == content[: ring.SLOT.size]:
                break
        before = self._slots.get(index)
        if status in (ring.DONE, ring.FAILED):
            self._open.discard(index)
            self._slots.pop(index, None)
        else:
            self._open.add(index)
            self._slots[index] = content[: ring.SLOT.size]
        if before is None:
            yield at, bytes(ring.NUMBER.size)
            yield at + ring.NUMBER.size, content[ring.NUMBER.size :].rstrip(b"\0")
            yield at, content[: ring.NUMBER.size]
        elif before != content[: ring.SLOT.size]:
            yield at + ring.END_AT, content[ring.END_AT : ring.SLOT.size]
            yield at + ring.STATUS_AT, content[ring.STATUS_AT : ring.STATUS_AT + 1]


class BranchCopy(FileCopy):
    """The copy of a ring of branch events, see `branch_ring`: the pages that differ."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._known: dict[int, int] = {}

    def _changes(self, most: int) -> Iterator[Piece]:
        content = self._read(0, min(self.size, branch_ring.FILE_BYTES))
        if not any(content[: ring.NUMBER.size]):  # the rank still makes the file
            return
        for at in range(0, len(content), _PAGE):
            page = content[at : at + _PAGE]
            seen = hash(page)
            if self._known.get(at, _NO_PAGE) != seen:
                self._known[at] = seen
                yield at, page


def copies(files: Path) -> dict[str, FileCopy]:
    """The copies of the files that begin with a path, by the ends of their names."""

    def path(ending: str) -> Path:
        return files.with_name(f"{files.name}.{ending}")

    texts: dict[str, FileCopy] = {name: TextCopy(path(name)) for name in _TEXTS}
    return texts | {
        "calls": RingCopy(path("calls")),
        "branches": BranchCopy(path("branches")),
    }


def write_changes(descriptor: int, changed: FileBytes, data: bytes) -> None:
    """Write what one of the `messages` holds into the open copy."""
    limit = _WHOLE_FILES.get(changed.file, _LONGEST_TEXT)
    if changed.file in _WHOLE_FILES and changed.size == limit:
        with suppress(OSError):
            if os.fstat(descriptor).st_size < limit:
                os.ftruncate(descriptor, limit)
    write_pieces(descriptor, changed.pieces, data, limit)


def write_pieces(
    descriptor: int, pieces: tuple[tuple[int, int], ...], data: bytes, limit: int
) -> None:
    """Write what `FileCopy.changes` has found into the copy.

    Parameters
    ----------
    descriptor
        The open copy.
    pieces
        Where each piece begins and how long it is.
    data
        The pieces, one after the other.
    limit
        The end of the file: what lies behind is left out.
    """
    done = 0
    for at, length in pieces:
        part = data[done : done + length]
        done += length
        if 0 <= at <= limit - len(part) and length >= 0:
            with suppress(OSError, struct.error):
                os.pwrite(descriptor, part, at)


def messages(
    copy: FileCopy, key: int, file: RankFile, pieces: list[Piece]
) -> Iterator[tuple[FileBytes, bytes]]:
    """The messages, with their payloads, that bring these changes to the copy."""
    size = copy.size if copy.whole else 0
    while pieces:
        block, length = 0, 0
        while block < len(pieces) and length < BLOCK_BYTES:
            length += len(pieces[block][1])
            block += 1
        now, pieces = pieces[:block], pieces[block:]
        places = tuple((at, len(data)) for at, data in now)
        data = b"".join(data for _, data in now)
        yield FileBytes(key=key, file=file, size=size, pieces=places), data
