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
_NOT_INSTALLED = "install ddt_notebook there (pip install ddt-notebook)"
#: Runs the agent; another one that the shell finds if this interpreter does not have what it needs.
_PROGRAM = f"""
import os, sys
try:
    import ddt_notebook.host.agent
except ImportError as error:
    try:
        os.execvp("ddt-notebook", ["ddt-notebook", *sys.argv[1:]])
    except OSError:
        sys.exit(f"{{sys.executable}} there: {{error}}: {_NOT_INSTALLED}")
from ddt_notebook.cli import main
raise SystemExit(main())
"""


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
    program = shlex.quote(f"exec({_PROGRAM!r})")  # csh takes no line breaks in quotes
    missing = f"neither {sys.executable} nor ddt-notebook is there: {_NOT_INSTALLED}"
    return (
        f"cd {folder} 2>/dev/null; "
        f"if [ -x {python} ]; then exec {python} -c {program} {arguments}; "
        f"elif command -v ddt-notebook > /dev/null; then exec ddt-notebook {arguments}; "
        f"else echo {shlex.quote(missing)} >&2; exit 127; fi"
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
