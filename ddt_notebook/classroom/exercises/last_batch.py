"""The ranks have different numbers of batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddt_notebook.classroom import reference
from ddt_notebook.classroom.behaviours import (
    ENDS,
    OWN_SHARE,
    PARITY,
    READS_ONCE,
    WORKS,
    accuracy,
    as_one,
)
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting
from ddt_notebook.classroom.reference import batches_of, expected, steps_of


def _joined(seen: Evidence) -> Any:
    """The result with `Join`: if few ranks have a batch left, their sum counts less."""
    data = seen.data
    rates = [data.setting.rate * len(ranks) / data.world_size for ranks in batches_of(seen)]
    return reference.train(data.initial, data.inputs, data.labels, steps_of(seen), rates)


EXERCISE = Exercise(
    name="last-batch",
    title="train on data that cannot be split evenly",
    level=3,
    minutes=20,
    story="""
    The number of samples is not a multiple of the number of ranks, so one rank has one batch more
    than the others. At the end of the first epoch the job hangs. The cell should use every sample
    exactly once in each epoch. The cell leaves the trained `model`, the same on every rank.
    """,
    faults=("uneven-iterations",),
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    share = range(rank, len(exercise.dataset), world_size)
    for epoch in range(exercise.epochs):
        for first in range(0, len(share), exercise.batch_size):
            x, y = exercise.dataset.take(share[first : first + exercise.batch_size])
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
    """,
    solution="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    share = range(rank, len(exercise.dataset), world_size)
    for epoch in range(exercise.epochs):
        with model.join():
            for first in range(0, len(share), exercise.batch_size):
                x, y = exercise.dataset.take(share[first : first + exercise.batch_size])
                optimizer.zero_grad()
                loss_function(model(x), y).backward()
                optimizer.step()
    """,
    hints=(
        "Print len(share) and the number of batches on each rank.",
        (
            "A rank that has no batch left must still take part in the steps of the others. "
            "PyTorch has a context for uneven inputs."
        ),
        "Put the loop over the batches of an epoch into `with model.join():`.",
    ),
    behaviours=(
        ENDS,
        READS_ONCE,
        replace(OWN_SHARE, title="each rank reads an equal share, or one sample more"),
        WORKS,
        PARITY,
        replace(
            as_one(expected, _joined, within=0.05),
            title="the ranks reach the parameters of one process, up to the size of a step for "
            "which not all ranks have a batch",
        ),
        accuracy(0.2),
    ),
    setting=Setting(per_rank=40, extra=1, epochs=8, batch=10, rate=0.3),
)
