"""The gradients are averaged twice."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

EXERCISE = Exercise(
    name="slow-learner",
    title="learn as fast as one process does",
    level=2,
    minutes=8,
    story="""
    With more ranks this model learns less in each step; with eight ranks it hardly changes. The
    author has read that gradients must be divided by the number of ranks. The steps should be those
    of one process that trains on all data. The cell leaves the trained `model`.
    """,
    faults=("averaged-twice",),
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))

    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        (loss_function(model(x), y) / world_size).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size
        optimizer.step()
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
    """,
    hints=(
        (
            "%ddt_check says how far the parameters moved. What is the factor for two ranks, and "
            "for three ranks?"
        ),
        "What does DDP do with gradients in backward()? What do the lines after it do in addition?",
        "DDP has already averaged. Divide neither the loss nor the gradients again.",
    ),
    behaviours=TRAINING,
    setting=Setting(hidden=24),
)
