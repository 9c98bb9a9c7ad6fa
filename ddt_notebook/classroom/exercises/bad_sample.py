"""An error is swallowed, and a rank goes on without its step."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import ACCURACY, TRAINING, as_one
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

EXERCISE = Exercise(
    name="bad-sample",
    title="leave a damaged sample out",
    level=3,
    minutes=15,
    story="""
    One of the samples is damaged, and reading it raises a `ValueError`. Somebody has put the step
    into `try … except` to avoid the error; now the job hangs. The cell should leave out only the
    damaged sample. In every epoch, each other sample should be used once, by one of the ranks. The
    cell leaves the trained `model`.
    """,
    faults=("exception-swallowed",),
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    share = range(rank, len(exercise.dataset), world_size)
    for epoch in range(exercise.epochs):
        try:
            x, y = exercise.dataset.take(share)
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
        except ValueError:
            continue  # a damaged sample
    """,
    solution="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    readable = []
    for index in range(rank, len(exercise.dataset), world_size):
        try:
            readable.append(exercise.dataset[index])
        except ValueError:
            continue  # a damaged sample
    x, y = (torch.stack(values) for values in zip(*readable))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    """,
    hints=(
        "Which rank meets the damaged sample, and what does it do in that epoch?",
        (
            "Because of one bad sample, the rank skips its whole step, and the others wait for "
            "its gradients."
        ),
        (
            "Read the samples one by one, catch the error of a single sample, and make the step "
            "with the rest."
        ),
    ),
    behaviours=(*TRAINING[:5], as_one(within=0.1), ACCURACY),
    setting=Setting(damaged=1),
)
