"""After a restart with fewer ranks, each rank goes on at the old place of a new share."""

from __future__ import annotations

from dataclasses import replace

from ddt_notebook.classroom.behaviours import ENDS, PARITY, READS_ONCE, Behaviour, as_one
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting


def _works(seen: Evidence) -> str:
    seen.require_end()
    for rank, journal in seen.journals.items():
        read, done = len(journal.reads), int(journal.trained.sum())
        if not 0 < read == done:
            return f"on rank {rank} {done} samples went through the model; it read {read}"
    return ""


def _batches(seen: Evidence) -> str:
    seen.require_end()
    wanted = seen.data.setting.batch
    for rank, journal in seen.journals.items():
        if set(map(int, journal.trained)) != {wanted}:
            return f"rank {rank} has batches of {sorted(set(map(int, journal.trained)))} samples"
    reads = [len(journal.reads) for journal in seen.journals.values()]
    if len(set(reads[:-1])) > 1 or reads[-1] >= reads[0]:
        return f"the ranks read {', '.join(map(str, reads))} samples"
    return ""


EXERCISE = Exercise(
    name="fewer-ranks",
    title="go on with one rank fewer",
    level=3,
    minutes=20,
    story="""
    The host of the last rank fails in the middle of the only epoch, and the job is started again
    with the other ranks. They resume from the checkpoint and divide the data anew. No error
    appears, but some samples are used twice and others never. The cell runs both starts, one after
    the other; in the end, the last rank gets the parameters. The cell leaves the trained `model`,
    which has seen each sample once, in batches of `exercise.batch_size` per rank.
    """,
    faults=("shard-overlap", "shard-gaps"),
    lesson="E.10",
    start="""
    size = exercise.batch_size
    path = exercise.folder / "last.pt"
    loss_function = torch.nn.CrossEntropyLoss()


    def step(model, indices):
        x, y = exercise.dataset.take(indices)
        model.zero_grad()
        loss_function(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= exercise.learning_rate * parameter.grad


    # the first start: two batches on each rank
    network = exercise.model()
    model = DDP(network)
    share = range(rank, len(exercise.dataset), world_size)
    for first in (0, size):
        step(model, share[first : first + size])
    if rank == 0:
        torch.save({"model": network.state_dict(), "done": 2 * size}, path)
    dist.barrier()

    # the second start: the last rank has no host any more
    left = world_size - 1
    group = dist.new_group(range(left))
    network = exercise.model()
    if rank < left:
        state = torch.load(path)
        network.load_state_dict(state["model"])
        model = DDP(network, process_group=group)
        share = range(rank, len(exercise.dataset), left)
        for first in range(state["done"], len(share), size):
            step(model, share[first : first + size])

    # the end: a new host gets the result
    for parameter in network.parameters():
        dist.broadcast(parameter.data, 0)
    model = network
    """,
    solution="""
    size = exercise.batch_size
    path = exercise.folder / "last.pt"
    loss_function = torch.nn.CrossEntropyLoss()


    def step(model, indices):
        x, y = exercise.dataset.take(indices)
        model.zero_grad()
        loss_function(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= exercise.learning_rate * parameter.grad


    # the first start: two batches on each rank
    network = exercise.model()
    model = DDP(network)
    share = range(rank, len(exercise.dataset), world_size)
    for first in (0, size):
        step(model, share[first : first + size])
    if rank == 0:
        torch.save({"model": network.state_dict(), "done": 2 * size * world_size}, path)
    dist.barrier()

    # the second start: the last rank has no host any more
    left = world_size - 1
    group = dist.new_group(range(left))
    network = exercise.model()
    if rank < left:
        state = torch.load(path)
        network.load_state_dict(state["model"])
        model = DDP(network, process_group=group)
        share = range(state["done"] + rank, len(exercise.dataset), left)
        for first in range(0, len(share), size):
            step(model, share[first : first + size])

    # the end: a new host gets the result
    for parameter in network.parameters():
        dist.broadcast(parameter.data, 0)
    model = network
    """,
    hints=(
        (
            "Print the indices that each rank reads in both starts. Which samples did the last "
            "rank read before it was lost?"
        ),
        (
            "`done` counts the samples of one rank. It means nothing in a share that was made for "
            "another number of ranks. What describes the progress of all ranks together?"
        ),
        (
            "Shares have a step of world_size, so the job has finished the first 2 * size * "
            "world_size samples. Save this number, and divide only the samples behind it."
        ),
    ),
    behaviours=(
        ENDS,
        replace(READS_ONCE, title="each sample is read once in the epoch, over both starts"),
        Behaviour("works", "each rank trains on what it read", _works),
        Behaviour("batches", "batches are full, and the ranks that are left do the rest", _batches),
        PARITY,
        as_one(),
    ),
    setting=Setting(per_rank=32, epochs=1, batch=8, rate=0.5),
)
