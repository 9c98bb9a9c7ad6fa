"""Passes signals on to the command of a job, and ends what the command then leaves behind.

On one host, DeepSpeed's ``deepspeed`` ends at SIGTERM without a word to the processes that it has
started: the ranks go on, and so does the compiler of an operator that they build.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType

import psutil

#: Time between two looks at processes that are to end, in seconds.
_TICK_S = 0.05


class PassedSignals:
    """The signals that this process gets for a command.

    Parameters
    ----------
    command
        The command, which this process has started.
    """

    def __init__(self, command: subprocess.Popen[bytes]) -> None:
        self._command = command
        #: What the command had started when a signal was passed on.
        self._started: list[psutil.Process] = []

    def install(self) -> None:
        """Pass on the signals that end a process from now on."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:  # a terminal sends that one to the job, too
            return
        with suppress(psutil.Error):
            known = {*self._started}
            now = psutil.Process(self._command.pid).children(recursive=True)
            self._started += [process for process in now if process not in known]
        self._command.send_signal(number)

    def end_left(self, limit_s: float) -> int:
        """End what the command, which has ended, has left behind after a signal.

        The first of them get SIGTERM, since a launcher among them ends its own processes; all get
        SIGKILL after ``limit_s``. A process with a session of its own was meant to outlive the
        command.

        Returns
        -------
        int
            How many there were.
        """
        left = _running(one for one in self._started if _session_of(one) == _session_of(None))
        pids = {process.pid for process in left}
        for process in left:
            with suppress(psutil.Error):
                if process.ppid() not in pids:
                    process.terminate()
        until_s, running = time.monotonic() + limit_s, left
        while running and time.monotonic() < until_s:
            time.sleep(_TICK_S)
            running = _running(running)
        for process in running:
            with suppress(psutil.Error):
                process.kill()
        return len(left)


def _running(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended; one that nobody waits for stays known to the system."""
    found = []
    for process in processes:
        with suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _session_of(process: psutil.Process | None) -> int | None:
    with suppress(OSError):
        return os.getsid(0 if process is None else process.pid)
    return None
