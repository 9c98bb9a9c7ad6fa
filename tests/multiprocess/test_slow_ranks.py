"""Real ranks that delay the others, and ranks that only seem to."""

from __future__ import annotations

import os
import warnings
from textwrap import dedent

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Report

from .conftest import Ranks

SETUP = """
import time
from torch.utils.data import *

model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)))
opt = torch.optim.SGD(model.parameters(), lr=0.01)

def step(x):
    opt.zero_grad()
    model(x).pow(2).mean().backward()
    opt.step()
"""

#: Each is slow by ``slower`` times something.
SLOW = {
    "sleeps before a collective of its own": (
        """
        x = torch.ones(10)
        for i in range(15):
            if rank == 2:
                time.sleep(0.06 * slower)
            dist.all_reduce(x)
        """,
        "straggler-compute",
        2,
    ),
    "computes more": (
        """
        a = torch.randn(400, 400)
        for i in range(20):
            if rank == 0:
                for _ in range(15 * slower):
                    a @ a
            step(torch.randn(32, 64))
        """,
        "straggler-compute",
        0,
    ),
    "accumulates": (
        """
        for i in range(32):
            if rank == 1:
                time.sleep(0.03 * slower)
            if i % 4 == 3:
                step(torch.randn(32, 64))
            else:
                with model.no_sync():
                    model(torch.randn(32, 64)).pow(2).mean().backward()
        """,
        "straggler-compute",
        1,
    ),
    "reads slowly": (
        """
        class Slow(Dataset):
            def __len__(self):
                return 90
            def __getitem__(self, i):
                time.sleep(0.008 * slower if i % 3 == 1 else 0)
                return torch.full((64,), i / 90)
        for x in DataLoader(Slow(), 3, sampler=DistributedSampler(Slow(), shuffle=False)):
            step(x)
        """,
        "straggler-data",
        1,
    ),
}

EVEN = {
    "one long pause": """
        for i in range(20):
            if rank == 1 and i == 7:
                time.sleep(0.8)
            step(torch.randn(32, 64))
        """,
    "pauses of rank 0 now and then": """
        for i in range(30):
            step(torch.randn(32, 64))
            if i % 10 == 9 and rank == 0:
                time.sleep(0.2)
        """,
    "everyone sleeps": """
        for i in range(15):
            time.sleep(0.02)
            step(torch.randn(32, 64))
        """,
    "heavy": """
        for i in range(25):
            step(torch.randn(4096, 64))
        """,
    "a pipeline": """
        x = torch.randn(16, 64)
        for i in range(10):
            if rank > 0:
                dist.recv(x, rank - 1)
            time.sleep(0.01)
            if rank < world_size - 1:
                dist.send(x, rank + 1)
            loss = torch.ones(1)
            dist.all_reduce(loss)
        """,
    "rank 0 saves, the others wait in a barrier": """
        for i in range(8):
            if rank == 0:
                time.sleep(0.05)
            dist.barrier()
        """,
}


def _diagnosed(ranks: Ranks, name: str, slower: int) -> Report:
    run = ranks.session(3).run(f"slower = {slower}\n{SETUP}{dedent(SLOW[name][0])}")
    assert run.ok, run.errors
    return ddt.diagnose(run)


#: The patterns that were found without a longer delay.
_AT_ONCE: set[str] = set()


@pytest.mark.parametrize("name", SLOW)
def test_ranks_that_delay_the_others_are_found(ranks: Ranks, name: str) -> None:
    """On a busy machine, a delay may be like those of other ranks; then a longer one is found."""
    _, cause, culprit = SLOW[name]
    for slower in (1, 4):
        report = _diagnosed(ranks, name, slower)
        if report.findings:
            _AT_ONCE.update([name] if slower == 1 else [])
            break
    assert [(f.cause, f.ranks) for f in report.findings] == [(cause, [culprit])], str(report)


def test_a_delay_need_not_be_longer_than_written(ranks: Ranks) -> None:
    """A machine on which all patterns need a longer delay is overloaded, or the rules miss them."""
    if _AT_ONCE or any(_diagnosed(ranks, name, 1).findings for name in SLOW):
        return
    text = "no pattern was found without a longer delay"
    assert os.getloadavg()[0] > 2 * (os.cpu_count() or 1), text
    warnings.warn(f"{text}: the machine is overloaded", stacklevel=1)


@pytest.mark.parametrize("name", EVEN)
def test_ranks_that_do_not_delay_the_others_are_not_reported(ranks: Ranks, name: str) -> None:
    run = ranks.session(3).run(SETUP + dedent(EVEN[name]))
    assert run.ok, run.errors
    report = ddt.diagnose(run)
    assert not report.findings, str(report)
