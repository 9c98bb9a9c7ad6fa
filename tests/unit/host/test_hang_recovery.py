"""The steps that free ranks, on a real process in place of a rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ddt_notebook.host.hang_recovery import Rescue
from ddt_notebook.host.rank_run import RankRun

SUSPENDS_ITSELF = """
import os, pathlib, signal, sys
try:
    os.kill(os.getpid(), signal.SIGSTOP)
    pathlib.Path(sys.argv[1]).touch()
except KeyboardInterrupt:
    sys.exit(3)
"""


class Handle:
    """The parts of a rank's handle that a rescue uses."""

    rank = 0

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        time.sleep(0.1)  # what a resumed process does meanwhile, it does before the next signal

    def ask(self, question: object) -> None:
        """Nothing answers here."""


def test_a_suspended_rank_is_interrupted_before_its_next_line(tmp_path: Path) -> None:
    after = tmp_path / "after"
    process = subprocess.Popen([sys.executable, "-c", SUSPENDS_ITSELF, str(after)])
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        run = RankRun(handle=Handle(process), asked=True)  # type: ignore[arg-type]
        Rescue([run], interrupt=frozenset({0})).step()
        assert process.wait(60) == 3
        assert not after.exists()
    finally:
        process.kill()
        process.wait(60)
