"""The cell shows the accuracy of one share as that of all samples."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING, VALIDATION_SHARED, value
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting
from ddt_notebook.classroom.reference import validation_accuracy

ALL_ACCURACY = value(
    "value",
    "`accuracy` is the accuracy on all validation samples, on every rank",
    "accuracy",
    validation_accuracy,
)


EXERCISE = Exercise(
    name="metric-of-one",
    title="report the accuracy on the validation data",
    level=1,
    minutes=8,
    story="""
    The validation data is divided among the ranks. The accuracy that rank 0 prints changes from run
    to run, and other ranks print other numbers. `accuracy` should be the accuracy on all of
    `exercise.validation`, the same on every rank, and only one rank should read each validation
    sample.
    """,
    faults=("metric-not-reduced",),
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()

    mine = range(rank, len(exercise.validation), world_size)
    x, y = exercise.validation.take(mine)
    with torch.no_grad():
        guesses = model.module(x).argmax(dim=1)

    accuracy = (guesses == y).float().mean().item()
    if rank == 0:
        print(f"accuracy {accuracy:.1%}")
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

    mine = range(rank, len(exercise.validation), world_size)
    x, y = exercise.validation.take(mine)
    with torch.no_grad():
        guesses = model.module(x).argmax(dim=1)

    correct = (guesses == y).sum()
    dist.all_reduce(correct)
    accuracy = correct.item() / len(exercise.validation)
    if rank == 0:
        print(f"accuracy {accuracy:.1%}")
    """,
    hints=(
        "Print the accuracy on every rank. Whose samples does each number stand for?",
        (
            "Each rank knows how many of its own samples are right. The shares may differ in "
            "size, so that a mean of the ranks' means is not exact."
        ),
        (
            "Count the right answers on each rank, add the counts up with all_reduce, and "
            "divide by the number of all validation samples."
        ),
    ),
    behaviours=(*TRAINING, VALIDATION_SHARED, ALL_ACCURACY),
    setting=Setting(validation=64),
    leaves=("model", "accuracy"),
)
