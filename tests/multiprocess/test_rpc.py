"""Programs of ``torch.distributed.rpc`` in cells and scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.distributed import rpc

import ddt_notebook as ddt

from .conftest import Ranks

PROGRAM = """
import os
import torch
import torch.distributed.rpc as rpc

def add(a, b):
    return a + b

number = int(os.environ["RANK"])
rpc.init_rpc(f"worker{number}", rank=number, world_size=int(os.environ["WORLD_SIZE"]))
if number == 0:
    total = rpc.rpc_sync("worker1", add, args=(torch.ones(2), 3))
    assert total.tolist() == [4, 4]
"""


@pytest.mark.skipif(not rpc.is_available(), reason="this torch has no RPC")
def test_rpc_meets_at_the_sessions_store(ranks: Ranks, tmp_path: Path) -> None:
    session = ranks.session(2)
    file = tmp_path / "work.py"
    file.write_text(PROGRAM + "rpc.shutdown()\n")
    for _ in range(2):
        result = session.run_script(str(file))
        assert result.ok, result.errors
        assert ddt.diagnose(result).ok
    file.write_text(PROGRAM.partition("if number")[0])  # ends without a shutdown
    assert session.run_script(str(file)).ok
    cell = PROGRAM + "rpc.shutdown()\n"
    assert session.run(cell).ok
