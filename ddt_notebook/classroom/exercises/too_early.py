"""A checkpoint is read too early, and under other names."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING, Behaviour
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise

_NAMES = ("layers.0.weight", "layers.0.bias")


def _file(seen: Evidence) -> str:
    import numpy as np

    held = seen.models()[0]
    if seen.loaded is None:
        return "one process cannot read a file model.pt in the folder, or there is none"
    names = list(seen.loaded) if isinstance(seen.loaded, dict) else []
    if sorted(names) != sorted(_NAMES):
        listed = ", ".join(map(str, names[:2])) or "nothing that has names"
        return f"the file holds {listed}; exercise.model() has {_NAMES[0]} and {_NAMES[1]}"
    right = all(np.allclose(seen.loaded[n], a) for n, a in zip(_NAMES, held, strict=True))
    return "" if right else "the file does not hold the trained parameters"


FILE = Behaviour("file", "one process can load the file into exercise.model()", _file)


def _again(seen: Evidence) -> str:
    import numpy as np

    held = seen.models()[0]
    for rank, arrays in seen.values("again").items():
        if not isinstance(arrays, list) or len(arrays) != len(held):
            return f"rank {rank} has no model `again`"
        if not all(np.allclose(a, b) for a, b in zip(arrays, held, strict=True)):
            return f"`again` of rank {rank} does not hold the trained parameters"
    return ""


AGAIN = Behaviour("again", "on every rank `again` holds the trained parameters", _again)


EXERCISE = Exercise(
    name="too-early",
    title="load the model that was just saved",
    level=2,
    minutes=12,
    story="""
    Rank 0 saves the trained model, then every rank loads it into a fresh one for the evaluation.
    Some ranks fail because the file does not exist; if they wait long enough, another error
    follows. The file `model.pt` in `exercise.folder` should fit `exercise.model()` in one process,
    without DDP; on every rank the cell leaves the trained model in `model` and the loaded one in
    `again`.
    """,
    faults=("checkpoint-read-too-early", "state-dict-prefix"),
    start="""
    import time

    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()

    path = exercise.folder / "model.pt"
    if rank == 0:
        time.sleep(0.2)  # a large file takes a while
        torch.save(model.state_dict(), path)

    again = exercise.model()
    again.load_state_dict(torch.load(path))
    """,
    solution="""
    import time

    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()

    path = exercise.folder / "model.pt"
    if rank == 0:
        time.sleep(0.2)  # a large file takes a while
        torch.save(model.module.state_dict(), path)
    dist.barrier()

    again = exercise.model()
    again.load_state_dict(torch.load(path))
    """,
    hints=(
        "There are two faults. What is the first error, on which rank, and when does rank 0 write?",
        (
            "The ranks do not wait for rank 0. For the second fault, compare the names of the "
            "parameters of DDP(model) with those of the model."
        ),
        "Call dist.barrier() on all ranks after the save, and save model.module.state_dict().",
    ),
    behaviours=(*TRAINING, FILE, AGAIN),
    leaves=("model", "again"),
    file="model.pt",
)
