"""The ranks that hold two halves of a layer read different samples."""

from __future__ import annotations

from typing import Any

from ddt_notebook.classroom import reference
from ddt_notebook.classroom.behaviours import ENDS, OWN_SHARE, PARITY, Behaviour, accuracy, as_one
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

#: The number of ranks that hold a layer together.
_HALVES = 2


def _reads(seen: Evidence) -> str:
    import numpy as np

    seen.require_end()
    size, epochs = len(seen.data.labels), seen.data.setting.epochs
    counts = [np.bincount(journal.reads, minlength=size) for journal in seen.journals.values()]
    readers = sum((count > 0).astype(int) for count in counts)
    if not readers.any():
        return "no rank read any training sample"
    if max(count.max() for count in counts) > epochs:
        return f"a rank read a sample more than once in each of {epochs} epochs"
    fewest, most = int(readers.min()), int(readers.max())
    if fewest == most == _HALVES:
        return ""
    ranks = str(fewest) if fewest == most else f"{fewest} to {most}"
    return f"each sample was read by {ranks} of {len(counts)} ranks"


READS = Behaviour("reads-once", "the rows of the mesh share the samples", _reads)


def _works(seen: Evidence) -> str:
    seen.require_end()
    for rank, journal in seen.journals.items():
        wanted = len({int(i) for i in journal.reads}) * seen.data.setting.epochs
        done = int(journal.trained.sum())
        if not 0 < wanted <= done <= 1.6 * wanted:
            return f"on rank {rank} {done} samples went through the model, not {wanted}"
    return ""


WORKS = Behaviour("works", "each rank trains on what it read", _works)


def _all_together(seen: Evidence) -> Any:
    data = seen.data
    steps = reference.whole_batches(seen, data.setting.epochs)
    return reference.train(data.initial, data.inputs, data.labels, steps, data.setting.rate)


EXERCISE = Exercise(
    name="two-by-two",
    title="cut layers and data on a mesh",
    level=3,
    minutes=20,
    story="""
    Four ranks form a 2×2 mesh. The two ranks of a row hold the halves of each layer (tensor
    parallel), and the two rows share the samples (FSDP2). Nothing fails, but the trained
    parameters are not those of one process, and not even equal on all ranks. The cell leaves
    `model`, which should have the whole trained parameters on every rank.
    """,
    faults=("tensor-parallel-inputs-differ",),
    lesson="E.7",
    start="""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("dp", "tp"))
    network = exercise.model()
    plan = {"layers.0": ColwiseParallel(), "layers.2": RowwiseParallel()}
    parallelize_module(network, mesh["tp"], plan)
    fully_shard(network, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(network.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(network(x), y).backward()
        optimizer.step()

    model = exercise.model()
    model.load_state_dict({k: part.full_tensor() for k, part in network.state_dict().items()})
    """,
    solution="""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("dp", "tp"))
    network = exercise.model()
    plan = {"layers.0": ColwiseParallel(), "layers.2": RowwiseParallel()}
    parallelize_module(network, mesh["tp"], plan)
    fully_shard(network, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(network.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    row, rows = mesh["dp"].get_local_rank(), mesh["dp"].size()
    x, y = exercise.dataset.take(range(row, len(exercise.dataset), rows))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(network(x), y).backward()
        optimizer.step()

    model = exercise.model()
    model.load_state_dict({k: part.full_tensor() for k, part in network.state_dict().items()})
    """,
    hints=(
        "Draw the mesh. Which ranks compute one output together? Print mesh on each rank.",
        (
            "The halves of a layer belong to one output only if both ranks of the row compute it "
            "from the same input. Compare x[0] on ranks 0 and 1."
        ),
        (
            "Divide the samples by the row, mesh['dp'].get_local_rank(), and by the number of "
            "rows, mesh['dp'].size()."
        ),
    ),
    behaviours=(
        ENDS,
        READS,
        OWN_SHARE,
        WORKS,
        PARITY,
        as_one(_all_together),
        accuracy(),
    ),
    setting=Setting(per_rank=40, epochs=12, hidden=16),
    n=4,
    graded_n=4,
)
