"""Processor time of a diagnosis: of 8 ranks with 2,000 collectives each, and of a long source."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Cell, Position, RankReport, Snapshot
from ddt_notebook.program.parse import parse
from ddt_notebook.program.tree import tree_of

from .common import Figure, median_of
from .lint import long_file

RANKS, CALLS = 8, 2000
SOURCE = "for step in range(2000):\n    loss = model(x)\n    dist.all_reduce(loss)\n"


def measure() -> list[Figure]:
    figures = []
    for what, snapshot in (("healthy", _run()), ("one rank missing", _hung())):
        diagnose(snapshot)  # for imports and caches
        took, note = median_of(partial(_diagnosis_ms, snapshot), 9)
        name = f"diagnosis of {RANKS} ranks × {CALLS:,} collectives, {what}"
        figures.append(Figure(name, took, 100, "ms", note=note))
    return [*figures, _long_source()]


def _diagnosis_ms(run: Snapshot) -> float:
    start = time.process_time()
    diagnose(run)
    return 1e3 * (time.process_time() - start)


def _long_source() -> Figure:
    """A healthy run of a long program, whose collectives are on different lines."""
    source = long_file()
    run = _run()
    numbers = [n for n, line in enumerate(source.splitlines(), 1) if "backward" in line]
    places = [Position(file="cell[1]", line=number) for number in numbers]

    def diagnosed() -> float:
        parse.cache_clear()  # each cell is read once
        tree_of.cache_clear()
        return _diagnosis_ms(long)

    ranks = tuple(
        replace(
            report,
            calls=tuple(
                replace(call, where=places[call.index % len(places)]) for call in report.calls
            ),
        )
        for report in run.ranks
    )
    long = replace(run, cell=Cell(number=1, source=source), ranks=ranks)
    took, note = median_of(diagnosed, 5)
    lines = source.count("\n") + 1
    return Figure(f"diagnosis of a run with {lines:,} lines of source", took, 500, "ms", note=note)


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
