"""Stops the ranks of a notebook that nobody uses, which frees their memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil

from .. import system_memory
from .errors import SessionError
from .session import Session

#: With this much memory or less, every second open notebook matters.
SMALL_BYTES = 4 << 30
_SMALL_MINUTES = 30.0
#: On such a machine, ranks stop earlier if more than this share of its memory is used.
_SHORT_SHARE = 0.8
_SHORT_AFTER_S = 60.0
_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class IdleLimits:
    """After how many seconds without a request the ranks stop.

    Attributes
    ----------
    after_s
        Always; None for never.
    short_after_s
        If the memory of the machine is short; None for never.
    """

    after_s: float | None
    short_after_s: float | None

    @classmethod
    def of(cls, minutes: float | None, total_bytes: int) -> IdleLimits:
        """The limits on a machine with so much memory.

        Parameters
        ----------
        minutes
            What the user asked for: None for the default, 0 for never.
        total_bytes
            The memory that the processes of this machine or container may use.
        """
        small = total_bytes <= SMALL_BYTES
        if minutes is None:
            minutes = _SMALL_MINUTES if small else 0
        if not minutes:
            return cls(None, None)
        return cls(60 * minutes, _SHORT_AFTER_S if small else None)

    def reached(self, idle_s: float, used_share: Callable[[], float]) -> bool:
        """Whether the ranks should stop; ``used_share`` is called only if it matters."""
        if self.after_s is None:
            return False
        if idle_s >= self.after_s:
            return True
        short = self.short_after_s is not None and idle_s >= self.short_after_s
        return short and used_share() > _SHORT_SHARE


def watch(session: Session, minutes: float | None, say: Callable[[str], None]) -> None:
    """Stop the ranks of a session whenever it is idle for too long.

    Parameters
    ----------
    session
        The session; the watch ends with it.
    minutes
        See `IdleLimits.of`.
    say
        Receives one line after the ranks were stopped.
    """
    limits = IdleLimits.of(minutes, memory()[1])
    if limits.after_s is not None:
        threading.Thread(target=_watch, args=(session, limits, say), daemon=True).start()


def memory() -> tuple[int, int]:
    """The memory that is used and that may be used, on this machine or in this container."""
    whole = psutil.virtual_memory()
    group = system_memory.cgroup()
    if group is not None and group.limit_bytes is not None and group.limit_bytes < whole.total:
        return group.used_bytes, group.limit_bytes
    return whole.total - whole.available, whole.total


def _watch(session: Session, limits: IdleLimits, say: Callable[[str], None]) -> None:
    ended = threading.Event()
    assert limits.after_s is not None
    while not session.stopped:
        ended.wait(min(_EVERY_S, limits.after_s / 4))
        if session.stopped or session.resting:
            continue
        idle_s = session.idle_s
        if limits.reached(idle_s, _used_share):
            with suppress(SessionError):  # a cell has begun
                session.rest()
                say(_line(idle_s))


def _used_share() -> float:
    used, total = memory()
    return used / total


def _line(idle_s: float) -> str:
    minutes = max(1, round(idle_s / 60))
    return (
        f"ddt_notebook stopped the ranks after {minutes} min without a cell, to free their memory; "
        "the next cell starts new ones, without the variables of these"
    )
