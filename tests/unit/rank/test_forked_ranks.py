"""A rank that spawns ranks of its own says how many there are in all."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch.multiprocessing

from ddt_notebook.rank import forked_ranks


def test_a_rank_that_spawns_ranks_notes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = importlib.import_module("torch.multiprocessing.spawn")
    started = []
    for module in (torch.multiprocessing, spawn):
        monkeypatch.setattr(module, "start_processes", lambda *args, **_: started.append(args))
    forked_ranks.refuse(3)
    torch.multiprocessing.spawn(print, nprocs=2)
    line = sys._getframe().f_lineno - 1
    torch.multiprocessing.spawn(print, nprocs=1)  # a helper of the rank
    assert len(started) == 2
    (note,) = forked_ranks.take_notes()
    place = f"{__file__.rpartition('/')[2]} line {line}"
    assert note.startswith(f"{place} runs on each of the 3 ranks, and each spawns 2 processes")
    assert "6 in all" in note
    assert not forked_ranks.take_notes()
