"""Files that a rank writes and the notebook reads, both through memory.

The pages belong to the file and not to the process, so they can be read whatever happens to the
rank.
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
        descriptor = os.open(path, os.O_RDONLY)
        try:
            check(descriptor)
            if os.fstat(descriptor).st_size < size:  # a read beyond the end is a SIGBUS
                raise FormatError("this file of a rank is shorter than it was made")
            self._map = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()
