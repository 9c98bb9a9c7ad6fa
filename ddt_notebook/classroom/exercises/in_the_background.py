"""Gradients are used before they have arrived."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

EXERCISE = Exercise(
    name="in-the-background",
    title="reduce gradients in the background",
    level=2,
    minutes=10,
    story="""
    To save time the gradients are reduced asynchronously. That is faster, but the models of the
    ranks become different, and no two runs give the same result. `exercise.late_rank` is a little
    late in each step, as some rank always is. The cell leaves the trained `model`.
    """,
    faults=("handle-not-waited",),
    start="""
    import time

    model = exercise.model()
    parameters = list(model.parameters())
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))

    for epoch in range(exercise.epochs):
        if rank == exercise.late_rank:
            time.sleep(0.01)
        model.zero_grad()
        loss_function(model(x), y).backward()
        handles = [dist.all_reduce(p.grad, async_op=True) for p in parameters]
        with torch.no_grad():
            for parameter in parameters:
                parameter -= exercise.learning_rate * parameter.grad / world_size
    """,
    solution="""
    import time

    model = exercise.model()
    parameters = list(model.parameters())
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))

    for epoch in range(exercise.epochs):
        if rank == exercise.late_rank:
            time.sleep(0.01)
        model.zero_grad()
        loss_function(model(x), y).backward()
        handles = [dist.all_reduce(p.grad, async_op=True) for p in parameters]
        for handle in handles:
            handle.wait()
        with torch.no_grad():
            for parameter in parameters:
                parameter -= exercise.learning_rate * parameter.grad / world_size
    """,
    hints=(
        "%ddt_show parity shows when the ranks differ. What is in a gradient right after the call?",
        "An asynchronous collective returns at once, with a handle. When is its result ready?",
        "Call wait() on every handle before you use the gradients.",
    ),
    behaviours=TRAINING,
    setting=Setting(epochs=15),
)
