"""The learning rate does not follow the size of a step."""

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
    as_one,
)
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting


def _scaled(seen: Evidence) -> Any:
    """The result of the same steps, each as many times as long as there are ranks."""
    data, steps = seen.data, reference.steps_of(seen)
    rates = [data.setting.rate * data.world_size] * len(steps)
    return reference.train(data.initial, data.inputs, data.labels, steps, rates)


EXERCISE = Exercise(
    name="more-ranks",
    title="learn as much in an epoch on any number of ranks",
    level=1,
    minutes=8,
    story="""
    `exercise.learning_rate` was tuned with one process and batches of `exercise.batch_size`. The
    more ranks share the data, the less the model learns in the same number of epochs. Each rank
    should keep its batch size, and training should follow the linear scaling rule. The cell leaves
    the trained `model`.
    """,
    faults=("learning-rate-not-scaled",),
    lesson="E.8",
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
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate * world_size)
    loss_function = torch.nn.CrossEntropyLoss()

    share = range(rank, len(exercise.dataset), world_size)
    for epoch in range(exercise.epochs):
        for first in range(0, len(share), exercise.batch_size):
            x, y = exercise.dataset.take(share[first : first + exercise.batch_size])
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
    """,
    hints=(
        "How many samples are in one step of all ranks, and how many steps are in an epoch?",
        (
            "DDP averages, so each step is as long as that of one process, but there are fewer "
            "steps. Which setting has to grow with the number of samples in a step?"
        ),
        "Multiply the learning rate by world_size.",
    ),
    behaviours=(
        ENDS,
        READS_ONCE,
        OWN_SHARE,
        WORKS,
        PARITY,
        replace(as_one(_scaled), title="an epoch moves the parameters as far as the rule demands"),
    ),
    setting=Setting(per_rank=40, epochs=4, batch=10, rate=0.1),
)
