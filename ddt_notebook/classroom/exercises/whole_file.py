"""Only rank 0 puts the parts of a sharded model together."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

EXERCISE = Exercise(
    name="whole-file",
    title="save a sharded model as one file",
    level=3,
    minutes=15,
    story="""
    The cell shards a model with FSDP2 and trains it. Rank 0 should write the whole model to one
    file. Every rank should then load this file into a model that is not sharded. But rank 0 never
    finishes the save, and rank 1 does not find the file. The cell leaves the loaded `model`, which
    should have the trained parameters on every rank.
    """,
    faults=("collective-under-rank-condition", "checkpoint-read-too-early"),
    lesson="E.1",
    start="""
    from torch.distributed.fsdp import fully_shard

    network = exercise.model()
    fully_shard(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(network(x), y).backward()
        optimizer.step()

    path = exercise.folder / "whole.pt"
    if rank == 0:
        whole = {name: part.full_tensor() for name, part in network.state_dict().items()}
        torch.save(whole, path)

    model = exercise.model()
    model.load_state_dict(torch.load(path))
    """,
    solution="""
    from torch.distributed.fsdp import fully_shard

    network = exercise.model()
    fully_shard(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(network(x), y).backward()
        optimizer.step()

    path = exercise.folder / "whole.pt"
    whole = {name: part.full_tensor() for name, part in network.state_dict().items()}
    if rank == 0:
        torch.save(whole, path)
    dist.barrier()

    model = exercise.model()
    model.load_state_dict(torch.load(path))
    """,
    hints=(
        (
            "There are two faults. Which rank waits in full_tensor()? When does each rank look "
            "for the file?"
        ),
        (
            "full_tensor() asks all ranks for their parts. For the second fault: only rank 0 "
            "knows when the file exists."
        ),
        "Call full_tensor() on every rank, save on rank 0, then dist.barrier() before the load.",
    ),
    behaviours=TRAINING,
    setting=Setting(epochs=10),
)
