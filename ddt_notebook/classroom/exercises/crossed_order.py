"""Two collectives in another order on rank 0."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING, VALIDATION_SHARED, value
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting
from ddt_notebook.classroom.reference import validation_accuracy, validation_loss

ALL_ACCURACY = value(
    "accuracy-value",
    "`accuracy` is the accuracy on all validation samples, on every rank",
    "accuracy",
    validation_accuracy,
)
ALL_LOSS = value(
    "loss-value",
    "`mean_loss` is the mean over all validation samples, on every rank",
    "mean_loss",
    validation_loss,
)


EXERCISE = Exercise(
    name="crossed-order",
    title="reduce two numbers at the end",
    level=2,
    minutes=10,
    story="""
    After training the ranks add up two numbers over the validation data: the loss and the right
    answers. Nothing fails, yet rank 0 prints an accuracy of more than 100 %. On every rank,
    `accuracy` and `mean_loss` should be the accuracy and the mean loss on all of
    `exercise.validation`.
    """,
    faults=("swapped-collectives",),
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()

    x, y = exercise.validation.take(range(rank, len(exercise.validation), world_size))
    with torch.no_grad():
        scores = model.module(x)
    loss = loss_function(scores, y) * len(y)
    correct = (scores.argmax(dim=1) == y).float().sum()
    if rank == 0:
        dist.all_reduce(correct)
        dist.all_reduce(loss)
    else:
        dist.all_reduce(loss)
        dist.all_reduce(correct)
    mean_loss = loss.item() / len(exercise.validation)
    accuracy = correct.item() / len(exercise.validation)
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

    x, y = exercise.validation.take(range(rank, len(exercise.validation), world_size))
    with torch.no_grad():
        scores = model.module(x)
    loss = loss_function(scores, y) * len(y)
    correct = (scores.argmax(dim=1) == y).float().sum()
    dist.all_reduce(correct)
    dist.all_reduce(loss)
    mean_loss = loss.item() / len(exercise.validation)
    accuracy = correct.item() / len(exercise.validation)
    """,
    hints=(
        "Print both numbers on each rank before and after they are reduced.",
        (
            "Collectives are matched by their order, not by their variables. Does every rank "
            "call them in the same order?"
        ),
        "Let all ranks reduce `correct` first and `loss` second, without a condition.",
    ),
    behaviours=(*TRAINING, VALIDATION_SHARED, ALL_ACCURACY, ALL_LOSS),
    setting=Setting(validation=64),
    leaves=("model", "accuracy", "mean_loss"),
)
