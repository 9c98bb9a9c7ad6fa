"""Only its members form a group, and then all ranks form another one."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import (
    TRAINING,
    VALIDATION_SHARED,
    Behaviour,
    value,
)
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting
from ddt_notebook.classroom.reference import validation_accuracy


def _odd_ranks_free(seen: Evidence) -> str:
    seen.require_end()
    busy = [r for r, journal in seen.journals.items() if r % 2 and len(journal.validation_reads)]
    return f"rank {busy[0]} evaluates" if busy else ""


EVEN_FREE = Behaviour("odd-free", "the odd ranks evaluate nothing", _odd_ranks_free)
ALL_ACCURACY = value(
    "value",
    "`accuracy` is the accuracy on all validation samples, on every rank",
    "accuracy",
    validation_accuracy,
)


EXERCISE = Exercise(
    name="even-ranks",
    title="evaluate on the even ranks only",
    level=2,
    minutes=12,
    story="""
    The odd ranks should be free for other work while the even ranks (0, 2, …) share the evaluation;
    then rank 0 sends the result to all ranks, over another group. The job hangs at the line that
    makes this second group. `accuracy` should be that on all of `exercise.validation`, the same on
    every rank; the odd ranks should read none of these samples.
    """,
    faults=("new-group-on-some-ranks",),
    lesson="D.2.1",
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()

    even = list(range(0, world_size, 2))
    accuracy = torch.zeros(())
    if rank in even:
        group = dist.new_group(even)
        x, y = exercise.validation.take(range(rank // 2, len(exercise.validation), len(even)))
        with torch.no_grad():
            correct = (model.module(x).argmax(dim=1) == y).sum()
        dist.all_reduce(correct, group=group)
        accuracy = correct / len(exercise.validation)
    everybody = dist.new_group()
    dist.broadcast(accuracy, src=0, group=everybody)
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

    even = list(range(0, world_size, 2))
    accuracy = torch.zeros(())
    group = dist.new_group(even)
    if rank in even:
        x, y = exercise.validation.take(range(rank // 2, len(exercise.validation), len(even)))
        with torch.no_grad():
            correct = (model.module(x).argmax(dim=1) == y).sum()
        dist.all_reduce(correct, group=group)
        accuracy = correct / len(exercise.validation)
    everybody = dist.new_group()
    dist.broadcast(accuracy, src=0, group=everybody)
    """,
    hints=(
        (
            "At which call do the ranks wait, and for which ranks? How many groups has each rank "
            "made before?"
        ),
        "Read in the documentation of torch.distributed.new_group who has to call it.",
        (
            "Every rank of the job calls new_group, in the same order, even for a group to which "
            "it does not belong. Only the members use the group."
        ),
    ),
    behaviours=(*TRAINING, VALIDATION_SHARED, EVEN_FREE, ALL_ACCURACY),
    setting=Setting(validation=60),
    n=3,
    graded_n=4,
    leaves=("model", "accuracy"),
)
