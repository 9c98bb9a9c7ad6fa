"""Traced runs of any size for the tests of the views of time and memory."""

from __future__ import annotations

from ddt_notebook.model import Call, Cell, Position, RankReport, Snapshot
from ddt_notebook.model.memory import RankMemory
from ddt_notebook.model.timeline import BACKWARD, RankTimeline

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(1)> \x1b[31m\" ' & 🎉 " + "y" * 10_000
STEPS, STEP_S, LATE_S = 11, 0.2, 0.15


def traced(world_size: int, name: str = "loss.backward()") -> Snapshot:
    """In each of ten steps, the last rank comes 150 ms late."""
    members = tuple(range(world_size))
    reports, timelines, memories = [], [], []
    for rank in members:
        late = LATE_S if rank == world_size - 1 else 0.0
        calls = tuple(
            Call(
                index=number,
                op="all_reduce",
                group=name if name == HOSTILE else "0",
                members=members,
                sequence=number + 1,
                shapes=((1000, 10),),
                dtypes=("float32",),
                where=Position(file="cell[3]", line=7, code=name),
                entered_s=number * STEP_S + late + 0.01,
                left_s=number * STEP_S + LATE_S + 0.02,
            )
            for number in range(STEPS)
        )
        reports.append(RankReport(rank=rank, calls=calls))
        timelines.append(
            RankTimeline(
                rank=rank,
                ended_s=STEPS * STEP_S,
                names=(BACKWARD, "Optimizer.step#SGD.step", name),
                name=tuple(i % 3 for i in range(3 * STEPS)),
                start_us=tuple(i // 3 * 200_000 + 175_000 + i % 3 * 5000 for i in range(3 * STEPS)),
                duration_us=(4000,) * (3 * STEPS),
                steps_us=tuple((i + 1) * 200_000 for i in range(STEPS)),
            )
        )
        memories.append(
            RankMemory(
                rank=rank,
                parts={"parameters": 40_000_000, "gradients": 40_000_000, "activations": 7_000},
                parameter_count=10_000_000,
                trained_count=10_000_000,
                measured="step 2",
                optimizer=name,
                rss_bytes=300_000_000,
                peak_bytes=320_000_000,
                limits={"machine": 10**10, "cgroup": 10**9},
                at_ms=tuple(range(0, 2000, 100)),
                rss_kb=tuple(200_000 + 5000 * i for i in range(20)),
                data_kb=tuple(100_000 + 5000 * i for i in range(20)),
            )
        )
    return Snapshot(
        cell=Cell(number=3, source=name),
        ranks=tuple(reports),
        world_size=world_size,
        timeline=tuple(timelines),
        memory=tuple(memories),
        duration_s=STEPS * STEP_S,
        created="2026-01-01T12:00:00+00:00",
    )


def empty() -> Snapshot:
    return Snapshot(cell=Cell(number=1, source=""))
