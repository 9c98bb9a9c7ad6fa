"""How long the view of a very long timeline takes, and how large its output is."""

from __future__ import annotations

import json

from ddt_notebook.model import Call, Cell, Position, RankReport, Snapshot
from ddt_notebook.model.timeline import RankTimeline
from ddt_notebook.views.timeline import TimelineView

from .common import Figure, median_of, seconds

RANKS, CALLS, SPANS = 64, 800, 800
_LINE = Position(file="cell[3]", line=9, code="loss.backward()")


def measure() -> list[Figure]:
    snapshot = long_run()
    events = RANKS * (CALLS + SPANS)
    built_s, note = median_of(lambda: seconds(lambda: bundle_bytes(snapshot)), 5)
    size = bundle_bytes(snapshot) / 1e6
    what = f"view of a timeline of {events:,} events on {RANKS} ranks"
    return [
        Figure(f"{what}, all faces", built_s, 1.5, "s", note=note),
        Figure(f"{what}, output", size, 2.0, "MB"),
    ]


def bundle_bytes(snapshot: Snapshot) -> int:
    """Size of the view's mimebundle."""
    return len(json.dumps(TimelineView(snapshot)._repr_mimebundle_()))


def long_run() -> Snapshot:
    """Collectives of 5 ms with work between them; a different rank enters each one last."""
    members = tuple(range(RANKS))
    reports, timelines = [], []
    for rank in members:
        calls = []
        for number in range(CALLS):
            late = 2e-3 if number % RANKS == rank else (number * 7 + rank * 13) % 10 * 1e-4
            at = 100 + number * 5e-3
            calls.append(
                Call(
                    index=number,
                    op="all_reduce",
                    members=members,
                    sequence=number + 1,
                    shapes=((250_000,),),
                    dtypes=("float32",),
                    where=_LINE,
                    entered_s=at + late,
                    left_s=at + 3e-3,
                )
            )
        reports.append(RankReport(rank=rank, calls=tuple(calls)))
        starts = [number * 5000 + 3200 for number in range(SPANS)]
        timelines.append(
            RankTimeline(
                rank=rank,
                started_s=100.0,
                ended_s=100 + CALLS * 5e-3,
                names=("backward", "Optimizer.step#Adam.step"),
                name=tuple(number % 2 for number in range(SPANS)),
                start_us=tuple(starts),
                duration_us=(1500,) * SPANS,
                steps_us=tuple(starts[1::2]),
            )
        )
    return Snapshot(
        cell=Cell(number=3, source="loss.backward()"),
        ranks=tuple(reports),
        world_size=RANKS,
        timeline=tuple(timelines),
        duration_s=CALLS * 5e-3,
        created="2026-01-01T00:00:00+00:00",
    )


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
