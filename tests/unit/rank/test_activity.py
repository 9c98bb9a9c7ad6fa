"""What a main thread waits for is read from the operating system."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ddt_notebook.rank.probes.activity import holder_of_lock, thread_waits_for

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/syscall").exists(), reason="the system does not show system calls"
)
_LIMIT_S = 30.0


def watch(
    wanted: tuple[str, str], release: Callable[[], None]
) -> tuple[threading.Thread, list[bool]]:
    """Release the main thread as soon as it is seen in the wanted wait."""
    seen: list[bool] = []

    def look() -> None:
        deadline = time.monotonic() + _LIMIT_S
        while thread_waits_for(os.getpid()) != wanted and time.monotonic() < deadline:
            time.sleep(0.001)
        seen.append(thread_waits_for(os.getpid()) == wanted)
        release()

    thread = threading.Thread(target=look)
    thread.start()
    return thread, seen


def test_a_read_from_a_pipe_is_recognised() -> None:
    source, sink = os.pipe()
    thread, seen = watch(("data", ""), lambda: os.close(sink))
    os.read(source, 1)
    thread.join()
    os.close(source)
    assert seen == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="flock is another call elsewhere")
def test_a_wait_for_the_lock_of_a_file_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "data.lock"
    with path.open("w") as held, path.open("w") as wanted:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread, seen = watch(("file lock", str(path)), lambda: fcntl.flock(held, fcntl.LOCK_UN))
        fcntl.flock(wanted, fcntl.LOCK_EX)
        thread.join()
    assert seen == [True]


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not show locks")
def test_the_holder_of_a_files_lock_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.lock"
    child = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)"
    child += "; print('locked', flush=True); sys.stdin.read()"
    held = subprocess.Popen(
        [sys.executable, "-c", child, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert held.stdin is not None
    assert held.stdout is not None
    holders: list[int | None] = []

    def release() -> None:
        holders.append(holder_of_lock())
        held.stdin.close()

    try:
        assert held.stdout.readline() == b"locked\n"
        assert holder_of_lock() is None
        with path.open("w") as wanted:
            thread, _ = watch(("file lock", str(path)), release)
            fcntl.flock(wanted, fcntl.LOCK_EX)
            thread.join()
    finally:
        held.kill()
        held.wait(_LIMIT_S)
        held.stdout.close()
    assert holders == [held.pid]


def test_a_wait_for_a_lock_of_python_is_recognised() -> None:
    event = threading.Event()
    thread, seen = watch(("lock", ""), event.set)
    event.wait()
    thread.join()
    assert seen == [True]


def test_a_thread_that_runs_waits_for_nothing() -> None:
    assert thread_waits_for(os.getpid()) == ("", "")
