"""Every rank trains on the same part of the data."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.exercise import Exercise

EXERCISE = Exercise(
    name="shared-slice",
    title="divide the training data among the ranks",
    level=1,
    minutes=8,
    story="""
    With two ranks the model should be as good as with one, in half the time. It takes half the
    time, but the accuracy is that of a model trained on half of the digits. Nothing failed. Each
    epoch should use every sample of `exercise.dataset` once, on any number of ranks; the cell
    leaves the trained `model`.
    """,
    faults=("shard-overlap",),
    start="""
    torch.manual_seed(0)
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    share = len(exercise.dataset) // world_size
    x, y = exercise.dataset.take(range(share))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    """,
    solution="""
    torch.manual_seed(0)
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
        "Print on each rank which samples it takes, and compare the ranks.",
        "Does anything in the choice of the samples depend on the rank?",
        "Rank r takes the samples r, r + world_size, r + 2 · world_size, … up to the end.",
    ),
    behaviours=TRAINING,
)
