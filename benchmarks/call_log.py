"""What the log of calls adds to one call of ``torch.distributed`` from Python.

One process is a gloo group of its own, so that a collective transfers nothing. Blocks of calls of
the wrapped function and of torch's own alternate; the figure is the difference of their times.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any

from .common import ROOT, Figure

BLOCKS, CALLS = 60, 300
#: Runs in a process of its own, because it replaces the functions of ``torch.distributed``.
PROGRAM = """
import json, pathlib, sys, tempfile, time
import torch
import torch.distributed as dist
from ddt_notebook.rank.probes.calls import CallLog
from ddt_notebook.rank.probes.sockets import GroupSockets
from ddt_notebook.wire.records import Group
from ddt_notebook.wire.ring import RingReader, RingWriter

blocks, calls, ranks = map(int, sys.argv[1:])
torch.set_num_threads(1)
plain, plain_wait = dist.all_reduce, dist.Work.wait
log = CallLog(GroupSockets())
log.install()
recorded_wait = dist.Work.wait
folder = tempfile.TemporaryDirectory()
path = pathlib.Path(folder.name) / "rank0.calls"
log.attach(RingWriter(path))
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
# recorded as a group of many, whose members are written once
log._groups["0"] = Group("0", tuple(range(ranks))), False
tensor = torch.ones(16)
# as in a script: the line of the call is in a file of the user
source = '''
def block(all_reduce, tensor, calls, clock):
    start = clock()
    for _ in range(calls):
        all_reduce(tensor)
    return clock() - start
'''
names = {}
exec(compile(source, "/project/train.py", "exec"), names)
block = names["block"]
times = {"plain": [], "recorded": []}
for _ in range(blocks):
    dist.Work.wait = plain_wait
    times["plain"].append(block(plain, tensor, calls, time.perf_counter) / calls)
    dist.Work.wait = recorded_wait
    times["recorded"].append(block(dist.all_reduce, tensor, calls, time.perf_counter) / calls)
reader = RingReader(path)
last = reader.read(reader.count - 1)
assert last is not None and last.call.line == 5 and last.call.shapes == ((16,),), last
assert last.call.group.members == tuple(range(ranks)), last
assert reader.count >= blocks * calls
dist.destroy_process_group()
print(json.dumps(times))
"""


def measure() -> list[Figure]:
    """Measure."""
    return [_figure(f"recording a collective called from Python, {n} ranks", n) for n in (2, 1024)]


def _figure(what: str, ranks: int) -> Figure:
    times = _times(ranks)
    plain, recorded = times["plain"], times["recorded"]
    added = [with_it - without for without, with_it in zip(plain, recorded, strict=True)]
    note = (
        f"least {1e6 * (min(recorded) - min(plain)):.1f}; "
        f"torch's own call {1e6 * statistics.median(plain):.1f}"
    )
    return Figure(what, 1e6 * statistics.median(added), 15, "µs", note=note)


def _times(ranks: int) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(BLOCKS), str(CALLS), str(ranks)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return dict(json.loads(ran.stdout.splitlines()[-1]))


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
