"""The loop ends by the clock of each rank."""

from __future__ import annotations

from typing import Any

from ddt_notebook.classroom.behaviours import (
    ACCURACY,
    ENDS,
    OWN_SHARE,
    PARITY,
    READS_ONCE,
    Behaviour,
    as_one,
)
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting
from ddt_notebook.classroom.reference import expected, whole_batches


def _truth(seen: Evidence) -> Any:
    """The result of as many steps on all samples as rank 0 took."""
    return expected(seen, lambda s: whole_batches(s, len(s.journals[0].trained)))


def _same_number(seen: Evidence) -> str:
    seen.require_end()
    counts = [len(journal.trained) for journal in seen.journals.values()]
    if min(counts) < seen.data.setting.epochs:
        return f"rank {counts.index(min(counts))} took {min(counts)} steps"
    return "" if len(set(counts)) == 1 else f"the ranks took {counts} steps"


STEPS = Behaviour("steps", "every rank takes the same number of steps, two or more", _same_number)


EXERCISE = Exercise(
    name="own-clock",
    title="train for a fixed time",
    level=1,
    minutes=8,
    story="""
    A job has little time: it should train for about 1.5 seconds, and then stop. As on any cluster,
    the ranks do not get ready at the same moment. The cell should end on every rank, after the same
    number of steps (at least two), with the trained `model`. Each rank reads its share once, before
    the loop.
    """,
    faults=("loop-ends-by-clock",),
    start="""
    import time

    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))

    time.sleep(0.3 * rank)  # the ranks get ready at different moments
    started = time.time()
    while time.time() - started < 1.5:
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    """,
    solution="""
    import time

    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))

    time.sleep(0.3 * rank)  # the ranks get ready at different moments
    started = time.time()
    while True:
        time_left = torch.tensor(float(time.time() - started < 1.5))
        dist.all_reduce(time_left, op=dist.ReduceOp.MIN)
        if not time_left:
            break
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    """,
    hints=(
        "Run the cell. When it hangs, at which line is each rank, and which rank has finished?",
        "How many steps does each rank take? Who decides when the loop ends?",
        (
            "The ranks have to decide together. In each round, reduce a flag that says whether "
            "time is left. All ranks leave the loop when the reduced flag says so."
        ),
    ),
    behaviours=(ENDS, READS_ONCE, OWN_SHARE, STEPS, PARITY, as_one(_truth), ACCURACY),
    setting=Setting(epochs=2),
)
