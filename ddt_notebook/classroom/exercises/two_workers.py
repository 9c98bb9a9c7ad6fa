"""Each worker of a loader yields the whole share of its rank."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import ENDS, OWN_SHARE, PARITY, READS_ONCE, WORKS, accuracy
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

EXERCISE = Exercise(
    name="two-workers",
    title="read a stream with two workers",
    level=2,
    minutes=12,
    story="""
    Reading the samples is slow, so the loader of each rank has two workers. Since then an epoch has
    twice as many steps. Keep both workers, but read each sample only once in each epoch. The cell
    leaves the trained `model`.
    """,
    faults=("workers-repeat-stream",),
    lesson="E.3",
    start="""
    from torch.utils.data import DataLoader, IterableDataset


    class Stream(IterableDataset):
        def __iter__(self):
            for number in range(rank, len(exercise.dataset), world_size):
                yield exercise.dataset[number]


    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    for epoch in range(exercise.epochs):
        for x, y in DataLoader(Stream(), batch_size=exercise.batch_size, num_workers=2):
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
    """,
    solution="""
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info


    class Stream(IterableDataset):
        def __iter__(self):
            worker = get_worker_info()
            reader = rank * worker.num_workers + worker.id
            readers = world_size * worker.num_workers
            for number in range(reader, len(exercise.dataset), readers):
                yield exercise.dataset[number]


    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    for epoch in range(exercise.epochs):
        for x, y in DataLoader(Stream(), batch_size=exercise.batch_size, num_workers=2):
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
    """,
    hints=(
        "%ddt_check says how often a sample was read. How often is it read with num_workers=0?",
        (
            "Each worker has a copy of Stream() and iterates over all of it. It can ask which "
            "worker it is: torch.utils.data.get_worker_info()."
        ),
        (
            "There are 2 * world_size readers. Give each reader its own start and the step 2 * "
            "world_size."
        ),
    ),
    behaviours=(ENDS, READS_ONCE, OWN_SHARE, WORKS, PARITY, accuracy(0.25)),
    setting=Setting(per_rank=40, epochs=3, batch=10, rate=0.5),
)
