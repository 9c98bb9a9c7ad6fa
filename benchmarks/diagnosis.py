"""How long a diagnosis of 8 ranks with 2,000 collectives each takes, healthy and with a fault."""

from __future__ import annotations

from dataclasses import replace

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Cell, Position, RankReport, Snapshot

from .common import Figure, median_of, seconds

RANKS, CALLS = 8, 2000
SOURCE = "for step in range(2000):\n    loss = model(x)\n    dist.all_reduce(loss)\n"


def measure() -> list[Figure]:
    figures = []
    for what, snapshot in (("healthy", _run()), ("one rank missing", _hung())):
        diagnose(snapshot)  # for imports and caches
        took, note = median_of(lambda run=snapshot: 1e3 * seconds(lambda: diagnose(run)), 9)
        name = f"diagnosis of {RANKS} ranks × {CALLS:,} collectives, {what}"
        figures.append(Figure(name, took, 100, "ms", note=note))
    return figures


def _run() -> Snapshot:
    members = tuple(range(RANKS))
    where = Position(file="cell[1]", line=3, code="dist.all_reduce(loss)")
    calls = tuple(
        Call(
            index=index,
            op="all_reduce",
            kind="collective",
            group="0",
            members=members,
            sequence=index + 1,
            shapes=((64, 10),),
            dtypes=("float32",),
            reduce_op="SUM",
            where=where,
            status="done",
            entered_s=0.001 * index,
            left_s=0.001 * index + 0.0005,
        )
        for index in range(CALLS)
    )
    ranks = tuple(RankReport(rank=rank, calls=calls) for rank in members)
    return Snapshot(
        cell=Cell(number=1, source=SOURCE),
        ranks=ranks,
        groups={"0": members},
        world_size=RANKS,
        duration_s=2.0,
    )


def _hung() -> Snapshot:
    run = _run()
    waiting = []
    for report in run.ranks:
        last = replace(report.calls[-1], status="pending", left_s=None)
        blocked = replace(
            report,
            calls=(*report.calls[:-1], last),
            state="blocked",
            blocked_in=last.index,
            blocked_s=2.1,
        )
        waiting.append(blocked if report.rank else replace(report, calls=report.calls[:-1]))
    return replace(run, ranks=tuple(waiting), outcome="hung")


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
