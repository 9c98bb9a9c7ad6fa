"""Written for two ranks, run on more."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.exercise import Exercise

EXERCISE = Exercise(
    name="more-than-two",
    title="run on any number of ranks",
    level=1,
    minutes=6,
    story="""
    This cell has run on two ranks for months. Now it should run on three or four. Nothing fails,
    but the results are worse. The check uses another number of ranks than yours. The cell leaves
    the trained `model`.
    """,
    faults=("shard-overlap", "sum-shown-as-mean"),
    start="""
    model = exercise.model()
    parameters = list(model.parameters())
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), 2))
    for epoch in range(exercise.epochs):
        model.zero_grad()
        loss_function(model(x), y).backward()
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2
        with torch.no_grad():
            for parameter in parameters:
                parameter -= exercise.learning_rate * parameter.grad
    """,
    solution="""
    model = exercise.model()
    parameters = list(model.parameters())
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))

    for epoch in range(exercise.epochs):
        model.zero_grad()
        loss_function(model(x), y).backward()
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size
        with torch.no_grad():
            for parameter in parameters:
                parameter -= exercise.learning_rate * parameter.grad
    """,
    hints=(
        "Start a session with %ddt_start -n 3 and look at which samples each rank reads.",
        "Which numbers in the cell are true only if there are two ranks?",
        "The number of ranks appears twice as 2: in the choice of the samples and in the mean.",
    ),
    behaviours=TRAINING,
)
