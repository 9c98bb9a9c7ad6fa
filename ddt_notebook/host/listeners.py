"""Interfaces for code that shows a cell while it runs on the ranks.

A `RunListener` receives the output of one cell; the magic that runs the cell passes one. A
`RunObserver`, such as the live panel, receives the progress of the ranks a few times per second,
for every cell. Both are called on the notebook's main thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..model import Cell, RankReport
from ..model.snapshot import Outcome
from ..model.waits import Waiting
from ..wire.messages import DisplayKind
from .run_result import RunResult

Stream = Literal["stdout", "stderr"]

#: Seconds between two moments that observers receive: usually, and while a rank waits. This must
#: not slow the notebook's process, which also reads the ranks' records.
_EVERY_S, _EVERY_S_WHILE_WAITING = 0.5, 0.25
#: If a cell ends sooner, observers receive only its end.
_SHORT_CELL_S = 0.5


@dataclass(frozen=True, slots=True)
class DisplayMessage:
    """Rich output of one rank, in Jupyter's terms.

    Attributes
    ----------
    kind
        ``"display"``, ``"result"`` (the value of the cell's last line) or ``"clear"``.
    data, metadata, transient
        The MIME bundle, its metadata and its transient data.
    update
        True for an update of an earlier display with the same id in ``transient``.
    """

    kind: DisplayKind
    data: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    transient: dict[str, Any] = field(default_factory=dict)
    update: bool = False


class RunListener(Protocol):
    """Receives the output of a cell while it runs."""

    def on_output(self, rank: int, stream: Stream, text: str) -> None:
        """Text as it arrives; it may end within a line, and may contain carriage returns."""

    def on_display(self, rank: int, message: DisplayMessage) -> None:
        """Rich output, in order with the rank's own text output."""

    def on_tick(self, now_s: float) -> None:
        """Called at least every 50 ms."""

    def on_waiting(self, waiting: Waiting | None) -> None:
        """The longest wait, if ranks have been waiting for long; None: no such wait any more."""

    def on_end(self) -> None:
        """Called when all output has arrived."""


class SilentListener:
    """Ignores all output."""

    def on_output(self, rank: int, stream: Stream, text: str) -> None: ...

    def on_display(self, rank: int, message: DisplayMessage) -> None: ...

    def on_tick(self, now_s: float) -> None: ...

    def on_waiting(self, waiting: Waiting | None) -> None: ...

    def on_end(self) -> None: ...


class SeveralListeners:
    """Passes everything on to several listeners.

    Parameters
    ----------
    listeners
        The listeners, in the order in which they are called.
    """

    def __init__(self, listeners: Iterable[RunListener]) -> None:
        self._listeners = tuple(listeners)

    def on_output(self, rank: int, stream: Stream, text: str) -> None:
        for listener in self._listeners:
            listener.on_output(rank, stream, text)

    def on_display(self, rank: int, message: DisplayMessage) -> None:
        for listener in self._listeners:
            listener.on_display(rank, message)

    def on_tick(self, now_s: float) -> None:
        for listener in self._listeners:
            listener.on_tick(now_s)

    def on_waiting(self, waiting: Waiting | None) -> None:
        for listener in self._listeners:
            listener.on_waiting(waiting)

    def on_end(self) -> None:
        for listener in self._listeners:
            listener.on_end()


#: Makes a listener for a cell that begins on these ranks.
ListenerMaker = Callable[[Cell, tuple[int, ...]], RunListener]


def together(
    own: RunListener | None, makers: Iterable[ListenerMaker], cell: Cell, chosen: tuple[int, ...]
) -> RunListener:
    """One listener for a cell, which combines its own and those that are made for every cell."""
    others = [make(cell, chosen) for make in makers]
    alone = own or SilentListener()
    return SeveralListeners([alone, *others]) if others else alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state of the ranks at one moment of a cell.

    Attributes
    ----------
    cell
        Number of the cell.
    elapsed_s
        Seconds since the cell began; after its end, its duration.
    reports
        One report per rank. They contain calls only while a rank waits, and at the end.
    outcome
        None while the cell runs.
    frozen
        Whether the cell is held as it is, for inspection.
    """

    cell: int
    elapsed_s: float
    reports: tuple[RankReport, ...]
    outcome: Outcome | None = None
    frozen: bool = False


class RunObserver(Protocol):
    """Receives the progress of the ranks while cells run; see `session.ActiveSession.observers`."""

    def on_moment(self, moment: Moment) -> None:
        """Called a few times per second while a cell runs, and once when it has ended."""


class MomentFeed:
    """Sends the moments of one cell to observers.

    Parameters
    ----------
    observers
        The observers; the list may grow while the cell runs.
    cell
        Number of the cell.
    """

    def __init__(self, observers: Sequence[RunObserver], cell: int) -> None:
        self._observers = observers
        self._cell = cell
        self._began_s = time.monotonic()
        self._shown_s = self._began_s + _SHORT_CELL_S - _EVERY_S_WHILE_WAITING

    @property
    def wanted(self) -> bool:
        """Whether there are observers."""
        return bool(self._observers)

    def tick(self, reports: Callable[[], tuple[RankReport, ...]], *, waiting: bool) -> None:
        """Send the current moment if one is due.

        Parameters
        ----------
        reports
            Makes the reports; called only when a moment is sent.
        waiting
            Whether a rank may be waiting.
        """
        now = time.monotonic()
        due_s = _EVERY_S_WHILE_WAITING if waiting else _EVERY_S
        if self._observers and now - self._shown_s >= due_s:
            self._shown_s = now
            elapsed_s = now - self._began_s
            self._show(Moment(cell=self._cell, elapsed_s=elapsed_s, reports=reports()))

    def end(self, result: RunResult) -> RunResult:
        """Send how the cell ended, or that it is held; returns ``result``."""
        self._show(
            Moment(
                cell=self._cell,
                elapsed_s=result.snapshot.duration_s,
                reports=result.snapshot.ranks,
                outcome=result.snapshot.outcome,
                frozen=result.frozen,
            )
        )
        return result

    def silence(self) -> None:
        """Send no more moments."""
        self._observers = ()

    def _show(self, moment: Moment) -> None:
        for observer in tuple(self._observers):
            observer.on_moment(moment)
