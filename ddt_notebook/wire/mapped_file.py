"""Files that a rank writes through memory, and the notebook reads.

The pages belong to the file and not to the process, so they can be read whatever happens to the
rank. The notebook does not map them: a cell that cuts the file would end it (SIGBUS).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

from ..model import FormatError


def create(path: Path, size: int, *, reserve: bool = False) -> mmap.mmap:
    """Map a file of this size for writing; it is created if it does not exist.

    Parameters
    ----------
    reserve
        Whether to take its space on the disk now. Otherwise unwritten pages take none, and a write
        to one of them ends the process (SIGBUS) if the disk is full; reading one may do so as well.

    Raises
    ------
    OSError
        If the file cannot be made, such as on a full disk.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(descriptor, size)
        if reserve and hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_WRITE)
    finally:
        os.close(descriptor)


class MappedReader:
    """The notebook's side of a mapped file.

    Parameters
    ----------
    path
        Path of a file that the rank has created.
    size
        Its size in bytes.
    check
        Receives the descriptor of the open file; raises `FormatError` if it is not such a file,
        or has another version.
    """

    def __init__(self, path: Path, size: int, check: Callable[[int], None]) -> None:
        self._size = size
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        self._descriptor = self._file.fileno()
        try:
            check(self._descriptor)
            self._refuse_shorter()
        except BaseException:
            self._file.close()
            raise

    def _refuse_shorter(self) -> None:
        if os.fstat(self._descriptor).st_size < self._size:
            raise FormatError("this file of a rank is shorter than it was made")

    def _bytes(self, at: int, size: int) -> bytes:
        """What the file has there now: zeros behind the end of a file that was cut."""
        found = os.pread(self._descriptor, size, at)
        return found if len(found) == size else found.ljust(size, b"\0")

    def _content(self, at: int, size: int) -> bytes:
        """As `_bytes`, of a place that the rank wrote, which may lie outside of the file."""
        size = max(0, min(size, self._size - at))
        return self._bytes(at, size) if size else b""

    def close(self) -> None:
        """Close the file."""
        self._descriptor = -1  # the number may soon be that of another file
        self._file.close()
