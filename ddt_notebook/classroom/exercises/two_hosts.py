"""On two hosts, RANK is used where LOCAL_RANK belongs, and the other way round."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

EXERCISE = Exercise(
    name="two-hosts",
    title="train on two hosts with two ranks each",
    level=2,
    minutes=12,
    story="""
    The program was written for one host. Now it runs on two, with two ranks each. The folder `disk`
    stands for the disk of a host, which the other host cannot read. The ranks of the second host
    raise an error. When somebody repairs that, the loss falls, but half of the samples are
    never read. Each rank should load the initial weights from its own disk, to which one rank of
    its host has written them. The cell leaves the trained `model`.
    """,
    faults=("path-missing", "sampler-for-wrong-rank"),
    lesson="E.12",
    start="""
    host, local_rank = divmod(rank, 2)  # as torchrun would set them

    disk = exercise.folder / f"host{host}"
    disk.mkdir(exist_ok=True)
    if rank == 0:
        torch.save(exercise.model().state_dict(), disk / "initial.pt")  # stands for a download
    dist.barrier()

    network = exercise.model()
    network.load_state_dict(torch.load(disk / "initial.pt"))
    model = DDP(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(local_rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    """,
    solution="""
    host, local_rank = divmod(rank, 2)  # as torchrun would set them

    disk = exercise.folder / f"host{host}"
    disk.mkdir(exist_ok=True)
    if local_rank == 0:
        torch.save(exercise.model().state_dict(), disk / "initial.pt")  # stands for a download
    dist.barrier()

    network = exercise.model()
    network.load_state_dict(torch.load(disk / "initial.pt"))
    model = DDP(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    """,
    hints=(
        "Print host, rank and local_rank on each rank. Which ranks find no file?",
        (
            "What belongs to a host, such as a file on its disk, and what belongs to the whole "
            "job, such as the shares of the data?"
        ),
        "Save if local_rank == 0, and let the share begin at rank.",
    ),
    behaviours=TRAINING,
    setting=Setting(per_rank=40, epochs=10),
    n=4,
    graded_n=4,
)
