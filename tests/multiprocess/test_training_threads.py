"""Jobs that train in another thread than the main one, as some launchers let them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddt_notebook.model import Snapshot

from .test_jobs import TWO, Job, _no_process_is_left, assert_gone, report

__all__ = ["_no_process_is_left"]

SCRIPT = """
import threading
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train():
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = STEPS
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()
        CHECK
    dist.barrier()
"""
#: The main thread forms the group, and then waits for the one that trains.
IN_MAIN = """
dist.init_process_group("gloo")
trainer = threading.Thread(target=train)
trainer.start()
trainer.join()
"""
#: The thread of a pool forms the group, and another one trains.
IN_POOL = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as pool:
    pool.submit(dist.init_process_group, "gloo").result()
trainer = threading.Thread(target=train)
trainer.start()
trainer.join()
"""
#: A thread beside the main one enters the first collective, and the main thread trains.
BESIDE = """
dist.init_process_group("gloo")
beside = dist.new_group()
def beat():
    dist.all_reduce(torch.ones(1), group=beside)
heart = threading.Thread(target=beat)
heart.start()
while heart.is_alive():
    pass
heart.join()
train()
"""


def job(folder: Path, begin: str, *, steps: str = "3", check: str = "pass") -> Job:
    file = folder / "train.py"
    body = SCRIPT.replace("STEPS", steps).replace("CHECK", check)
    file.write_text((body + begin).lstrip("\n"))
    return Job(folder / "job", "--hang-after", "1", "--on-hang", "stop", "--", *TWO, file)


def trained(snapshot: Snapshot) -> list[tuple[int, int]]:
    """How many steps and backward passes were recorded of each rank."""
    return [
        (sum(one.steps for one in rank.optimizers), rank.backwards) for rank in snapshot.training
    ]


@pytest.mark.parametrize("begin", [IN_MAIN, BESIDE], ids=["main", "beside"])
def test_a_hang_in_the_thread_that_trains(tmp_path: Path, begin: str) -> None:
    hung = job(tmp_path, begin, steps="3 + rank")
    _, _, errors = hung.end()
    (finding,) = report(hung.folder).findings
    assert finding.symptom in ("D.1.1", "D.2.1"), errors
    assert {rank: place.line for rank, place in finding.places.items()} == {0: 16, 1: 13}, errors
    assert_gone(hung.pids)


def test_an_exception_in_the_thread_that_trains(tmp_path: Path) -> None:
    failed = job(tmp_path, IN_POOL, check="assert rank == 0 or step < 1")
    _, _, errors = failed.end()
    (finding,) = report(failed.folder).findings
    assert (finding.kind, finding.ranks) == ("raised", [1]), errors
    assert finding.places[1].line == 15


@pytest.mark.parametrize("begin", [IN_MAIN, BESIDE], ids=["main", "beside"])
def test_a_healthy_thread_that_trains(tmp_path: Path, begin: str) -> None:
    healthy = job(tmp_path, begin)
    status, _, errors = healthy.end()
    assert status == 0, errors
    found = report(healthy.folder)
    assert not found.findings, found.findings
    assert trained(found.snapshot) == [(3, 3), (3, 3)]
