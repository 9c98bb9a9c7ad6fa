"""The dumps of PyTorch's recorder during a hang, compared with the session's observations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ddt_notebook as ddt

#: A side thread writes the dump while the main thread is stuck, as a job's watchdog does.
WRITE = """
import threading

def write():
    data = torch._C._distributed_c10d._dump_fr_trace(True, True, False)
    with open(f"{folder}/fr_rank_{{rank}}", "wb") as file:
        file.write(data)

threading.Timer(1.0, write).start()
"""
TRAIN = """
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 2))
model(torch.randn(3, 4)).sum().backward()
"""
FAULTS = {
    "skipped": "if rank != 1:\n    dist.all_reduce(torch.ones(10))",
    "different": "dist.barrier() if rank == 2 else dist.all_reduce(torch.ones(4))",
    "uneven": "for _ in range(2 if rank else 3):\n    model(torch.randn(3, 4)).sum().backward()",
}


@pytest.fixture(scope="module")
def patient() -> Iterator[ddt.Session]:
    """Three ranks, whose hangs last long enough to be written down."""
    with ddt.Session(3, hang_after=2.5) as session:
        yield session


@pytest.mark.parametrize("fault", FAULTS)
def test_dumps_and_session_name_the_same_ranks(
    patient: ddt.Session, tmp_path: Path, fault: str
) -> None:
    run = patient.run(TRAIN + WRITE.format(folder=tmp_path) + FAULTS[fault])
    live = ddt.diagnose(run).findings[0]
    assert len(list(tmp_path.iterdir())) == 3
    dumped = ddt.diagnose_dumps(tmp_path).findings[0]
    assert (dumped.ranks, dumped.waiting) == (live.ranks, live.waiting)
