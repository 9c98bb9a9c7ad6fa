"""Runs the child processes of the doctor with a time limit, and ends all of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended.

    Attributes
    ----------
    status
        Exit status; negative for a signal, None if the child exceeded the time limit.
    output, errors
        What the child wrote to stdout and stderr.
    """

    status: int | None
    output: str
    errors: str

    @property
    def last_error(self) -> str:
        """The last line on stderr that is not blank."""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return lines[-1] if lines else ""


def run_together(
    arguments: Sequence[str], environments: Sequence[Mapping[str, str]], limit_s: float
) -> list[Ended]:
    """Run the child module once for each environment, all at the same time."""
    command = [sys.executable, "-m", "ddt_notebook.preflight.child", *arguments]
    children = [
        subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        for environment in environments
    ]
    try:
        return [_wait(child, limit_s) for child in children]
    finally:
        for child in children:
            _end(child)


def _wait(child: subprocess.Popen[str], limit_s: float) -> Ended:
    try:
        output, errors = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(child)
        output, errors = child.communicate(timeout=5)
        return Ended(None, output, errors)
    return Ended(child.returncode, output, errors)


def _end(child: subprocess.Popen[str]) -> None:
    """End the child and the processes that it started."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=5)
