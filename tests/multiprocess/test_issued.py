"""On a device, a call returns before its collective has happened: where hosts and devices stand.

The backend is simulated (`asynchronous_backend`); nothing of this has run on a GPU.
"""

from __future__ import annotations

from pathlib import Path

import ddt_notebook as ddt

from .test_jobs import TWO, Job, _no_process_is_left, assert_gone

__all__ = ["_no_process_is_left"]

BEGIN = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
import torch.distributed as dist
import asynchronous_backend as device

dist.init_process_group("simulated_nccl")
rank = dist.get_rank()
loss = torch.ones(3)
"""
#: Rank 1 is late for the first collective, which is no hang, and misses the last three.
BEHIND = """
time.sleep(3 * rank)
for step in range(5):
    if rank == 0 or step < 2:
        dist.all_reduce(loss)
with device.busy:
    print(loss[0])
"""
#: The host of each rank stands in a barrier, which both have issued.
CROSSED = """
if rank == 0:
    dist.all_reduce(loss)
for step in range(3):
    dist.broadcast(loss, 0)
dist.barrier()
"""


def hung(folder: Path, body: str) -> tuple[ddt.Report, ddt.Snapshot]:
    """What is found while the job of two ranks stands still."""
    file = folder / "train.py"
    file.write_text(BEGIN + body)
    # the gloo inside the simulation keeps a record of its own, unlike a device
    options = ("--on-hang", "stop", "--hang-after", "1")
    job = Job(folder / "job", *options, "--", *TWO, file, TORCH_FR_BUFFER_SIZE="0")
    _, _, errors = job.end()
    assert "the job is stopped, since it hangs" in errors
    assert_gone(job.pids)
    snapshot = ddt.Snapshot.load(job.folder / "report-1.ddt.json")
    return ddt.diagnose(snapshot), snapshot


def test_the_open_collective_and_the_line_of_the_host_are_named(tmp_path: Path) -> None:
    report, snapshot = hung(tmp_path, BEHIND)
    (finding,) = report.findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("never-entered", [1], [0])
    assert (finding.values["op"], finding.values["sequence"]) == ("all_reduce", 3)
    lines = (BEGIN + BEHIND).splitlines()
    issued, stands = (lines.index(one) + 1 for one in (lines[-3], "with device.busy:"))
    assert finding.places[0].line == issued, "the line that issued it"
    facts = {fact.kind: fact for fact in finding.facts}
    assert facts["host-stands"].place is not None
    assert facts["host-stands"].place.line == stands
    assert facts["issued-behind"].values == {"count": 2, "op": "all_reduce", "sequence": 5}
    waits = snapshot.rank(0)
    assert waits.device_waits
    assert [call.status for call in waits.calls if call.op == "all_reduce"] == [
        *("done", "done", "issued", "issued", "issued")
    ]


def test_other_collectives_are_open_than_the_one_in_which_the_hosts_stand(tmp_path: Path) -> None:
    report, snapshot = hung(tmp_path, CROSSED)
    (finding,) = report.findings
    assert (finding.kind, finding.values["sequence"]) == ("different-collectives", 1)
    open_ = {one.rank: call.op for one in snapshot.ranks if (call := one.blocked_call)}
    assert open_ == {0: "all_reduce", 1: "broadcast"}
    (stands,) = (fact for fact in finding.facts if fact.kind == "host-stands")
    assert stands.ranks == (0, 1)
