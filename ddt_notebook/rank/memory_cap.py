"""The cap on a rank's memory, and a reserve beyond it to report what happened."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..system_memory import data_bytes

#: Enough to describe an exception and to form a group, in which each of gloo's threads maps 8 MB.
_RESERVE_BYTES = 128 << 20


class MemoryCap:
    """Makes an allocation beyond a limit raise an exception in this process.

    Parameters
    ----------
    extra_bytes
        How many bytes the cells may allocate beyond those allocated now; None for no limit.
    """

    def __init__(self, extra_bytes: int | None) -> None:
        self._limit = extra_bytes + (data_bytes() or 0) if extra_bytes else 0
        self._hardly_any = min(_RESERVE_BYTES / 2, (extra_bytes or 0) / 4)
        hard = self._limit + _RESERVE_BYTES
        # created now, because there may be no memory left when they are needed
        self._held, self._opened = (self._limit, hard), (hard, hard)
        self.close_reserve()

    def open_reserve(self) -> None:
        """Allow more after an exception in a cell, so that the rank can report it."""
        if self._limit:
            with suppress(OSError, ValueError):  # a cell may have lowered the hard limit
                resource.setrlimit(resource.RLIMIT_DATA, self._opened)

    def close_reserve(self) -> None:
        """Apply the cap again."""
        if self._limit:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_DATA, self._held)

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Allow more within this block."""
        self.open_reserve()
        try:
            yield
        finally:
            self.close_reserve()

    def used_up(self, error: BaseException) -> str:
        """How much memory is used, as text, if that explains an error; else empty.

        It does if the error says that an allocation failed, or if hardly any memory is left.
        """
        used = data_bytes()
        if not self._limit or used is None:
            return ""
        failed = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
        if not failed and used + self._hardly_any < self._limit:
            return ""
        return (
            f"its memory is full, {used / 2**20:,.0f} MB with a cap of "
            f"{self._limit / 2**20:,.0f} MB"
        )
