"""What a running cell tells whoever shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..model import Cell, RankReport
from ..model.snapshot import Outcome

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class DisplayMessage:
    """Rich output of one rank, in Jupyter's terms.

    Attributes
    ----------
    kind
        ``"display"``, ``"result"`` (the value of the cell's last line) or ``"clear"``.
    data, metadata, transient
        The mimebundle and its companions.
    update
        True for an update of an earlier display with the same id in ``transient``.
    """

    kind: Literal["display", "result", "clear"]
    data: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    transient: dict[str, Any] = field(default_factory=dict)
    update: bool = False


class RunListener(Protocol):
    """Called from the notebook's main thread while a cell runs on the ranks."""

    def on_output(self, rank: int, stream: Stream, text: str) -> None:
        """Text as it arrived: may end within a line, may hold carriage returns."""

    def on_display(self, rank: int, message: DisplayMessage) -> None:
        """Rich output, in order with the rank's own text output."""

    def on_tick(self, now_s: float) -> None:
        """Called at least every 50 ms."""

    def on_status(self, text: str | None) -> None:
        """A live line ("waiting 4.2 s for rank 1, …"); None takes it away."""

    def on_end(self) -> None:
        """All output has arrived."""


class SilentListener:
    """Shows nothing."""

    def on_output(self, rank: int, stream: Stream, text: str) -> None: ...

    def on_display(self, rank: int, message: DisplayMessage) -> None: ...

    def on_tick(self, now_s: float) -> None: ...

    def on_status(self, text: str | None) -> None: ...

    def on_end(self) -> None: ...


class SeveralListeners:
    """Passes on what it is told.

    Parameters
    ----------
    listeners
        To whom.
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

    def on_status(self, text: str | None) -> None:
        for listener in self._listeners:
            listener.on_status(text)

    def on_end(self) -> None:
        for listener in self._listeners:
            listener.on_end()


#: Makes a listener for a cell that begins on these ranks.
ListenerMaker = Callable[[Cell, tuple[int, ...]], RunListener]


def together(
    own: RunListener | None, makers: Iterable[ListenerMaker], cell: Cell, chosen: tuple[int, ...]
) -> RunListener:
    """The cell's own listener, with those of everybody who wants to know of every cell."""
    others = [make(cell, chosen) for make in makers]
    alone = own or SilentListener()
    return SeveralListeners([alone, *others]) if others else alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """How a cell stands.

    Attributes
    ----------
    cell
        Its number.
    elapsed_s
        Seconds since it began; when it has ended: how long it took.
    reports
        Every rank; the calls are told only while a rank waits, and at the end.
    outcome
        None as long as it runs.
    frozen
        True if it is held as it is, for inspection.
    """

    cell: int
    elapsed_s: float
    reports: tuple[RankReport, ...]
    outcome: Outcome | None = None
    frozen: bool = False


class RunObserver(Protocol):
    """Looks on while cells run, whoever runs them; see ``session.active.observers``."""

    def on_moment(self, moment: Moment) -> None:
        """A few times a second from the thread that runs the cell, and once at the end."""
