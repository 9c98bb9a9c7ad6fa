"""The cap on a rank's memory, and a reserve beyond it to tell what happened."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..system_memory import data_bytes

#: Enough to describe an exception and to form a group: each of gloo's threads maps 8 MB.
_RESERVE_BYTES = 128 << 20


class MemoryCap:
    """Lets an allocation beyond a limit fail with an exception in this process.

    Parameters
    ----------
    extra_bytes
        How much the cells may allocate beyond what is there now; None: no limit.
    """

    def __init__(self, extra_bytes: int | None) -> None:
        self._limit = extra_bytes + (data_bytes() or 0) if extra_bytes else 0
        hard = self._limit + _RESERVE_BYTES
        # made beforehand: when they are needed, there is no memory to make them
        self._held, self._opened = (self._limit, hard), (hard, hard)
        self.close_reserve()

    def open_reserve(self) -> None:
        """Allow more, now that a cell has ended by an exception: the session must hear of it."""
        if self._limit:
            with suppress(OSError, ValueError):  # a cell may have lowered it
                resource.setrlimit(resource.RLIMIT_DATA, self._opened)

    def close_reserve(self) -> None:
        """Hold the cap again."""
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

    def used_up(self) -> str:
        """How much is taken if hardly anything is left, else empty."""
        used = data_bytes()
        if not self._limit or used is None or used + _RESERVE_BYTES / 2 < self._limit:
            return ""
        return (
            f"its memory is full, {used / 2**20:,.0f} MB with a cap of "
            f"{self._limit / 2**20:,.0f} MB (--memory)"
        )
