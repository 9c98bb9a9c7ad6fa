"""Runs one rank of a recorded job again, without the others."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal
from weakref import WeakSet

from ..host.listeners import RunListener
from ..host.run_result import RunResult
from ..host.session import Session
from ..model import DdtError, FormatError, RankError
from ..model.replay import ReplayOutcome
from ..wire import job_files
from ..wire.messages import CellEnded
from ..wire.rank_inputs import INPUTS, InputsFile

#: How the end of a replay compares with that of the recorded rank: the same exception at the same
#: line, both ended well, both stood in the same call; or something else.
Agreement = Literal["same error", "finished", "stood", "departed", "record ended", "other end"]


class CannotReplay(DdtError, ValueError):
    """There is no record from which a rank can be replayed here."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay beside what the job recorded.

    Attributes
    ----------
    run
        The run of the script in its session.
    session
        The session of one rank in which the variables are alive.
    outcome
        How far the replay got.
    recorded_error
        The exception that ended the recorded rank; None if none did or it is not known.
    ended
        Whether the recorded rank noted its end.
    changed
        Whether the script has changed since.
    script
        Its path.
    """

    run: RunResult
    session: Session
    outcome: ReplayOutcome
    recorded_error: RankError | None
    ended: bool
    changed: bool
    script: str

    @property
    def error(self) -> RankError | None:
        """The exception that ended the replay; None if it ended otherwise."""
        return self.run.errors.get(0) if self.outcome.end == "script" else None

    @property
    def agreement(self) -> Agreement:
        """How its end compares with that of the recorded rank."""
        outcome, before, now = self.outcome, self.recorded_error, self.error
        if outcome.departure is not None:
            return "departed"
        if outcome.end in ("limit", "not kept"):
            return "record ended"
        if outcome.end == "stood":
            return "stood"
        if before is None and now is None and self.ended and not self.run.errors:
            return "finished"
        return "same error" if _is_same(before, now, changed=self.changed) else "other end"


#: The sessions in which a rank was replayed.
_replays: WeakSet[Session] = WeakSet()


def is_replay(session: Session) -> bool:
    """Whether a session was started to replay a rank."""
    return session in _replays


def _is_same(one: RankError | None, other: RankError | None, *, changed: bool) -> bool:
    """Whether it is the same exception at the same line, which may have moved in its file."""
    if one is None or other is None or (one.type, one.message) != (other.type, other.message):
        return False
    if one.where is None or other.where is None:
        return one.where is other.where
    moved = (one.where.file, one.where.code) == (other.where.file, other.where.code)
    return one.where.is_same_line(other.where) or (changed and moved)


def replay(
    folder: Path,
    rank: int | None = None,
    *,
    listener: Callable[[Session], RunListener] | None = None,
) -> Replayed:
    """Run a rank of a recorded job again, in a session of one rank.

    Parameters
    ----------
    folder
        The job's folder.
    rank
        The rank; default: the only one whose inputs were kept.
    listener
        Makes what receives the output in this session.

    Raises
    ------
    CannotReplay
        If the folder, the script or this torch does not serve for it.
    SessionError
        If the rank cannot be started.
    """
    file = inputs_of(folder, rank)
    script = Path(file.begun.script)
    changed = hashlib.sha256(script.read_bytes()).hexdigest() != file.begun.source
    error, ended = _end_of(file.path)
    session = Session(1, group=False)
    _replays.add(session)
    try:
        run = session.run_script(
            script,
            file.begun.arguments,
            keep_names=True,
            replay=str(file.path.absolute()),
            listener=listener(session) if listener is not None else None,
        )
    except BaseException:
        session.stop()
        raise
    if run.replayed is None:  # the process died
        outcome = ReplayOutcome(
            rank=file.begun.rank,
            world_size=file.begun.world_size,
            served=0,
            recorded=len(file.calls),
        )
    else:
        outcome = run.replayed
    return Replayed(run, session, outcome, error, ended, changed, str(script))


def inputs_of(folder: Path, rank: int | None) -> InputsFile:
    """The record of a rank, which can be replayed here.

    Raises
    ------
    CannotReplay
        If there is none.
    """
    if not folder.is_dir():
        raise CannotReplay(f"{folder} is not the folder of a recorded job")
    known: dict[int, InputsFile] = {}
    files = sorted(folder.glob(f"*{INPUTS}"), key=lambda one: one.stat().st_mtime)
    for path in files:  # of a rank that was restarted, the last one counts
        try:
            file = InputsFile(path)
        except (FormatError, OSError) as error:
            raise CannotReplay(f"{path.name} cannot be read: {error}") from error
        known[file.begun.rank] = file
    if not known:
        raise CannotReplay(
            f"{folder} holds no inputs of a rank: record the job again with "
            "ddt-notebook run --record-inputs RANK -- COMMAND"
        )
    if rank is None and len(known) > 1:
        raise CannotReplay(f"which rank? The inputs of {_listed(known)} were kept")
    if rank is not None and rank not in known:
        raise CannotReplay(
            f"the inputs of rank {rank} were not kept, but those of {_listed(known)}"
        )
    found = known[rank] if rank is not None else next(iter(known.values()))
    _check(found)
    return found


def _listed(known: dict[int, InputsFile]) -> str:
    return ", ".join(f"rank {rank}" for rank in sorted(known))


def _check(file: InputsFile) -> None:
    begun = file.begun
    if begun.problem:
        raise CannotReplay(f"rank {begun.rank} cannot be replayed: {begun.problem}")
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "none"
    if torch.partition("+")[0] != begun.torch_version.partition("+")[0]:
        raise CannotReplay(
            f"the job ran with torch {begun.torch_version} and this is torch {torch}: replay it "
            "with the version of the job"
        )
    minor = platform.python_version().rpartition(".")[0]
    if minor != begun.python_version.rpartition(".")[0]:
        raise CannotReplay(
            f"the job ran with Python {begun.python_version} and this is Python "
            f"{platform.python_version()}: replay it with the version of the job"
        )
    if not Path(begun.script).is_file():
        raise CannotReplay(f"the script of the job is not here: {begun.script}")
    if not Path(begun.directory).is_dir():
        raise CannotReplay(f"the folder in which the job ran is not here: {begun.directory}")


def _end_of(path: Path) -> tuple[RankError | None, bool]:
    """The exception with which the recorded rank ended, and whether it noted its end."""
    for ending in (job_files.ENDED, ".failure"):
        try:
            message = job_files.read(path.with_suffix(ending))
        except (OSError, FormatError):
            continue
        if isinstance(message, CellEnded) and (message.error is not None or ending != ".failure"):
            return message.error, True
    return None, False
