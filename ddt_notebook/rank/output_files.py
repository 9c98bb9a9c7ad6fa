"""The files that hold what a rank prints, opened again after a cell closed them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

_NAMES = {1: "stdout", 2: "stderr"}


class OutputFiles:
    """Descriptors 1 and 2, redirected to files, which never block and outlive the rank.

    Parameters
    ----------
    rank, directory
        Where the files are: ``rank0.out`` and ``rank0.err``.
    """

    def __init__(self, rank: int, directory: Path) -> None:
        self._rank = rank
        self._paths = {1: directory / f"rank{rank}.out", 2: directory / f"rank{rank}.err"}
        for descriptor in self._paths:
            self._open(descriptor)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]

    def _open(self, descriptor: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        opened = os.open(self._paths[descriptor], flags, 0o600)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)

    def flush(self) -> None:
        """Write what Python still holds."""
        for name in _NAMES.values():
            with contextlib.suppress(OSError, ValueError, AttributeError):
                getattr(sys, name).flush()

    def size(self, descriptor: int) -> int:
        """How many bytes were printed."""
        with contextlib.suppress(OSError):
            return self._paths[descriptor].stat().st_size
        return 0

    def restore(self) -> tuple[str, ...]:
        """Flush both, and open again what a cell closed; returns a note on each.

        What a cell redirected stays as it is.
        """
        self.flush()
        notes = []
        for descriptor, name in _NAMES.items():
            closed = False
            try:
                os.fstat(descriptor)
            except OSError:
                closed = True
                self._open(descriptor)
            stream = getattr(sys, name, None)
            if not hasattr(stream, "write") or getattr(stream, "closed", False):
                closed = True
                setattr(sys, name, _stream(descriptor))
            if closed:
                notes.append(f"rank {self._rank} had closed its {name}; it was opened again")
        return tuple(notes)


def _stream(descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
