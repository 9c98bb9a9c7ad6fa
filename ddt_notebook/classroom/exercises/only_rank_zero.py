"""A collective that one rank alone calls."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING, value
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.reference import training_loss

MEAN_LOSS = value(
    "mean-loss",
    "`mean_loss` of rank 0 is the mean over all training samples",
    "mean_loss",
    training_loss,
    only=lambda rank: rank == 0,
)


EXERCISE = Exercise(
    name="only-rank-zero",
    title="show the mean loss on rank 0",
    level=1,
    minutes=6,
    story="""
    Only rank 0 prints the loss, so that the log is not full of repetitions. Since that change the
    job has never ended. `mean_loss` on rank 0 should be the mean over all training samples after
    the last step, as a number or a tensor; the cell leaves the trained `model`, too.
    """,
    faults=("collective-under-rank-condition",),
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()

    with torch.no_grad():
        loss = loss_function(model.module(x), y)
    if rank == 0:
        dist.all_reduce(loss)
        mean_loss = loss / world_size
        print(f"mean loss {mean_loss:.3f}")
    """,
    solution="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()

    with torch.no_grad():
        loss = loss_function(model.module(x), y)
    dist.all_reduce(loss)
    mean_loss = loss / world_size
    if rank == 0:
        print(f"mean loss {mean_loss:.3f}")
    """,
    hints=(
        "Run the cell and read which rank waits, and where the others are.",
        (
            "A collective ends when every rank of the group has called it. Which rank calls "
            "all_reduce here?"
        ),
        "Call all_reduce on every rank, and keep only the print under the condition.",
    ),
    behaviours=(*TRAINING, MEAN_LOSS),
    leaves=("model", "mean_loss"),
)
