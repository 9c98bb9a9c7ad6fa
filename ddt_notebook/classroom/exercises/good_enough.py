"""Each rank stops by its own loss."""

from __future__ import annotations

from typing import Any

from ddt_notebook.classroom import reference
from ddt_notebook.classroom.behaviours import (
    ENDS,
    OWN_SHARE,
    PARITY,
    READS_ONCE,
    Behaviour,
    as_one,
)
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting
from ddt_notebook.classroom.reference import expected, whole_batches

_TARGET = 1.0


def _needed(seen: Evidence) -> int:
    """How many steps one process takes until the mean loss is below the target."""
    data = seen.data
    weights: reference.Weights = data.initial
    every = [slice(None)]
    for step in range(data.setting.epochs):
        if reference.mean_loss(weights, data.inputs, data.labels) < _TARGET:
            return step
        weights = reference.train(weights, data.inputs, data.labels, every, data.setting.rate)
    return data.setting.epochs


def _truth(seen: Evidence) -> Any:
    return expected(seen, lambda s: whole_batches(s, _needed(s)))


def _a_step_later(seen: Evidence) -> Any:
    """Of a loop that looks at the loss after the step."""
    return expected(seen, lambda s: whole_batches(s, _needed(s) + 1))


def _stops(seen: Evidence) -> str:
    seen.require_end()
    needed = _needed(seen)
    for rank, journal in seen.journals.items():
        done = len(journal.trained)
        if abs(done - needed) > 1:
            return f"rank {rank} computed {done} losses; the mean is low enough after {needed}"
    return ""


STOPS = Behaviour("stops", "training stops when the mean loss is below the target", _stops)

EXERCISE = Exercise(
    name="good-enough",
    title="stop when the loss is low enough",
    level=2,
    minutes=12,
    story="""
    The samples are sorted by class, and each rank trains on a part of them. Training should stop as
    soon as the mean loss over all training samples is below `target`. This works on one rank. On
    several ranks the job hangs towards the end. The cell leaves the trained `model`, and every rank
    has taken the same steps, no more than needed. Each rank reads its share once, before the loop.
    """,
    faults=("early-exit-on-rank-condition",),
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()
    target = 1.0

    size = len(exercise.dataset) // world_size
    x, y = exercise.dataset.take(range(rank * size, (rank + 1) * size))

    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        if loss.item() < target:
            break
        loss.backward()
        optimizer.step()
    """,
    solution="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()
    target = 1.0

    size = len(exercise.dataset) // world_size
    x, y = exercise.dataset.take(range(rank * size, (rank + 1) * size))

    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        mean_loss = loss.detach().clone()
        dist.all_reduce(mean_loss)
        if mean_loss.item() / world_size < target:
            break
        loss.backward()
        optimizer.step()
    """,
    hints=(
        "Which rank is missing when the others wait? Print the loss of each rank in the last step.",
        (
            "Each rank compares the loss of its own share with the target, so they do not leave "
            "together."
        ),
        (
            "Reduce the loss to its mean over the ranks first, then let all ranks compare the "
            "same number."
        ),
    ),
    behaviours=(ENDS, READS_ONCE, OWN_SHARE, STOPS, PARITY, as_one(_truth, _a_step_later)),
    setting=Setting(epochs=80, by_class=True),
)
