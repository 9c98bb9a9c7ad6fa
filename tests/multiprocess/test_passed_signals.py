"""What a command leaves behind when it ends at a signal, as DeepSpeed's launcher does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil

from .test_jobs import LIMIT_S, Job, _no_process_is_left, assert_gone

__all__ = ["_no_process_is_left"]

#: Ends at SIGTERM, without the processes that it has started.
LAUNCHER = """
cd {folder}
sleep 1000 & echo $! > own
setsid sleep 1000 > other.log 2>&1 & echo $! > other
mv own started
wait
"""


def _pid(file: Path) -> int:
    deadline = time.monotonic() + LIMIT_S
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(file.read_text())


def test_processes_that_a_launcher_leaves_behind_are_ended(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", "--", "bash", "-c", LAUNCHER.format(folder=tmp_path))
    own = _pid(tmp_path / "started")
    other = psutil.Process(_pid(tmp_path / "other"))
    try:
        while os.getsid(other.pid) != other.pid:  # until it has a session of its own
            time.sleep(0.01)
        job.process.send_signal(signal.SIGTERM)
        status, _, errors = job.end()
        assert status == 128 + signal.SIGTERM, errors
        assert "1 process that the command left behind" in errors
        assert_gone([own])
        assert other.is_running()
    finally:
        other.kill()
