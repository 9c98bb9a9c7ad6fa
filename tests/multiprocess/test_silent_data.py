"""Division of data in real runs: silent faults are found, and legal programs stay quiet."""

from __future__ import annotations

from textwrap import dedent

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Report

from .conftest import Ranks

SETUP = """
import itertools, time
from torch.utils.data import *

data = TensorDataset(torch.arange(64.0).reshape(64, 1), torch.zeros(64, 1))
model = DDP(torch.nn.Linear(1, 1))
opt = torch.optim.SGD(model.parameters(), lr=1e-5)

def fit(loader, epochs=1, sampler=None, model=model, opt=opt, limit=None):
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for batch in itertools.islice(loader, limit):
            x = batch[0] if isinstance(batch, list) else batch
            opt.zero_grad()
            model(x).pow(2).mean().backward()
            opt.step()
"""

METER = """
import logging

class Meter:
    def __init__(self):
        self.total = self.count = 0

    def update(self, value, count):
        self.total, self.count = self.total + value * count, self.count + count

    def __str__(self):
        return f"{self.total / self.count:.4f}"

class Trainer:
    def __init__(self):
        self.meter = Meter()
        sampler = DistributedSampler(data, shuffle=False)
        self.loader = DataLoader(data, 5, sampler=sampler)

    @torch.no_grad()
    def evaluate(self):
        for x, y in self.loader:
            self.meter.update((model(x) - y).abs().mean().item(), len(x))
        AFTER

    def run(self):
        fit(DataLoader(data, 8, sampler=DistributedSampler(data)))
        self.evaluate()
        SHOW

Trainer().run()
"""
REDUCED = (
    "both = torch.tensor([self.meter.total, self.meter.count]); dist.all_reduce(both); "
    "self.meter.total, self.meter.count = both.tolist()"
)

#: Reads two values in one line, while it trains and while it evaluates.
METERS = """
class Meters:
    def __init__(self):
        self.sums, self.count = {}, 0

    def update(self, **values):
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value.item()
        self.count += 1

    def __str__(self):
        return ", ".join(f"{name} {total / self.count:.5f}" for name, total in self.sums.items())

def train():
    meters = Meters()
    for x, y in DataLoader(data, 8, sampler=DistributedSampler(data)):
        opt.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        opt.step()
        meters.update(loss=loss, size=x.abs().mean())
    rank == 0 and print("trained", meters)

@torch.no_grad()
def evaluate():
    meters = Meters()
    for x, y in DataLoader(data, 5, sampler=DistributedSampler(data, shuffle=False)):
        error = (model(x) - y).abs()
        meters.update(error=error.mean(), most=error.max())
    AFTER
    rank == 0 and print("evaluated", meters)

train()
evaluate()
"""

HEALTHY = {
    "a meter reduced in a method": METER.replace("AFTER", REDUCED).replace(
        "SHOW", "rank == 0 and print(self.meter)"
    ),
    "progress of an evaluation that is reduced at its end": METER.replace(
        "self.meter.update",
        "rank == 0 and print(self.meter if self.meter.count else ''); self.meter.update",
    )
    .replace("AFTER", REDUCED)
    .replace("SHOW", "rank == 0 and print(self.meter)"),
    "meters reduced by name": METERS.replace(
        "AFTER",
        "both = torch.tensor([*meters.sums.values(), meters.count]); dist.all_reduce(both); "
        "*sums, meters.count = both.tolist(); meters.sums = dict(zip(meters.sums, sums))",
    ),
    "each rank logs its own": METER.replace("AFTER", "pass").replace(
        "SHOW", "logging.warning('error %s', self.meter)"
    ),
    "fixed order": "fit(DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False)), 2)",
    "full evaluation": """
        fit(DataLoader(data, 8, sampler=DistributedSampler(data)))
        with torch.no_grad():
            for x, y in DataLoader(data, 8):
                model.module(x)
        """,
    "divided evaluation in the same order": """
        sampler = DistributedSampler(data)
        fit(DataLoader(data, 8, sampler=sampler), 2, sampler)
        valid = DataLoader(data, 8, sampler=DistributedSampler(data))
        for _ in range(2):
            with torch.no_grad():
                for x, y in valid:
                    model(x)
        """,
    "a resumed run repeats an epoch": """
        sampler = DistributedSampler(data)
        loader = DataLoader(data, 8, sampler=sampler)
        for epoch in (0, 1, 1, 2):
            sampler.set_epoch(epoch)
            fit(loader)
        """,
    "part split off": """
        train, valid = random_split(data, [48, 16], generator=torch.Generator().manual_seed(0))
        sampler = DistributedSampler(train)
        fit(DataLoader(train, 4, sampler=sampler), 2, sampler)
        """,
    "random part by hand": """
        order = torch.randperm(64, generator=torch.Generator().manual_seed(1)).tolist()
        fit(DataLoader(Subset(data, order[:48][rank::world_size]), 4, shuffle=True))
        """,
    "random part, broken off": """
        torch.manual_seed(rank)
        part = Subset(data, torch.randperm(64)[:48].tolist())
        fit(DataLoader(part, 4, shuffle=True), limit=9)
        """,
    "own order of a common part, broken off": """
        torch.manual_seed(rank)
        fit(DataLoader(Subset(data, range(8, 56)), 4, shuffle=True), limit=8)
        """,
    "folds": """
        for fold in range(4):
            part = Subset(data, [i for i in range(64) if i % 4 != fold])
            fit(DataLoader(part, 4, sampler=DistributedSampler(part, seed=fold)))
        """,
    "search": """
        for lr in (1e-5, 1e-6):
            tried = DDP(torch.nn.Linear(1, 1))
            own = torch.optim.SGD(tried.parameters(), lr=lr)
            fit(DataLoader(data, 8, sampler=DistributedSampler(data)), model=tried, opt=own)
        """,
    "weighted": "fit(DataLoader(data, 8, sampler=WeightedRandomSampler(torch.ones(64), 32)), 2)",
    "iterable divided by rank": """
        class Stream(IterableDataset):
            def __iter__(self):
                return (torch.tensor([float(i)]) for i in range(rank, 64, world_size))
        fit(DataLoader(Stream(), 8), 2)
        """,
    "infinite": """
        class Stream(IterableDataset):
            def __iter__(self):
                random = torch.Generator().manual_seed(rank)
                while True:
                    yield torch.randn(1, generator=random)
        fit(DataLoader(Stream(), 8), limit=10)
        """,
    "batches cut by rank": """
        for x, y in DataLoader(data, 8):
            opt.zero_grad()
            model(x[rank::world_size]).mean().backward()
            opt.step()
        """,
    "batches cut at a computed place": """
        for x, y in DataLoader(data, 8):
            share = len(x) // world_size
            start = rank * share
            opt.zero_grad()
            model(x[start:start + share]).mean().backward()
            opt.step()
        """,
    "batches scattered": """
        for x, y in DataLoader(data, 8):
            part = torch.empty(8 // world_size, 1)
            dist.scatter(part, list(x.chunk(world_size)) if rank == 0 else None, src=0)
            opt.zero_grad()
            model(part).mean().backward()
            opt.step()
        """,
    "tensor parallel": """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module)
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Linear(8, 1))
        plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
        net = parallelize_module(net, init_device_mesh("cpu", (world_size,)), plan)
        own = torch.optim.SGD(net.parameters(), lr=1e-5)
        fit(DataLoader(data, 8), model=net, opt=own)
        """,
    "two models": """
        other = DDP(torch.nn.Linear(1, 1))
        own = torch.optim.SGD(other.parameters(), lr=1e-5)
        sampler = DistributedSampler(data)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in DataLoader(data, 8, sampler=sampler):
                for net, optimizer in ((model, opt), (other, own)):
                    optimizer.zero_grad()
                    net(x).mean().backward()
                    optimizer.step()
        """,
    "a sampler of its own": """
        class Mine(Sampler):
            def __iter__(self):
                return iter(range(rank, 64, world_size))
            def __len__(self):
                return 64 // world_size
        fit(DataLoader(data, 8, sampler=Mine()), 2)
        """,
    "growing part": """
        for epoch, size in enumerate((16, 32, 64)):
            part = Subset(data, range(size))
            sampler = DistributedSampler(part)
            sampler.set_epoch(epoch)
            fit(DataLoader(part, 4, sampler=sampler))
        """,
    "batches dealt out": """
        for i, (x, y) in enumerate(DataLoader(data, 8)):
            if i % world_size == rank:
                opt.zero_grad()
                model(x).mean().backward()
                opt.step()
        """,
    "data of its own": """
        own = TensorDataset(torch.arange(64.0).reshape(64, 1) + 64 * rank)
        fit(DataLoader(own, 8, shuffle=True), 2)
        """,
    "uneven in join": """
        mine = Subset(data, range(40) if rank == 0 else range(40, 64))
        with model.join():
            fit(DataLoader(mine, 8))
        """,
    "rest dropped": """
        sampler = DistributedSampler(data, drop_last=True)
        fit(DataLoader(data, 7, sampler=sampler, drop_last=True), 2, sampler)
        """,
    "resumed": """
        sampler = DistributedSampler(data)
        loader = DataLoader(data, 8, sampler=sampler)
        for epoch in (5, 6):
            sampler.set_epoch(epoch)
            fit(loader)
        """,
    "batch sampler": """
        sampler = DistributedSampler(data)
        fit(DataLoader(data, batch_sampler=BatchSampler(sampler, 8, False)), 2, sampler)
        """,
    "each rank alone": """
        alone = torch.nn.Linear(1, 1)
        own = torch.optim.SGD(alone.parameters(), lr=1e-5)
        fit(DataLoader(data, 8, shuffle=True), 2, model=alone, opt=own)
        """,
    "checkpoint between epochs": """
        sampler = DistributedSampler(data)
        loader = DataLoader(data, 8, sampler=sampler)
        for epoch in range(5):
            sampler.set_epoch(epoch)
            fit(loader)
            if rank == 0:
                time.sleep(0.15)
            dist.barrier()
        """,
    "slow start": """
        if rank == 1:
            time.sleep(0.8)
        sampler = DistributedSampler(data)
        fit(DataLoader(data, 8, sampler=sampler), 3, sampler)
        """,
}

FAULTY = {
    "meters of one rank that read in one line": (
        METERS.replace("AFTER", "pass"),
        "metric-not-reduced",
        [0],
    ),
    "a meter of one rank": (
        METER.replace("AFTER", "pass").replace("SHOW", "rank == 0 and print('error', self.meter)"),
        "metric-not-reduced",
        [0],
    ),
    "a meter of one rank in a log": (
        METER.replace("AFTER", "pass").replace(
            "SHOW", "rank == 1 and logging.warning('error %s', self.meter)"
        ),
        "metric-not-reduced",
        [1],
    ),
    "no sampler, in a function": (
        """
        def train():
            small = TensorDataset(torch.arange(32.0).reshape(32, 1))
            fit(DataLoader(small, 4, shuffle=True), 2)
        train()
        """,
        "no-distributed-sampler",
        [0, 1, 2],
    ),
    "always the same epoch": (
        """
        sampler = DistributedSampler(data)
        loader = DataLoader(data, 8, sampler=sampler)
        for epoch in range(3):
            sampler.set_epoch(7)
            fit(loader)
        """,
        "set-epoch-forgotten",
        [0, 1, 2],
    ),
    "no sampler, broken off": (
        "fit(DataLoader(data, 8), limit=3)",
        "no-distributed-sampler",
        [0, 1, 2],
    ),
    "no sampler, gradients by hand": (
        """
        net = torch.nn.Linear(1, 1)
        for p in net.parameters():
            dist.broadcast(p.data, 0)
        own = torch.optim.SGD(net.parameters(), lr=1e-5)
        for x, y in DataLoader(data, 8, shuffle=True):
            own.zero_grad()
            net(x).mean().backward()
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world_size
            own.step()
        """,
        "no-distributed-sampler",
        [0, 1, 2],
    ),
    "one replica": (
        "fit(DataLoader(data, 8, sampler=DistributedSampler(data, num_replicas=1, rank=0)))",
        "sampler-for-wrong-rank",
        [0, 1, 2],
    ),
    "the same part": (
        "fit(DataLoader(data, 8, sampler=DistributedSampler(data, num_replicas=3, rank=2)))",
        "sampler-for-wrong-rank",
        [0, 1],
    ),
    "more replicas than ranks": (
        "fit(DataLoader(data, 8, sampler=DistributedSampler(data, num_replicas=6, rank=rank)))",
        "sampler-for-wrong-rank",
        [0, 1, 2],
    ),
    "stream, with a worker": (
        """
        class Stream(IterableDataset):
            def __iter__(self):
                return (torch.tensor([float(i)]) for i in range(64))
        fit(DataLoader(Stream(), 8, num_workers=1))
        """,
        "iterable-not-sharded",
        [0, 1, 2],
    ),
    "overlap": (
        "fit(DataLoader(Subset(data, range(rank * 16, rank * 16 + 24)), 8))",
        "shard-overlap",
        [0, 1, 2],
    ),
    "overlap, broken off": (
        """
        torch.manual_seed(rank)  # how many of the common samples are read is a matter of chance
        fit(DataLoader(Subset(data, range(rank * 16, rank * 16 + 24)), 8, shuffle=True), limit=2)
        """,
        "shard-overlap",
        [0, 1, 2],
    ),
    "gaps": (
        "fit(DataLoader(Subset(data, range(rank * 22, rank * 22 + 20)), 5))",
        "shard-gaps",
        [0, 1, 2],
    ),
    "set_epoch forgotten, made anew": (
        """
        for epoch in range(3):
            fit(DataLoader(data, 8, sampler=DistributedSampler(data)))
        """,
        "set-epoch-forgotten",
        [0, 1, 2],
    ),
}


def report(ranks: Ranks, n: int, source: str, *later: str) -> Report:
    session = ranks.session(n)
    session.restart()
    for cell in (SETUP + dedent(source), *later):
        run = session.run(cell)
        assert run.ok, run.errors
    return ddt.diagnose(run)


@pytest.mark.parametrize("name", HEALTHY)
def test_legal_division_is_silent(ranks: Ranks, name: str) -> None:
    found = report(ranks, 2, HEALTHY[name])
    assert not found.findings, str(found)


@pytest.mark.parametrize("name", FAULTY)
def test_wrong_division_is_found(ranks: Ranks, name: str) -> None:
    source, cause, culprits = FAULTY[name]
    found = report(ranks, 3, source)
    assert [(f.cause, f.ranks) for f in found.findings] == [(cause, culprits)], str(found)


PADDED = """
class Accuracy:
    def __init__(self):
        self.counts = torch.zeros(2)
    def update(self, hits):
        self.counts += torch.tensor([float(hits.sum()), float(len(hits))])
    def compute(self):
        REDUCE
        return (self.counts[0] / self.counts[1]).item()

def evaluate(loader):
    accuracy = Accuracy()
    with torch.no_grad():
        for x, y in loader:
            accuracy.update(model.module(x)[:, 0] > y[:, 0])
    return accuracy.compute()

some = Subset(data, range(33))
evaluate(DataLoader(some, 8, sampler=DistributedSampler(some, shuffle=False)))
"""


@pytest.mark.parametrize(
    ("reduce", "hinted"), [("dist.all_reduce(self.counts)", True), ("", False)]
)
def test_padding_that_another_method_sums_up(ranks: Ranks, reduce: str, *, hinted: bool) -> None:
    found = report(ranks, 2, PADDED.replace("REDUCE", reduce))
    assert not found.findings, str(found)
    assert [hint.kind for hint in found.hints] == ["padding-counted"] * hinted


def test_an_order_that_stays_the_same_is_seen_across_cells(ranks: Ranks) -> None:
    source = "loader = DataLoader(data, 8, sampler=DistributedSampler(data))\nfit(loader)"
    found = report(ranks, 2, source, "fit(loader)")
    assert [f.cause for f in found.findings] == ["set-epoch-forgotten"]


def test_a_cell_that_is_run_again_begins_at_the_same_epoch(ranks: Ranks) -> None:
    source = "sampler = DistributedSampler(data)\nloader = DataLoader(data, 8, sampler=sampler)"
    found = report(ranks, 2, source, *["fit(loader, 2, sampler)"] * 2)
    assert not found.findings, str(found)


def test_loaders_that_one_loop_reads_in_turn_are_one_finding(ranks: Ranks) -> None:
    source = """
        for epoch in range(3):
            for (x, _) in DataLoader(data, 16, shuffle=True):
                opt.zero_grad()
                model(x).pow(2).mean().backward()
                opt.step()
        """
    (finding,) = report(ranks, 2, dedent(source)).findings
    assert finding.cause == "no-distributed-sampler"
    assert finding.values["loader"].startswith("loader at cell["), finding.values


def test_a_fault_of_an_earlier_cell_is_not_reported_again(ranks: Ranks) -> None:
    found = report(ranks, 2, "loader = DataLoader(data, 8)\nfit(loader)", "x = torch.ones(1)")
    assert not found.findings, str(found)
