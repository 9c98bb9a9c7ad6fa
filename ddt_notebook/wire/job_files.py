"""The files in the folder of a recorded job: what each rank's process writes there, and when.

A rank's files begin with the name of its host and its process id. Its number is inside, since a job
may restart its ranks, and a process may form a group before a launcher has numbered it::

    HOST-PID.rank      `RankStarted`, as soon as the rank forms its process group
    HOST-PID.calls     the log of its calls, see `ring`
    HOST-PID.branches  which way it went through the user's code, see `branch_ring`
    HOST-PID.crash     what faulthandler writes when a signal ends the process
    HOST-PID.end       `CellEnded`, when the process ends by itself
    HOST-PID.exit      the status with which it left by ``os._exit``, unless that is 0
    HOST-PID.failed    why the process is not recorded
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from ..model.torch_features import MissingFeature
from .messages import Envelope, Message, decode, encode

#: The variable that makes a process of a job record itself: the job's folder.
FOLDER = "DDT_JOB_FOLDER"
#: If it is ``1``, branches are observed also where that slows the user's code.
BRANCHES = "DDT_JOB_BRANCHES"
STARTED, ENDED, FAILED = ".rank", ".end", ".failed"
#: Longer files are not read: what these files hold is small.
_LONGEST = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStarted(Message):
    """A process of a job has begun to form its process group, and is a rank from now on.

    Attributes
    ----------
    rank, world_size
        As its launcher or its code passed them; None if they are not known.
    host, pid, born_s
        The process, and when it started, in seconds since the epoch.
    generation
        How often torchrun had restarted the ranks before.
    job
        What distinguishes this job from others that record to the same folder.
    launcher
        What started it.
    backend
        As for ``init_process_group``.
    script, arguments, directory
        The main program, its arguments, and the working directory.
    socket
        The unix socket at which its monitor answers; empty if there is none.
    started_s, wall_s
        The same moment on the machine's monotonic clock and since the epoch.
    torch_version, missing_features
        See `RankReady`.
    branches
        Whether branches are observed.
    """

    rank: int | None
    world_size: int | None
    host: str
    pid: int
    born_s: float
    generation: int = 0
    job: str = ""
    launcher: str = ""
    backend: str = ""
    script: str = ""
    arguments: tuple[str, ...] = ()
    directory: str = ""
    socket: str = ""
    started_s: float = 0.0
    wall_s: float = 0.0
    torch_version: str = ""
    missing_features: tuple[MissingFeature, ...] = ()
    branches: bool = False


def write(path: Path, message: Message) -> None:
    """Write a message to a file, which appears only when it is complete."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    unfinished.write_bytes(encode(Envelope(message)))
    unfinished.replace(path)


def note_failure(folder: Path, error: BaseException) -> None:
    """Note why this process is not recorded."""
    with contextlib.suppress(BaseException):
        file = folder / f"{socket.gethostname()}-{os.getpid()}{FAILED}"
        file.write_text(f"{type(error).__name__}: {error}\n")


def read(path: Path) -> Message:
    """Read a message.

    Raises
    ------
    OSError
        If the file cannot be read.
    FormatError
        If it holds something else, or was written by another version.
    """
    with path.open("rb") as opened:
        envelope, _ = decode(opened.read(_LONGEST))
    return envelope.message
