"""Results that are known to be one rank's own, until ranks exchange them."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from ddt_notebook.model.operations import COLLECTIVES
from ddt_notebook.rank.probes import evaluations
from ddt_notebook.rank.probes.calls import CallLog
from ddt_notebook.wire.ring import RingWriter


def test_a_result_that_the_ranks_reduce_is_not_the_ranks_own_any_more(tmp_path: Path) -> None:
    reduced, kept = torch.ones(1), torch.ones(1)
    record = evaluations.RECORD
    log, name = CallLog(None), "all_reduce"
    log.attach(RingWriter(tmp_path / "calls"))
    all_reduce = log._collective(dist.all_reduce, op=name, operation=COLLECTIVES[name])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        record.computes({"reduced": reduced, "kept": kept})
        all_reduce(reduced)
        assert reduced.data_ptr() not in record.own
        assert kept.data_ptr() in record.own
    finally:
        record.own.clear()
        dist.destroy_process_group()
