"""no_sync() covers all batches, and the cell uses a sum of gradients as a mean."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

EXERCISE = Exercise(
    name="four-batches",
    title="make one step of four batches",
    level=2,
    minutes=12,
    story="""
    A batch of 40 does not fit into memory, so the cell should accumulate the gradients of four
    batches of 10 before each step. `no_sync()` saves the communication in between. The result
    should be that of the large batch, but the models of the ranks become different, and the steps
    are too large. The cell leaves the trained `model`.
    """,
    faults=("no-sync-left-on", "sum-shown-as-mean"),
    lesson="E.4",
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    share = range(rank, len(exercise.dataset), world_size)
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        for number in range(exercise.accumulate):
            x, y = exercise.dataset.take(share[number :: exercise.accumulate])
            with model.no_sync():
                loss_function(model(x), y).backward()
        optimizer.step()
    """,
    solution="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    from contextlib import nullcontext

    share = range(rank, len(exercise.dataset), world_size)
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        for number in range(exercise.accumulate):
            x, y = exercise.dataset.take(share[number :: exercise.accumulate])
            last = number + 1 == exercise.accumulate
            with nullcontext() if last else model.no_sync():
                (loss_function(model(x), y) / exercise.accumulate).backward()
        optimizer.step()
    """,
    hints=(
        "There are two faults. First find out in which backward() the ranks exchange gradients.",
        (
            "no_sync() must not enclose the last of the four batches. For the second fault: "
            "backward() adds up four gradients. Which value should the step use?"
        ),
        "Do not use no_sync() for the last batch, and divide each loss by exercise.accumulate.",
    ),
    behaviours=TRAINING,
    setting=Setting(per_rank=40, epochs=12, batch=10, accumulate=4),
)
