"""Small snapshots and findings for the tests of the views."""

from ddt_notebook.model import (
    Call,
    Cell,
    Fact,
    Finding,
    Fix,
    Place,
    Position,
    RankError,
    RankReport,
    Snapshot,
)

SOURCE = """import torch
for step in range(20):
    if rank != 1:
        # the average over all ranks
        dist.all_reduce(loss)
"""
TRACEBACK = """RuntimeError            Traceback (most recent call last)
cell[14] in <module>
----> 6     dist.all_reduce(loss)
RuntimeError: Connection closed by peer"""


def position(line: int, code: str = "", file: str = "cell[14]") -> Position:
    return Position(file=file, line=line, code=code)


def blocked(rank: int) -> RankReport:
    call = Call(index=16, op="all_reduce", members=(0, 1, 2, 3), sequence=17, status="pending")
    error = RankError(
        type="RuntimeError",
        message=f"Connection closed by peer [127.0.0.1]:322{rank}",
        traceback=TRACEBACK,
        where=position(6),
        at_s=5.0 + rank,
        released=True,
    )
    return RankReport(
        rank=rank,
        state="blocked",
        blocked_in=16,
        blocked_s=2.1,
        position=position(6, "dist.all_reduce(loss)"),
        calls=(call,),
        error=error,
    )


def hang(world_size: int = 4) -> Snapshot:
    """Rank 1 goes past an all_reduce in which the others wait."""
    ranks = [blocked(rank) for rank in range(world_size)]
    if world_size > 1:
        ranks[1] = RankReport(rank=1, position=position(4, "if rank != 1:"))
    return Snapshot(
        cell=Cell(number=14, source=SOURCE, first_line=2),
        outcome="hung",
        ranks=tuple(ranks),
        world_size=world_size,
        duration_s=2.3,
    )


def hang_finding(world_size: int = 4, **changes: object) -> Finding:
    waiting = [rank for rank in range(world_size) if rank != 1]
    places = dict.fromkeys(
        waiting, Place(file="cell[14]", line=6, code="dist.all_reduce(loss)", role="waits")
    )
    places[1] = Place(file="cell[14]", line=4, code="if rank != 1:", role="passed")
    places = changes.get("places", places)  # type: ignore[assignment]
    content: dict[str, object] = {
        "symptom": "D.2.1",
        "stage": "training & evaluation",
        "title": "rank 1 never entered all_reduce #17 (10 × float32); the others wait for it",
        "cause": "collective-under-rank-condition",
        "ranks": [1],
        "waiting": waiting,
        "places": places,
        "where": {rank: place.label for rank, place in places.items()},
        "facts": [Fact(kind="calls-made", ranks=(1,), values={"calls": 16})],
        "evidence": ["rank 1 made 16 calls on group 0, the others 17"],
        "fixes": [
            Fix(
                pattern="fix behavior logic",
                advice="call the collective on every rank, outside `if rank …`",
                share=5 / 44,
            )
        ],
    }
    return Finding(**(content | changes))  # type: ignore[arg-type]


def crash() -> Snapshot:
    """Rank 2 raises; ranks 0 and 1 lose their peer; rank 3 is killed."""
    cause = RankError(
        type="ValueError",
        message="bad batch",
        traceback="ValueError Traceback\n----> 3 check(batch)\nValueError: bad batch",
        where=position(3),
        at_s=1.0,
    )
    peers = [
        RankReport(
            rank=rank,
            state="raised",
            error=RankError(
                type="RuntimeError",
                message=f"Connection closed by peer [127.0.0.1]:{4000 + rank}",
                traceback=TRACEBACK,
                where=position(6),
                at_s=2.0,
            ),
        )
        for rank in (0, 1)
    ]
    return Snapshot(
        cell=Cell(number=14, source=SOURCE, first_line=2),
        outcome="failed",
        ranks=(
            *peers,
            RankReport(rank=2, state="raised", error=cause),
            RankReport(rank=3, state="died", exit_signal=9),
        ),
        world_size=4,
    )
