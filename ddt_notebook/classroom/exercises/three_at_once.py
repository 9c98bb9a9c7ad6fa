"""Three faults in one cell."""

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
    name="three-at-once",
    title="repair a job that has three faults",
    level=3,
    minutes=25,
    story="""
    You take over this cell from a colleague. It ends without an error, and the ranks agree on the
    model, but neither the model nor the accuracy is right. There are three faults. Training should
    reach the parameters that one process reaches, and read each sample once in each epoch. On every
    rank `accuracy` should be the accuracy on all of `exercise.validation`, and only one rank should
    read each of these samples.
    """,
    faults=("shard-overlap", "sum-shown-as-mean", "metric-not-reduced"),
    start="""
    model = exercise.model()
    parameters = list(model.parameters())
    loss_function = torch.nn.CrossEntropyLoss()

    size = len(exercise.dataset) // world_size
    first = rank * size // 2
    x, y = exercise.dataset.take(range(first, first + size))
    for epoch in range(exercise.epochs):
        model.zero_grad()
        loss_function(model(x), y).backward()
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
        with torch.no_grad():
            for parameter in parameters:
                parameter -= exercise.learning_rate * parameter.grad

    x, y = exercise.validation.take(range(rank, len(exercise.validation), world_size))
    with torch.no_grad():
        accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
    """,
    solution="""
    model = exercise.model()
    parameters = list(model.parameters())
    loss_function = torch.nn.CrossEntropyLoss()

    size = len(exercise.dataset) // world_size
    first = rank * size
    x, y = exercise.dataset.take(range(first, first + size))
    for epoch in range(exercise.epochs):
        model.zero_grad()
        loss_function(model(x), y).backward()
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size
        with torch.no_grad():
            for parameter in parameters:
                parameter -= exercise.learning_rate * parameter.grad

    x, y = exercise.validation.take(range(rank, len(exercise.validation), world_size))
    with torch.no_grad():
        correct = (model(x).argmax(dim=1) == y).sum()
    dist.all_reduce(correct)
    accuracy = correct.item() / len(exercise.validation)
    """,
    hints=(
        "Follow the data, then the gradients, then the metric: there is a fault in each.",
        (
            "Which samples does the last rank take? What does all_reduce do with the gradients? "
            "On which samples was `accuracy` measured?"
        ),
        (
            "Shares start at rank * size; gradients are divided by world_size; right answers are "
            "counted, added up over the ranks, and divided by the number of all validation "
            "samples."
        ),
    ),
    behaviours=(*TRAINING, VALIDATION_SHARED, ALL_ACCURACY),
    setting=Setting(validation=64),
    leaves=("model", "accuracy"),
)
