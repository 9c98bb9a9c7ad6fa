"""The recorder of Horovod, with a stand-in for its library; tests/horovod has real programs."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.model.meetings import meetings
from ddt_notebook.model.shares import activities

STAND_IN = Path(__file__).parents[1] / "fixtures" / "horovod" / "site-packages"
START = "import horovod.torch as hvd\nhvd.init()\n"
#: A cell; symptom, kind, culprits and waiting ranks of the finding; and words of its title.
FAULTS = {
    "a rank is missing": (
        "if rank == 0:\n    hvd.allreduce(torch.ones(3), name='loss')",
        ("D.2.1", "never-entered", [1], [0]),
        "rank 1 never entered allreduce #1 (3 × float32) of tensor loss",
    ),
    "names differ": (
        "hvd.allreduce(torch.ones(2), name=f'loss.{rank}')",
        ("D.2.1", "wait-cycle", [0, 1], []),
        "rank 0 waits in allreduce #1 (2 × float32) of tensor loss.0 for rank 1",
    ),
    "shapes differ": (
        "hvd.allreduce(torch.ones(2 + rank), name='x')",
        ("D.1.1", "arguments-differ", [0, 1], []),
        "shapes differ in allreduce #1 of tensor x: 2 on rank 0; 3 on rank 1",
    ),
    "types differ": (
        "hvd.allreduce(torch.ones(2, dtype=torch.float64 if rank else torch.float32), name='y')",
        ("D.1.1", "arguments-differ", [0, 1], []),
        "data types differ in allreduce #1 of tensor y: float32 on rank 0; float64 on rank 1",
    ),
    "steps differ": (
        "for step in range(3 - rank):\n    hvd.allreduce(torch.ones(2), name='w')",
        ("D.2.1", "never-entered", [1], [0]),
        "rank 1 never entered allreduce #3 (2 × float32) of tensor w",
    ),
    "a rank has gone on": (
        """
for step in range(2):
    if rank == 0:
        hvd.allreduce(torch.ones(1), name='score')
    hvd.allreduce(torch.ones(2), name='w')
""",
        ("D.2.1", "never-entered", [1], [0]),
        "rank 1 never entered allreduce #1 (1 × float32) of tensor score",
    ),
}
#: They end well, whatever they look like.
HEALTHY = {
    "in another order": (
        "handles = [hvd.allreduce_async_(torch.ones(2) * n, name=f'{n}')\n"
        "           for n in (range(4) if rank else range(3, -1, -1))]\n"
        "for handle in handles if rank else handles[::-1]:\n    hvd.synchronize(handle)"
    ),
    "uneven parts are gathered": "print(hvd.allgather(torch.ones(2 + rank)).shape)",
    "a rank joins": (
        "for step in range(2 + rank):\n    hvd.allreduce(torch.ones(2), name='w')\nhvd.join()\n"
        "hvd.allreduce(torch.ones(2), name='w')\nhvd.barrier()"
    ),
    "polled": (
        "handle = hvd.allreduce_async_(torch.ones(2), name='w')\nwhile not hvd.poll(handle):\n"
        "    pass\nhvd.synchronize(handle)"
    ),
}
TRAINS = """
torch.manual_seed(3 + rank)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
# before the optimizer
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    for name, parameter in model.named_parameters():
        hvd.allreduce_async_(parameter.grad, name=name)
    for handle in range(step * 4 + FIRST, step * 4 + FIRST + 4):
        hvd.synchronize(handle)
    optimizer.step()
"""


@pytest.mark.skipif(importlib.util.find_spec("horovod") is not None, reason="Horovod is installed")
def test_a_missing_horovod_is_refused_in_one_line() -> None:
    with pytest.raises(ddt.DdtError, match="Horovod is not installed"):
        ddt.Session(2, framework="horovod")


@pytest.fixture(scope="module")
def session() -> Iterator[ddt.Session]:
    before = os.environ.get("PYTHONPATH")
    sys.path.insert(0, str(STAND_IN))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(STAND_IN), before]))
    importlib.invalidate_caches()
    try:
        with ddt.Session(2, framework="horovod", hang_after=0.3, timeout=20) as one:
            assert one.run(START).ok
            yield one
    finally:
        sys.path.remove(str(STAND_IN))
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_by_the_tensor_and_the_next_cell_runs(
    session: ddt.Session, name: str
) -> None:
    source, found, words = FAULTS[name]
    report = ddt.diagnose(session.run(source))
    (finding,) = report.findings
    said = (finding.symptom, finding.kind, finding.ranks, finding.waiting)
    assert said == found, str(report)
    assert words in finding.title
    again = session.run("print(hvd.allreduce(torch.ones(1) * rank, name='loss').item())")
    assert again.outputs == {0: "0.5\n", 1: "0.5\n"}, str(ddt.diagnose(again))


def test_a_wait_that_the_user_interrupts_leaves_nothing_to_the_next_cell(
    session: ddt.Session, tmp_path: Path
) -> None:
    """Calls without a name meet by their number, which one rank has counted further."""
    file = tmp_path / "begun"
    source = f"""
import pathlib, time
if rank == 0:
    handle = hvd.allreduce_async_(torch.ones(1))
    pathlib.Path({str(file)!r}).touch()
    hvd.synchronize(handle)
while True:
    time.sleep(0.01)
"""

    def interrupt() -> None:
        while not file.exists():
            time.sleep(0.01)
        session.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    run = session.run(source)
    thread.join()
    assert run.snapshot.outcome == "interrupted"
    again = session.run(
        "for step in range(3):\n    total = hvd.allreduce(torch.ones(2) * (rank + step))\n"
        "print(total)"
    )
    assert again.outputs == {0: "tensor([2.5000, 2.5000])\n", 1: "tensor([2.5000, 2.5000])\n"}


def test_names_that_only_one_rank_has(session: ddt.Session) -> None:
    source = (
        "names = [f'{rank}.{kind}' for kind in ('weight', 'bias')]\n"
        "for step in range(2):\n"
        "    handles = [hvd.allreduce_async_(torch.ones(2), name=name) for name in names]\n"
        "    for handle in handles:\n        hvd.synchronize(handle)"
    )
    (finding,) = ddt.diagnose(session.run(source)).findings
    assert (finding.symptom, finding.ranks) == ("D.2.1", [0, 1]), str(finding)
    assert finding.cause == "horovod-names-differ", str(finding)


@pytest.mark.parametrize("name", HEALTHY)
def test_what_fits_is_quiet(session: ddt.Session, name: str) -> None:
    result = session.run(HEALTHY[name])
    report = ddt.diagnose(result)
    assert result.ok, str(report)
    assert not report.findings, str(report)
    assert not report.hints, str(report)


@pytest.mark.parametrize("broadcast", [False, True])
def test_parameters_that_were_never_made_equal_are_named(
    session: ddt.Session, broadcast: bool
) -> None:
    change = "hvd.broadcast_parameters(model.state_dict(), root_rank=0)" if broadcast else ""
    source = TRAINS.replace("# before the optimizer", change)
    first = "hvd.allreduce_async_(torch.ones(1), name='n')"
    result = session.run(f"FIRST = {first} + 1 + {4 if broadcast else 0}\n{source}")
    report = ddt.diagnose(result)
    assert result.ok, str(report)
    causes = [finding.cause for finding in report.findings]
    assert causes == ([] if broadcast else ["horovod-not-broadcast"]), str(report)


def test_a_traced_wait_for_the_last_rank_is_waiting(session: ddt.Session) -> None:
    source = (
        "import time\nhvd.barrier()\ntime.sleep(0.5 * rank)\n"
        "hvd.allreduce(torch.ones(2), name='late')"
    )
    run = session.run(source, trace=True)
    assert run.ok, str(ddt.diagnose(run))
    first, _ = activities(run.snapshot, meetings(run.snapshot))
    # rank 1 slept while rank 0 waited
    assert sum(end - start for start, end in first.waiting) > 0.3


def test_a_rank_that_never_starts_is_named(session: ddt.Session) -> None:
    result = session.run("hvd.shutdown()\nif rank == 0:\n    hvd.init()")
    (finding,) = ddt.diagnose(result).findings
    assert (finding.symptom, finding.ranks, finding.waiting) == ("B.2", [1], [0])
    assert session.run(START + "hvd.barrier()").ok
