"""Programs of Ray Train with two workers on CPUs, and faults of them."""

from __future__ import annotations

from tests.trainers.programs import program

__all__ = ["FAULTS", "LOADER", "SHARDS", "in_cluster"]

_HEAD = """
import os
import tempfile

import numpy as np
import ray
import torch
from ray import train
from ray.train.collective import barrier, broadcast_from_rank_zero
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset
"""
_TAIL = """

if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False)
    DATA
    TorchTrainer(
        work,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=tempfile.mkdtemp(dir=os.getcwd())),
        **datasets,
    ).fit()
"""
_OWN_RAY = "ray.init(num_cpus=3, include_dashboard=False)"
#: Processes of a cluster that runs already do not inherit the variables of the job.
_IN_CLUSTER = (
    'ray.init(runtime_env={"env_vars": {name: os.environ[name]'
    ' for name in ("PYTHONPATH", "DDT_JOB_FOLDER")}})'
)


def in_cluster(source: str) -> str:
    """The program, for a cluster that runs already."""
    return source.replace(_OWN_RAY, _IN_CLUSTER)


#: A DataLoader, a metric that all workers reduce, and reports with a checkpoint of rank 0.
LOADER = (
    _HEAD
    + """

def work():
    rank = train.get_context().get_world_rank()
    name = broadcast_from_rank_zero("run" if rank == 0 else None)
    torch.manual_seed(rank)
    x = torch.linspace(-1, 1, 48).reshape(24, 2)
    loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=4, shuffle=True)
    # before the model
    loader = prepare_data_loader(loader)
    model = prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for inputs, labels in loader:
            # in a step
            loss = (model(inputs).squeeze(1) - labels).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(labels), len(labels)])
        torch.distributed.all_reduce(total)
        metrics = {"loss": (total[0] / total[1]).item(), "run": name}
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0:
                torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
                checkpoint = train.Checkpoint.from_directory(folder)
            train.report(metrics, checkpoint=checkpoint)
    barrier()
"""
    + _TAIL.replace("DATA", "datasets = {}")
)
#: Ray divides a data set of its own.
SHARDS = (
    _HEAD
    + """

def work():
    rank = train.get_context().get_world_rank()
    shard = train.get_dataset_shard("train")
    model = prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for batch in shard.iter_torch_batches(batch_size=8):
            loss = (model(batch["x"]).squeeze(1) - batch["x"].sum(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        train.report({"loss": loss.item()})
"""
    + _TAIL.replace(
        "DATA",
        'rows = np.linspace(-1, 1, 128, dtype="float32").reshape(64, 2)\n'
        '    datasets = {"datasets": {"train": ray.data.from_numpy(rows).rename_columns(["x"])}}',
    )
)
_REPORTS = "train.report(metrics, checkpoint=checkpoint)"
_TRAINS = 'loss = (model(batch["x"]).squeeze(1) - batch["x"].sum(1)).square().mean()'
#: A program, the symptom, the ranks, and a line that the finding has to name.
FAULTS = {
    "a collective of one worker": (
        LOADER.replace(
            "torch.distributed.all_reduce(total)",
            "if rank == 0:\n            torch.distributed.all_reduce(total)",
        ),
        "D.2.1",
        [1],
        "if rank == 0:",
    ),
    "one worker reports": (
        LOADER.replace(
            f"            {_REPORTS}",
            f"            if checkpoint is not None:\n                {_REPORTS}",
        ),
        "D.2.1",
        [1],
        _REPORTS,
    ),
    "one worker raises": (
        program(
            LOADER, "in a step", 'if rank == 1 and epoch == 1:\n    raise ValueError("bad sample")'
        ),
        "D.1.11",
        [1],
        'raise ValueError("bad sample")',
    ),
    "the loader is not prepared": (
        LOADER.replace("    loader = prepare_data_loader(loader)\n", "").replace(
            "        loader.sampler.set_epoch(epoch)\n", ""
        ),
        "D.2.2",
        [0, 1],
        "for inputs, labels in loader:",
    ),
    "the data set is not divided": (
        SHARDS.replace(
            "**datasets,",
            "dataset_config=train.DataConfig(datasets_to_split=[]),\n        **datasets,",
        ),
        "C.7",
        [0, 1],
        _TRAINS,
    ),
}
