"""Where every rank stood, stack by stack; equal stacks are shown once."""

from __future__ import annotations

from ..model import Position, RankReport, Snapshot
from . import html, words
from .bundle import Displayable
from .places import group

#: Frames shown of one stack: the innermost ones.
FRAMES = 12


class StacksView(Displayable):
    """The Python stacks of a snapshot, grouped."""

    __slots__ = ("snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def to_text(self) -> str:
        """One block per group of ranks, outermost frame first."""
        lines = [self._summary()]
        for title, frames in self._groups():
            lines.append(title)
            lines += [f"  {_frame(frame)}" for frame in frames]
        return "\n".join(lines)

    def to_html(self) -> str:
        """One block per group of ranks, outermost frame first."""
        parts = []
        for title, frames in self._groups():
            parts.append(html.line(html.tag("b", title)))
            parts.append(html.pre("\n".join(map(_frame, frames)) or "no Python frame was seen"))
        return html.view(html.line(self._summary()), *parts)

    def _summary(self) -> str:
        return f"stacks at the end of cell[{self.snapshot.cell.number}]"

    def _groups(self) -> list[tuple[str, tuple[Position, ...]]]:
        alike = group(self.snapshot.ranks, lambda r: (words.state(r), _stack(r)))
        return [
            (f"{words.ranks(r.rank for r in members)}: {state}", stack)
            for (state, stack), members in alike
        ]


def _stack(report: RankReport) -> tuple[Position, ...]:
    frames = report.stack or (report.error.frames if report.error else ())
    frames = frames or ((report.position,) if report.position else ())
    return frames[-FRAMES:]


def _frame(frame: Position) -> str:
    function = "" if frame.function == "<module>" else f"in {frame.function}"
    code = f"   {words.one_line(frame.code, 100)}" if frame.code else ""
    return f"{words.one_line(frame.place)} {words.one_line(function)}".rstrip() + code
