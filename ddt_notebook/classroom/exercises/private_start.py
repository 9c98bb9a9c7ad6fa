"""Each rank begins with different weights."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

EXERCISE = Exercise(
    name="private-start",
    title="begin with the same model everywhere",
    level=2,
    minutes=10,
    story="""
    `exercise.model()` draws its weights at random, differently on each rank; all ranks should start
    with those of rank 0. The gradients are averaged by hand, and correctly. Yet the ranks end with
    different models, and the more steps they take, the less they learn. The cell leaves the trained
    `model`, the same on every rank.
    """,
    faults=("replicas-start-apart",),
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
            parameter.grad /= world_size
        with torch.no_grad():
            for parameter in parameters:
                parameter -= exercise.learning_rate * parameter.grad
    """,
    solution="""
    model = exercise.model()
    parameters = list(model.parameters())
    loss_function = torch.nn.CrossEntropyLoss()

    for parameter in parameters:
        dist.broadcast(parameter.data, src=0)
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
            "%ddt_show parity compares the ranks. Do they differ after the first step? Do they "
            "differ before it?"
        ),
        (
            "Equal gradients keep equal models equal. What makes them equal at the beginning? "
            "What does DDP do about this when it wraps a model?"
        ),
        "Broadcast each parameter from rank 0 before the first step.",
    ),
    behaviours=TRAINING,
    setting=Setting(random_start=True),
)
