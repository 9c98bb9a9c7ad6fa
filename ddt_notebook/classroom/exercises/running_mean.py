"""Each rank keeps the BatchNorm statistics of its own batches."""

from __future__ import annotations

from typing import Any

from ddt_notebook.classroom import reference
from ddt_notebook.classroom.behaviours import (
    ENDS,
    OWN_SHARE,
    PARITY,
    READS_ONCE,
    WORKS,
    Behaviour,
    as_one,
    value,
)
from ddt_notebook.classroom.evidence import Evidence, NotReached
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

#: Of `torch.nn.BatchNorm1d`.
_EPS, _MOMENTUM = 1e-5, 0.1


def _shares(seen: Evidence) -> list[Any]:
    """What each rank read, as one batch."""
    if not seen.passes:
        raise NotReached
    return [sorted({int(i) for i in journal.reads}) for journal in seen.journals.values()]


def _normalised(seen: Evidence) -> Any:
    """The result of training in which the batch of each rank is normalised by itself."""
    data = seen.data
    inputs = data.inputs.astype("float64")
    for share in _shares(seen):
        batch = inputs[share]
        inputs[share] = (batch - batch.mean(0)) / (batch.var(0) + _EPS) ** 0.5
    steps = reference.whole_batches(seen, data.setting.epochs)
    return reference.train(data.initial, inputs, data.labels, steps, data.setting.rate)


def _mean(seen: Evidence) -> Any:
    """The running mean over the batches of all ranks, which begins at 0."""
    means = [seen.data.inputs[share].astype("float64").mean(0) for share in _shares(seen)]
    return sum(means) / len(means) * (1 - (1 - _MOMENTUM) ** seen.data.setting.epochs)


def _same_variance(seen: Evidence) -> str:
    import numpy as np

    held = seen.values("variance")
    for rank, array in held.items():
        if getattr(array, "shape", None) != (seen.data.inputs.shape[1],):
            return f"rank {rank} has no `variance` for each feature"
        apart = np.abs(array - held[0])
        if not apart.max() < 1e-5:
            at = int(apart.argmax())
            return (
                f"`variance[{at}]` is {array[at]:.4g} on rank {rank} and {held[0][at]:.4g} on "
                "rank 0"
            )
    return ""


EXERCISE = Exercise(
    name="running-mean",
    title="evaluate the same model on every rank",
    level=2,
    minutes=12,
    story="""
    The first layer of the model is BatchNorm. After training, the parameters are the same on every
    rank, but each rank reports another accuracy on the same validation samples. The cell leaves the
    trained `model` and the statistics that its evaluation uses: `mean` should be the mean of those
    of all ranks, and `mean` and `variance` should be the same on every rank. SyncBatchNorm does not
    run on a CPU.
    """,
    faults=("batch-norm-statistics-apart",),
    lesson="E.5",
    start="""
    norm = torch.nn.BatchNorm1d(64, affine=False)
    network = torch.nn.Sequential(norm, exercise.model())
    model = DDP(network, forward_sync_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()

    mean, variance = norm.running_mean, norm.running_var

    model.eval()
    with torch.no_grad():
        x, y = exercise.validation.take(range(len(exercise.validation)))
        print(f"accuracy {(network(x).argmax(1) == y).float().mean():.3f}")
    """,
    solution="""
    norm = torch.nn.BatchNorm1d(64, affine=False)
    network = torch.nn.Sequential(norm, exercise.model())
    model = DDP(network, forward_sync_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()

    mean, variance = norm.running_mean, norm.running_var
    for statistic in (mean, variance):
        dist.all_reduce(statistic)
        statistic /= world_size

    model.eval()
    with torch.no_grad():
        x, y = exercise.validation.take(range(len(exercise.validation)))
        print(f"accuracy {(network(x).argmax(1) == y).float().mean():.3f}")
    """,
    hints=(
        "Which tensors does the evaluation use that are no parameters? Print norm.running_mean.",
        (
            "BatchNorm computes its running statistics from the batches of its own rank. If DDP "
            "copies buffers, every rank gets those of rank 0, and not the mean over the ranks."
        ),
        (
            "Before the evaluation, all_reduce norm.running_mean and norm.running_var, and divide "
            "them by world_size."
        ),
    ),
    behaviours=(
        ENDS,
        READS_ONCE,
        OWN_SHARE,
        WORKS,
        PARITY,
        as_one(_normalised),
        value("mean", "`mean` is the mean over all ranks", "mean", _mean, within=1e-3),
        Behaviour("variance", "`variance` is the same on every rank", _same_variance),
    ),
    setting=Setting(per_rank=24, validation=60, epochs=8, rate=0.1),
    leaves=("model", "mean", "variance"),
)
