"""How many operations of a group's backend belong to each recorded call."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from ddt_notebook.model.operations import COLLECTIVES
from ddt_notebook.rank.probes.calls import CallLog
from ddt_notebook.rank.probes.handles import Handles
from ddt_notebook.wire.ring import DONE, RingReader, RingWriter


def test_what_a_library_issues_in_between_belongs_to_no_call(
    tmp_path: Path, group: dist.ProcessGroup
) -> None:
    log = CallLog(None)
    log.attach(RingWriter(tmp_path / "calls"))
    name = "all_reduce"
    all_reduce = log._collective(dist.all_reduce, op=name, operation=COLLECTIVES[name])
    tensor = torch.ones(2)
    for number in range(6):  # those of the first calls are counted, those of the others known
        all_reduce(tensor)
        for _ in range(number):
            group.allreduce([tensor]).wait()
    reader = RingReader(tmp_path / "calls")
    records = [reader.read(index) for index in range(reader.count)]
    counts = [
        (one.call.operations_before, one.operations_after) for one in records if one is not None
    ]
    assert counts == [(0, 1), (1, 2), (3, 4), (6, 7), (10, 11), (15, 16)]


def test_the_wait_for_a_handle_ends_its_record_once(
    tmp_path: Path, group: dist.ProcessGroup
) -> None:
    log = CallLog(None)
    log.attach(RingWriter(tmp_path / "calls"))
    wait, name = dist.Work.wait, "all_reduce"
    all_reduce = log._collective(dist.all_reduce, op=name, operation=COLLECTIVES[name])
    replaced = {method: getattr(dist.Work, method) for method in dir(dist.Work)}
    log._wrap_work()
    try:
        work = all_reduce(torch.ones(2), async_op=True)
        assert work.wait()
        reader = RingReader(tmp_path / "calls")
        first = reader.read(0)
        assert work.wait()
        second = reader.read(0)
    finally:
        for method, original in replaced.items():
            if getattr(dist.Work, method) is not original:
                setattr(dist.Work, method, original)
    assert dist.Work.wait is wait
    assert first is not None
    assert second is not None
    assert (first.status, first.operations_after, reader.blocked_in) == (DONE, 1, None)
    assert second.left_s == first.left_s


def test_a_handle_that_is_gone_is_forgotten() -> None:
    class Handle:
        pass

    handles, kept = Handles(), Handle()
    gone = Handle()
    handles.add(kept, 1)
    handles.add(gone, 2)
    assert (handles.get(kept), handles.get(gone)) == (1, 2)
    del gone
    assert [one() for one in handles.known.values()] == [kept]
