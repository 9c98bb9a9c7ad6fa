"""What the operating system shows of a process."""

from __future__ import annotations

import subprocess
import sys

import psutil

from ddt_notebook.host.process import LocalProcess

_COMPUTES = """
sum(range(30_000_000))
print("computed", flush=True)
input()
"""


def test_the_processor_time_of_a_process_is_read_until_it_has_ended() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _COMPUTES], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        process = LocalProcess(child.pid)
        used_s, _ = process.used()
        known = psutil.Process(child.pid).cpu_times()
        assert 0 < used_s <= known.user + known.system < used_s + 1
    finally:
        child.kill()
        child.communicate()
    assert process.used()[0] == 0
