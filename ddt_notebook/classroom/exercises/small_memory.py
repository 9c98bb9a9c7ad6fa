"""The activations of the whole share do not fit into memory."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import (
    ENDS,
    OWN_SHARE,
    PARITY,
    READS_ONCE,
    WORKS,
    Behaviour,
    accuracy,
    as_one,
)
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting


def _fits(seen: Evidence) -> str:
    seen.require_end()
    most = seen.data.setting.batch or 0
    for rank, journal in seen.journals.items():
        largest = int(journal.trained.max(initial=0))
        if largest > most:
            return f"rank {rank} kept the activations of {largest} samples at a time, not of {most}"
    return ""


FITS = Behaviour("fits", "a forward pass has at most `exercise.batch_size` samples", _fits)

EXERCISE = Exercise(
    name="small-memory",
    title="train on a device with little memory",
    level=2,
    minutes=12,
    story="""
    A rank has memory for the activations of `exercise.batch_size` samples. `keep` and `give_back`
    stand for such a device: they count the bytes that a forward pass keeps for the backward pass,
    and there is an error if they are too many. Each step should still be a step on the whole share
    of each rank, so that the result stays the same. More ranks are not available. The cell leaves
    the trained `model`.
    """,
    faults=("out-of-memory",),
    lesson="E.9",
    start="""
    from torch.autograd.graph import saved_tensors_hooks

    used = 0


    def keep(tensor):
        global used
        used += tensor.nbytes
        if used > 10_000:
            raise MemoryError(f"activations of {used:,} bytes, and 10,000 bytes of memory")
        return tensor


    def give_back(tensor):
        global used
        used -= tensor.nbytes
        return tensor


    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    share = range(rank, len(exercise.dataset), world_size)
    with saved_tensors_hooks(keep, give_back):
        for epoch in range(exercise.epochs):
            x, y = exercise.dataset.take(share)
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
    """,
    solution="""
    from torch.autograd.graph import saved_tensors_hooks

    used = 0


    def keep(tensor):
        global used
        used += tensor.nbytes
        if used > 10_000:
            raise MemoryError(f"activations of {used:,} bytes, and 10,000 bytes of memory")
        return tensor


    def give_back(tensor):
        global used
        used -= tensor.nbytes
        return tensor


    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss(reduction="sum")

    share = range(rank, len(exercise.dataset), world_size)
    with saved_tensors_hooks(keep, give_back):
        for epoch in range(exercise.epochs):
            optimizer.zero_grad()
            for first in range(0, len(share), exercise.batch_size):
                x, y = exercise.dataset.take(share[first : first + exercise.batch_size])
                (loss_function(model(x), y) / len(share)).backward()
            optimizer.step()
    """,
    hints=(
        (
            "Which part of the memory is too large, the model or what depends on the batch? The "
            "error says when it is counted."
        ),
        (
            "backward() adds to the gradients. Several forward and backward passes on parts of the "
            "share make the gradient of one step, if each part counts by its size."
        ),
        (
            "Loop over parts of batch_size samples, with reduction='sum' and the loss divided by "
            "len(share); zero_grad() before the loop, step() after it. The last part is smaller."
        ),
    ),
    behaviours=(ENDS, READS_ONCE, OWN_SHARE, WORKS, FITS, PARITY, as_one(), accuracy()),
    setting=Setting(per_rank=50, epochs=12, batch=20, accumulate=3),
)
