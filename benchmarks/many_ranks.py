"""Time and size of the evidence of jobs with many ranks, on reports that were made up.

Every rank of a job calls ``all_reduce`` in turn in the default group and in a group of eight, 60
times, which is what is read of each rank while a cell runs. One rank has not made the last call.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Cell, Position, RankReport, Snapshot
from ddt_notebook.model.waits import cannot_complete, waits

from .common import Figure, check, seconds

CALLS, TOGETHER, ABSENT = 60, 8, 17
WHERE = Position(file="train.py", line=40, code="dist.all_reduce(loss)")


def hang(ranks: int) -> Snapshot:
    """A hang in which one rank has finished, and the others wait for it."""
    groups = {"0": tuple(range(ranks))}
    for first in range(0, ranks, TOGETHER):
        groups[f"tp{first}"] = tuple(range(first, first + TOGETHER))
    return Snapshot(
        cell=Cell(number=1, source=""),
        outcome="hung",
        ranks=tuple(_report(rank, groups) for rank in range(ranks)),
        groups=groups,
        world_size=ranks,
    )


def _report(rank: int, groups: dict[str, tuple[int, ...]]) -> RankReport:
    names = (f"tp{rank - rank % TOGETHER}", "0")
    calls = tuple(
        Call(
            index=index,
            op="all_reduce",
            group=names[index % 2],
            members=groups[names[index % 2]],
            sequence=index // 2 + 1,
            status="done" if index < CALLS - 1 else "pending",
            reduce_op="SUM",
            shapes=((1024, 1024),),
            dtypes=("float32",),
            where=WHERE,
            entered_s=1000.0 + index,
        )
        for index in range(CALLS)
    )
    if rank == ABSENT:
        return RankReport(rank=rank, calls=calls[:-1])
    return RankReport(
        rank=rank, state="blocked", blocked_in=CALLS - 1, blocked_s=4.0, calls=calls, position=WHERE
    )


def measure() -> list[Figure]:
    """Measure."""
    most = hang(4096)

    def look() -> None:
        waiting = waits(most.ranks)
        check(len(cannot_complete(waiting, most.ranks)) == 4095, "a rank is not stuck")

    found = diagnose(most).findings
    check([finding.ranks for finding in found] == [[ABSENT]], f"other ranks are blamed: {found}")
    text = json.dumps(most.to_json())
    check(Snapshot.from_json(json.loads(text)) == most, "the snapshot changes when it is saved")
    return [
        Figure("who waits for whom, 4,096 ranks", _median(look), 0.2, "s"),
        Figure("diagnosis of a hang, 4,096 ranks", _median(lambda: diagnose(most)), 2, "s"),
        Figure("snapshot of 4,096 ranks, 60 calls each", len(text) / 1e6, 30, "MB"),
        Figure("the same, written", _median(lambda: json.dumps(most.to_json())), 2, "s"),
        Figure("the same, read", _median(lambda: Snapshot.from_json(json.loads(text))), 5, "s"),
    ]


def _median(action: Callable[[], object]) -> float:
    return statistics.median(seconds(action) for _ in range(5))


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
