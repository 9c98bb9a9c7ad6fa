"""Ray Train, whose workers call the user's training function in a thread of their own."""

from __future__ import annotations

from ..operations import Operation
from .description import Description

#: In which the workers wait for each other, by the names that Ray itself gives them.
REPORT = "ray.train.report"
BARRIER = "ray.train.collective.barrier"
BROADCAST = "ray.train.collective.broadcast_from_rank_zero"
PREEMPTION = "ray.train.get_preemption_info"
#: The first batch of an epoch, for which the workers that share a data set wait for each other.
BATCHES = "ray.data.iter_batches"
#: The workers meet in an actor of Ray, not in a process group of torch.
GROUP = "ray.train"


def group_of(dataset: str) -> str:
    """Where the workers meet that share a data set of this name."""
    return f"ray.data {dataset}".strip()


FRAMEWORK = Description(
    name="ray",
    title="Ray Train",
    in_ranks="ddt_notebook.rank.frameworks.ray:RayTrain",
    operations={
        REPORT: Operation(parameters=("metrics", "checkpoint")),
        BARRIER: Operation(parameters=()),
        BROADCAST: Operation(parameters=("data",), objects="data", agrees=True),
        PREEMPTION: Operation(parameters=()),
        BATCHES: Operation(parameters=("batch_size",)),
    },
)
