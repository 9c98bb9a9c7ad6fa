"""Shares of different sizes have the same weight."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import (
    ACCURACY,
    AS_ONE,
    ENDS,
    PARITY,
    READS_ONCE,
    WORKS,
    Behaviour,
)
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting


def _less(seen: Evidence) -> str:
    seen.require_end()
    reads = {rank: len(journal.reads) for rank, journal in seen.journals.items()}
    slow = reads.pop(seen.data.special)
    if 0 < slow <= 0.5 * min(reads.values()):
        return ""
    return (
        f"the slow rank {seen.data.special} read {slow} samples, the others {min(reads.values())}"
    )


LESS = Behaviour("less", "the slow rank gets a third of what the others get", _less)


EXERCISE = Exercise(
    name="small-share",
    title="give the slow rank less to do",
    level=2,
    minutes=15,
    story="""
    `exercise.late_rank` is a slow machine, so it gets a third of what the others get. The shares
    are right, and the ranks agree with one another. But the model is not the one that a single
    process trains on the same data: the samples of the slow rank count three times. Keep the
    shares, and give every sample the same weight. The cell leaves the trained `model`.
    """,
    faults=("uneven-batch-sizes",),
    lesson="D.2.5",
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    speeds = [1 if r == exercise.late_rank else 3 for r in range(world_size)]
    size = len(exercise.dataset)
    first = size * sum(speeds[:rank]) // sum(speeds)
    end = size * sum(speeds[: rank + 1]) // sum(speeds)
    x, y = exercise.dataset.take(range(first, end))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    """,
    solution="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    speeds = [1 if r == exercise.late_rank else 3 for r in range(world_size)]
    size = len(exercise.dataset)
    first = size * sum(speeds[:rank]) // sum(speeds)
    end = size * sum(speeds[: rank + 1]) // sum(speeds)
    x, y = exercise.dataset.take(range(first, end))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        (loss_function(model(x), y) * len(y) * world_size / size).backward()
        optimizer.step()
    """,
    hints=(
        (
            "DDP takes the mean over the ranks. From how many samples does each rank compute its "
            "gradient?"
        ),
        (
            "A mean of means is the mean of all only if the parts are equally large. Each rank's "
            "loss needs a weight."
        ),
        (
            "Weight the loss by the share: multiply its mean by len(y) · world_size / "
            "len(exercise.dataset)."
        ),
    ),
    behaviours=(ENDS, READS_ONCE, LESS, WORKS, PARITY, AS_ONE, ACCURACY),
    setting=Setting(per_rank=35),
)
