"""Gradients are added up, not averaged."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.exercise import Exercise

EXERCISE = Exercise(
    name="sum-or-mean",
    title="average the gradients by hand",
    level=1,
    minutes=8,
    story="""
    Somebody has replaced DDP by a few lines, to learn how it works. With one rank the cell works;
    with more ranks the loss varies more and more. Training on any number of ranks should reach the
    same parameters as training in one process. The cell leaves the trained `model`.
    """,
    faults=("sum-shown-as-mean",),
    start="""
    model = exercise.model()
    parameters = list(model.parameters())
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))

    for epoch in range(exercise.epochs):
        model.zero_grad()
        loss_function(model(x), y).backward()
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
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
        (
            "%ddt_check says how far the parameters moved, compared with one process. What is "
            "that factor?"
        ),
        "What does all_reduce do with the gradients, if no operation is named?",
        "Divide each gradient by world_size after all_reduce has added them up.",
    ),
    behaviours=TRAINING,
)
