"""The stacks of all ranks; equal stacks are shown once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..formatting import naming_hosts
from ..model import Position, RankReport, Snapshot
from . import html, safe, words
from .html import Markup
from .run_view import RunView
from .source_positions import group

#: Frames shown of one stack: the innermost ones.
FRAMES = 12


class StacksView(RunView):
    """The Python stacks of the ranks at the end of a run, grouped.

    Parameters
    ----------
    snapshot
        Of any run.
    """

    __slots__ = ()

    name = "stacks"
    columns = ("rank", "state", "depth", "file", "line", "function", "code")

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)

    def to_text(self) -> str:
        """One block per group of ranks, outermost frame first."""
        lines = [self._summary()]
        with naming_hosts(self.snapshot.hosts):
            for title, frames in self._groups():
                lines.append(title)
                lines += [f"  {_frame(frame)}" for frame in frames]
        return "\n".join(lines)

    def to_html(self) -> str:
        """One block per group of ranks, outermost frame first."""
        parts: list[Markup] = []
        with naming_hosts(self.snapshot.hosts):
            for title, frames in self._groups():
                parts.append(html.heading(title))
                if frames:
                    parts.append(html.pre("\n".join(map(_frame, frames))))
        return html.view(html.line(self._summary()), *parts)

    def to_frame(self) -> Any:
        """One row for each frame of each rank, as a pandas DataFrame.

        - ``rank``: global rank
        - ``state``: what the rank did, such as ``"waits in all_reduce"``
        - ``depth``: number of the frame, from 0 for the outermost one shown
        - ``file``: path of the file, or ``"cell[3]"``
        - ``line``: number of the line, from 1
        - ``function``: name of the function; ``"<module>"`` outside of functions
        - ``code``: text of the line, empty if it is not known
        """
        return super().to_frame()

    def _records(self) -> list[dict[str, Any]]:
        return list(self._frames())

    def _frames(self) -> Iterator[dict[str, Any]]:
        for report in self.snapshot.ranks:
            for depth, frame in enumerate(_stack(report)):
                yield {
                    "rank": report.rank,
                    "state": words.state(report, script=bool(self.snapshot.cell.file)),
                    "depth": depth,
                    "file": frame.file,
                    "line": frame.line,
                    "function": frame.function,
                    "code": frame.code,
                }

    def _summary(self) -> str:
        return f"stacks at the end of {safe.one_line(self.snapshot.cell.title, 120)}"

    def _groups(self) -> list[tuple[str, tuple[Position, ...]]]:
        alike = group(self.snapshot.ranks, lambda r: (self._state(r), _stack(r)))
        return [
            (f"{words.ranks(r.rank for r in members)}: {self._state(members[0], len(members))}", at)
            for (_, at), members in alike
        ]

    def _state(self, report: RankReport, ranks: int = 1) -> str:
        state = words.state(report, ranks, script=bool(self.snapshot.cell.file))
        last = report.calls[-1].where if report.calls else None
        if report.state == "finished" and last is not None and _stack(report) == (last,):
            state += "; the last call of torch.distributed was at"
        return state


def _stack(report: RankReport) -> tuple[Position, ...]:
    frames = report.stack or (report.error.frames if report.error else ())
    frames = frames or ((report.position,) if report.position else ())
    return frames[-FRAMES:]


def _frame(frame: Position) -> str:
    function = "" if frame.function == "<module>" else f"in {frame.function}"
    code = f"   {safe.one_line(frame.code, 100)}" if frame.code else ""
    return f"{safe.one_line(frame.place)} {safe.one_line(function)}".rstrip() + code
