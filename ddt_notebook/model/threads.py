"""Collectives that threads of the user's program entered beside the main thread."""

from __future__ import annotations

from dataclasses import dataclass

from .position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCall:
    """Calls of one operation that threads made at one line.

    Attributes
    ----------
    op, group
        As in `Call`.
    where
        The user's line that made the call; None if only a library did.
    thread
        The name of the thread that made the last one.
    started
        The user's lines that started this thread, or that handed the work to a pool of threads,
        innermost first. Empty if they are not known.
    times
        How often the line made such calls.
    pending
        Whether the thread was still in the last of them.
    """

    op: str
    group: str = "0"
    where: Position | None = None
    thread: str = ""
    started: tuple[Position, ...] = ()
    times: int = 1
    pending: bool = False
