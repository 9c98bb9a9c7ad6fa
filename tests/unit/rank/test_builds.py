"""What a process notes of extensions of PyTorch that it, or another process, builds."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from torch.utils.file_baton import FileBaton

from ddt_notebook.rank.probes.builds import Builds


@pytest.fixture
def record() -> Any:
    return Builds()


class _Baton(FileBaton):
    """Its methods are replaced, and not those of PyTorch's class."""


def test_a_lock_is_named_with_the_process_that_has_it_open(record: Builds, tmp_path: Path) -> None:
    record.watch(_Baton)
    lock = tmp_path / "lock"
    lock.touch()
    seen = []

    def look() -> None:
        seen.append(record.awaited())
        lock.unlink()

    waits = _Baton(str(lock), wait_seconds=0.01)
    looks = threading.Timer(0.1, look)
    looks.start()
    waits.wait()
    looks.join()
    assert seen == [("build lock", str(lock), None)]  # nobody has it open
    assert record.awaited() == ("", "", None)
    assert record.building() == ("", None)

    holds = _Baton(str(lock))
    assert holds.try_acquire()
    assert record.building() == (str(tmp_path), None)  # there is no list of files yet
    (tmp_path / "build.ninja").write_text(
        "rule compile\n  command = c++\n\nbuild a.o: compile /x/a.cpp\n"
        "build b.o: compile /x/b.cpp\nbuild x.so: link a.o b.o\n"
    )
    assert record.building() == (str(tmp_path), (0, 2))
    (tmp_path / "a.o").touch()
    assert record.building() == (str(tmp_path), (1, 2))
    os.utime(tmp_path / "a.o", (1.0, 1.0))  # of an earlier build
    assert record.building() == (str(tmp_path), (0, 2))

    looks = threading.Timer(0.1, lambda: (seen.append(record.awaited()), holds.release()))
    looks.start()
    _Baton(str(lock), wait_seconds=0.01).wait()
    looks.join()
    assert seen[1] == ("build lock", str(lock), os.getpid())
