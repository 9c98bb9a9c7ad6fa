"""The files in the folder of a recorded job: what each rank's process writes there, and when.

A rank's files begin with the name of its host and its process id. Its number is inside, since a job
may restart its ranks, and a process may form a group before a launcher has numbered it::

    HOST-PID.rank      `RankStarted`, as soon as the rank forms its process group
    HOST-PID.calls     the log of its calls, see `ring`
    HOST-PID.branches  which way it went through the user's code, see `branch_ring`
    HOST-PID.threads   the collectives that other threads than the main one entered
    HOST-PID.crash     what faulthandler writes when a signal ends the process
    HOST-PID.end       `CellEnded`, when the process ends by itself
    HOST-PID.failure   `CellEnded`, when an exception left a call; the rank may catch it and go on
    HOST-PID.exit      the status with which it left by ``os._exit``, unless that is 0
    HOST-PID.gone      `RankGone`, by the watcher, which saw that the process had ended
    HOST-PID.answers   `RankAnswers`, by the watcher of its host, for readers on other hosts
    HOST-PID.inputs    what the rank has received, if that is kept; see `rank_inputs`
    HOST-PID.build     `Build`, while the process builds an extension or waits for one; it need
                       not be a rank yet
    HOST-PID.failed    why the process is not recorded

Of a job on several hosts, the folder also holds::

    HOST.watched       its watcher renews the time of this file every few seconds
    question           `Question`, by a reader that needs fresh answers of ranks of other hosts
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..model import codec
from ..model.rank import WaitsFor
from ..model.torch_features import MissingFeature
from .messages import BranchValues, Envelope, Message, MonitorStatus, decode, encode
from .records import FlightEntry

#: The variable that makes a process of a job record itself: the job's folder.
FOLDER = "DDT_JOB_FOLDER"
#: If it is ``1``, branches are observed also where that slows the user's code.
BRANCHES = "DDT_JOB_BRANCHES"
#: How many GPUs each process simulates.
SIMULATED = "DDT_JOB_SIMULATED_GPUS"
STARTED, ENDED, FAILED = ".rank", ".end", ".failed"
ANSWERS, WATCHED, QUESTION = ".answers", ".watched", "question"
#: The variables in which launchers pass a rank and the number of ranks, and the launcher that sets
#: the first one.
NUMBERS = (
    ("RANK", "WORLD_SIZE", ""),
    ("HOROVOD_RANK", "HOROVOD_SIZE", "horovodrun"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun"),
    ("PMI_RANK", "PMI_SIZE", "mpiexec"),
    ("SLURM_PROCID", "SLURM_NTASKS", "srun"),
)
#: The launcher whose processes have a variable of its own, and no number of a rank there.
RAY, RAY_VARIABLE = "ray", "RAY_RAYLET_PID"
#: The variables in which batch systems pass the job's id.
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
#: Longer files are not read: what these files hold is small.
_LONGEST = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStarted(Message):
    """A process of a job has begun to form its process group, and is a rank from now on.

    A worker of TensorFlow makes its strategy instead, and a rank of Horovod calls ``hvd.init()``.

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
    allocation
        See `allocation`.
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
    simulated_gpus
        How many GPUs the process simulates.
    framework
        The framework whose rank it is, by its name in `model.frameworks`; empty for a rank of
        ``torch.distributed``.
    errors, errors_from
        The file to which the user's own faulthandler writes when a signal ends the process, and how
        long it was; empty if faulthandler writes to the job's folder, or if that is not known.
    """

    rank: int | None
    world_size: int | None
    host: str
    pid: int
    born_s: float
    generation: int = 0
    job: str = ""
    allocation: str = ""
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
    simulated_gpus: int = 0
    framework: str = ""
    errors: str = ""
    errors_from: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGone(Message):
    """The process of a rank ended without a message of its own.

    Attributes
    ----------
    exit_status
        Its exit code, or the negative number of the signal that ended it.
    ended_s
        When that was seen, on the machine's monotonic clock.
    """

    exit_status: int
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Build(Message):
    """A process builds an extension of PyTorch, or waits for the lock of such a build.

    Attributes
    ----------
    pid
        Its process id.
    waits_for, file, held_by
        As in `Activity`.
    """

    pid: int
    waits_for: WaitsFor
    file: str
    held_by: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Message):
    """A reader asks the watchers of all hosts what their ranks do now.

    Attributes
    ----------
    name
        No other question in the folder has this name.
    """

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswers(Message):
    """What the monitor of a rank has answered to the watcher of its host.

    Attributes
    ----------
    question
        The question that was answered last; empty if none was.
    at_s
        When the watcher wrote this, on the monotonic clock of its machine.
    status
        The monitor's last answer; None if the rank does not wait and no question was answered.
    waits_group, waits_number, waits_since_s
        The Flight Recorder's entry in which the rank is blocked inside a library, and since when;
        None if it is not blocked there.
    cpu_share
        As in `RankRun`.
    silent_s, stopped
        As in `ObservedRank`.
    flight
        The latest entries of the Flight Recorder; all that are known, with their lines, after a
        question.
    branches
        Values of conditions, after a question.
    """

    question: str
    at_s: float
    status: MonitorStatus | None = None
    waits_group: str | None = None
    waits_number: int | None = None
    waits_since_s: float | None = None
    cpu_share: float | None = None
    silent_s: float = 0.0
    stopped: bool = False
    flight: tuple[FlightEntry, ...] = ()
    branches: BranchValues | None = None


def allocation(environment: Mapping[str, str]) -> str:
    """The batch system's job to which a process belongs, as ``NAME=ID``; empty if none is known.

    It is the same on all hosts. A job that Slurm has put back in its queue is another one then; the
    parts of a heterogeneous job of Slurm have ids of their own, which say nothing.
    """
    name = next((name for name in _ALLOCATIONS if environment.get(name)), "")
    if not name or "SLURM_HET_SIZE" in environment:
        return ""
    restarts = environment.get("SLURM_RESTART_COUNT", "")
    return f"{name}={environment[name]}" + (f" restart {restarts}" if restarts else "")


def write(path: Path, message: Message) -> None:
    """Write a message to a file, which appears only when it is complete."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    unfinished.write_bytes(encode(Envelope(message)))
    unfinished.replace(path)


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
        envelope, _ = decode(opened.read(_LONGEST), lambda data: codec.parse(data.decode()))
    return envelope.message
