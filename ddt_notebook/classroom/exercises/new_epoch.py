"""The cell never calls set_epoch."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import NEW_ORDER, TRAINING, accuracy
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

EXERCISE = Exercise(
    name="new-epoch",
    title="shuffle the data in another order in each epoch",
    level=1,
    minutes=6,
    story="""
    The loss curve of this job shows the same zigzag in every epoch, as if the batches were always
    the same. In each epoch, each rank should read its samples in a new order, and all ranks
    together should read each sample once. The cell leaves the trained `model`.
    """,
    faults=("set-epoch-forgotten",),
    start="""
    from torch.utils.data import DataLoader, DistributedSampler

    sampler = DistributedSampler(exercise.dataset, seed=1)
    loader = DataLoader(exercise.dataset, batch_size=exercise.batch_size, sampler=sampler)

    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    for epoch in range(exercise.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
    """,
    solution="""
    from torch.utils.data import DataLoader, DistributedSampler

    sampler = DistributedSampler(exercise.dataset, seed=1)
    loader = DataLoader(exercise.dataset, batch_size=exercise.batch_size, sampler=sampler)

    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    for epoch in range(exercise.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
    """,
    hints=(
        "Print the first labels of each epoch. %ddt_show partition compares the epochs, too.",
        "DistributedSampler shuffles by its seed and its epoch. Which call sets the epoch?",
        "Call sampler.set_epoch(epoch) at the beginning of each epoch.",
    ),
    behaviours=(*TRAINING[:4], NEW_ORDER, *TRAINING[4:6], accuracy(0.2)),
    setting=Setting(per_rank=40, epochs=5, batch=10, rate=0.3),
)
