"""What the engines that start agents on other hosts have in common."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO

_END_LIMIT_S = 5.0
_READ_BYTES = 100_000


def agent_command(notebook: str, label: str) -> str:
    """The command for ``sh`` on a host.

    It prefers the interpreter and the folder of the notebook, which hosts of a cluster often share.

    Parameters
    ----------
    notebook
        Where the notebook is reached from there: ``HOST:PORT``.
    label
        What the user calls the host, as a word of the shell.
    """
    python, folder = shlex.quote(sys.executable), shlex.quote(os.getcwd())
    arguments = f"agent {notebook} --label {label}"
    program = shlex.quote("from ddt_notebook.cli import main; raise SystemExit(main())")
    return (
        f"cd {folder} 2>/dev/null; "
        f"if [ -x {python} ]; then exec {python} -c {program} {arguments}; "
        f"else exec ddt-notebook {arguments}; fi"
    )


def printed_lines(said: IO[str]) -> list[str]:
    """What an agent and its engine printed, each line cut."""
    said.seek(0)
    return [line[:300] for line in said.read(_READ_BYTES).strip().splitlines()]


def end(*processes: subprocess.Popen[str]) -> None:
    """End an engine's processes, whose agents have been asked to end."""
    for process in processes:
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
    for ask in (subprocess.Popen.poll, subprocess.Popen.terminate, subprocess.Popen.kill):
        for process in processes:
            ask(process)
        until_s = time.monotonic() + _END_LIMIT_S
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(until_s - time.monotonic(), 0.0))
