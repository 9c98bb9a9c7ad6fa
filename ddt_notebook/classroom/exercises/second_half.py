"""Only rank 0 resumes, and the schedule is not in the file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddt_notebook.classroom import reference
from ddt_notebook.classroom.behaviours import (
    ENDS,
    OWN_SHARE,
    PARITY,
    READS_ONCE,
    WORKS,
    as_one,
)
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

#: By which the schedule multiplies the learning rate after each epoch.
_FACTOR = 0.8


def _never_stopped(seen: Evidence) -> Any:
    """The result of a job that was never stopped, with its schedule."""
    data, steps = seen.data, reference.steps_of(seen)
    rates = [data.setting.rate * _FACTOR**epoch for epoch in range(len(steps))]
    return reference.train(data.initial, data.inputs, data.labels, steps, rates)


EXERCISE = Exercise(
    name="second-half",
    title="resume a job as if it had never been stopped",
    level=2,
    minutes=15,
    story="""
    A job is stopped after half of its epochs, and resumed from its checkpoint. The learning rate
    falls after each epoch. After the restart the ranks no longer agree, and even rank 0 does not
    reach the parameters of a job that was never stopped. The cell runs both halves, one after the
    other. It leaves the trained `model`, which should be that of an uninterrupted job.
    """,
    faults=("resumed-without-state",),
    lesson="E.2",
    start="""
    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    loss_function = torch.nn.CrossEntropyLoss()


    def factor(epoch):
        return 0.8**epoch


    def build():
        network = exercise.model()
        optimizer = torch.optim.SGD(network.parameters(), lr=exercise.learning_rate)
        return network, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


    def train(model, optimizer, scheduler, epochs):
        for epoch in epochs:
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
            scheduler.step()


    path = exercise.folder / "last.pt"
    half = exercise.epochs // 2

    network, optimizer, scheduler = build()
    train(DDP(network), optimizer, scheduler, range(half))
    if rank == 0:
        torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict()}, path)
    dist.barrier()

    # here the job is stopped, and a new one begins
    network, optimizer, scheduler = build()
    if rank == 0:
        states = torch.load(path)
        network.load_state_dict(states["model"])
        optimizer.load_state_dict(states["optimizer"])
    model = DDP(network)
    train(model, optimizer, scheduler, range(half, exercise.epochs))
    """,
    solution="""
    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    loss_function = torch.nn.CrossEntropyLoss()


    def factor(epoch):
        return 0.8**epoch


    def build():
        network = exercise.model()
        optimizer = torch.optim.SGD(network.parameters(), lr=exercise.learning_rate)
        return network, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


    def train(model, optimizer, scheduler, epochs):
        for epoch in epochs:
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
            scheduler.step()


    path = exercise.folder / "last.pt"
    half = exercise.epochs // 2

    network, optimizer, scheduler = build()
    train(DDP(network), optimizer, scheduler, range(half))
    if rank == 0:
        parts = {"model": network, "optimizer": optimizer, "scheduler": scheduler}
        torch.save({name: part.state_dict() for name, part in parts.items()}, path)
    dist.barrier()

    # here the job is stopped, and a new one begins
    network, optimizer, scheduler = build()
    states = torch.load(path)
    network.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    scheduler.load_state_dict(states["scheduler"])
    model = DDP(network)
    train(model, optimizer, scheduler, range(half, exercise.epochs))
    """,
    hints=(
        (
            "There are two faults. Print the learning rate of each rank in each epoch: "
            "scheduler.get_last_lr()."
        ),
        (
            "DDP copies only the parameters and buffers of rank 0. Which of the three objects "
            "that build() returns is not in the file?"
        ),
        "Save the state of the scheduler, too, and let every rank load all three states.",
    ),
    behaviours=(
        ENDS,
        READS_ONCE,
        OWN_SHARE,
        WORKS,
        PARITY,
        replace(as_one(_never_stopped), title="the parameters are those of an uninterrupted job"),
    ),
    setting=Setting(epochs=8),
)
