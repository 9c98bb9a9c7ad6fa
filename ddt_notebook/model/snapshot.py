"""The observations of one run on N ranks, in one object that can be saved and sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from . import codec
from .agreements import RankAgreements
from .branches import RankBranches
from .checkpoints import RankCheckpoints
from .collective import Call
from .exchanged import RankExchanged
from .memory import RankMemory
from .parity import RankParity
from .partition import ModelShard, RankPartition
from .performance import RankPerformance
from .placement import RankPlacement
from .position import Position
from .rank import RankReport
from .rank_tables import UNKNOWN, TablesReader, to_tables
from .running import AskedRunning
from .shown import RankShown
from .tensorflow import RankTensorFlow
from .timeline import RankTimeline
from .torch_features import LIBRARY_COLLECTIVES, MissingFeature
from .training import RankTraining

FORMAT = 3
#: From this format on, a call whose members are those of `Snapshot.groups` does not repeat them:
#: with 512 ranks, they were nine tenths of a file.
_MEMBERS_BY_GROUP = 2
#: From this format on, the reports of the ranks are the tables of `rank_tables`.
_TABLES = 3
#: The line of a loop in older files: ``"cell[3] line 5"``.
_OLD_LINE = re.compile(r"(.+) line (\d+)")

#: Backends that put a collective into a stream of the device and return: of NVIDIA and AMD, Intel
#: and Huawei.
_ON_DEVICES = ("nccl", "xccl", "hccl")

Outcome = Literal["ok", "failed", "hung", "interrupted"]
NotebookName = Literal["variable", "module"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Source of a cell or a script that ran.

    Attributes
    ----------
    number
        The number in ``cell[14]``.
    source
        As the user typed it, without the line of the magic.
    first_line
        Line number of the first line of ``source``: 2 below a cell magic, else 1.
    file, arguments
        Absolute path and arguments of a script; empty for a cell.
    """

    number: int
    source: str
    first_line: int = 1
    file: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``cell[14]``, or the path of the script: the same as in `Position.file`."""
        return self.file or f"cell[{self.number}]"

    @property
    def title(self) -> str:
        """``cell[14]``, or the name of the script."""
        return self.file.rsplit("/", 1)[-1] or self.name

    def line(self, number: int) -> str:
        """The text of a line by the number that is shown for it, empty if there is none."""
        lines = self.source.splitlines()
        at = number - self.first_line
        return lines[at] if 0 <= at < len(lines) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file of the user's that a rank imported.

    Attributes
    ----------
    path
        The same as in `Position.file`.
    source
        Its text when a rank first ran it.
    changed
        Whether the file has been changed since.
    """

    path: str
    source: str
    changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything observed during one run. Immutable, and equal after a round trip through JSON.

    Attributes
    ----------
    cell
        The cell that ran.
    earlier_cells
        Earlier cells of the session, so that a line in a function defined there can be shown.
    trained_before
        Whether an earlier cell ran a backward pass, after the last start of the ranks.
    files
        The user's files that the ranks ran, in a bounded number: those that positions name first.
    outcome
        ``"ok"``: every rank finished. ``"failed"``: a rank raised or died. ``"hung"``: the session
        declared a hang, or the time limit passed. ``"interrupted"``: the user stopped it.
    ranks
        One report for each rank of the session, ascending.
    groups
        Global ranks of each observed process group, by name; the default group is ``"0"``.
    world_size, backend, device
        As in the session; ``backend`` is empty if the session was started without a group.
    has_group
        False for a session whose cells form the group themselves.
    framework
        The framework for which the session prepared its ranks, such as ``"tensorflow"``.
    timeout_s, hang_after_s
        The session's limits, in seconds; ``timeout_s`` is that of PyTorch if the session has none.
    duration_s
        How long the run took until it was ended.
    origin
        ``"session"``: the session's own ranks. ``"job"``: a job whose ranks recorded themselves.
        ``"dumps"``: files that a job's Flight Recorder wrote; they give no times, since the clocks
        of several hosts do not agree.
    created
        Wall-clock time, ISO 8601 with offset.
    torch_version
        Version of torch in the ranks.
    missing_features
        Features that could not be observed, since the ranks' PyTorch lacks a private name.
    notebook_names
        Names that are not defined on ranks but are in the notebook, and what they are there.
    notes
        Observations of the session that belong to no rank ("the call log of rank 1 overflowed").
    placement, memory
        What was observed on the ranks at the end of a run with ``trace=True``, or on request;
        empty if that was not asked for.
    partition, parity, training
        What was observed at the end of a run in which something trained or a loader was used.
    performance
        How each rank's main thread spent its time, unless the run was very short.
    checkpoints
        Files that ranks saved and loaded.
    shown
        Values of evaluations that ranks wrote; empty if there was no evaluation.
    exchanged
        What the user's own collectives were given, and what became of their results; empty if no
        such call was examined.
    tensorflow
        The data that workers of TensorFlow distributed and the updates that they made, after a run
        in a session that prepared them.
    agreements
        What a framework gave the ranks that has to be equal on some of them.
    timeline
        What each rank did at what time; only after a run with ``trace=True``.
    branches
        Which ways the ranks went through the user's code, after a run that failed or hung. Empty if
        it was not observed: Python 3.11 observes it with ``trace=True`` only, but for callbacks.
    running
        If the placement, memory, partition and parity are those of ranks that still ran: how these
        were asked.
    """

    cell: Cell
    outcome: Outcome = "ok"
    ranks: tuple[RankReport, ...] = ()
    earlier_cells: tuple[Cell, ...] = ()
    trained_before: bool = False
    files: tuple[SourceFile, ...] = ()
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    world_size: int = 1
    backend: str = "gloo"
    device: str = "cpu"
    has_group: bool = True
    framework: str = ""
    timeout_s: float = 10.0
    hang_after_s: float = 2.0
    duration_s: float = 0.0
    origin: Literal["session", "job", "dumps"] = "session"
    created: str = ""
    torch_version: str = ""
    missing_features: tuple[MissingFeature, ...] = ()
    notebook_names: dict[str, NotebookName] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    placement: tuple[RankPlacement, ...] = ()
    partition: tuple[RankPartition, ...] = ()
    parity: tuple[RankParity, ...] = ()
    memory: tuple[RankMemory, ...] = ()
    timeline: tuple[RankTimeline, ...] = ()
    training: tuple[RankTraining, ...] = ()
    performance: tuple[RankPerformance, ...] = ()
    checkpoints: tuple[RankCheckpoints, ...] = ()
    shown: tuple[RankShown, ...] = ()
    exchanged: tuple[RankExchanged, ...] = ()
    tensorflow: tuple[RankTensorFlow, ...] = ()
    agreements: tuple[RankAgreements, ...] = ()
    branches: tuple[RankBranches, ...] = ()
    running: AskedRunning | None = None

    @property
    def calls_only_issue(self) -> bool:
        """Whether a collective's call may return before the collective has happened, as on GPUs.

        The times of such calls are those of the hosts. A job that names no backend uses NCCL for
        the tensors that are on a GPU.
        """
        if self.origin == "dumps":  # the Flight Recorder knows what has completed
            return False
        default = not self.backend and self.origin == "job" and "+cu" in self.torch_version
        return default or any(name in self.backend for name in _ON_DEVICES)

    @property
    def hosts(self) -> dict[int, str]:
        """The host of each rank; empty if they ran on one, or if that is not known."""
        return {report.rank: report.host for report in self.ranks if report.host}

    @property
    def shards(self) -> dict[int, tuple[ModelShard, ...]]:
        """The shards of models on each rank that holds one."""
        return {one.rank: one.shards for one in self.partition if one.shards}

    def rank(self, number: int) -> RankReport:
        """The report of one rank."""
        return next(report for report in self.ranks if report.rank == number)

    def code_at(self, place: Position) -> str:
        """The text of a line of any cell or file of the run, empty if it is not known."""
        for known in (self.cell, *self.earlier_cells):
            if known.name == place.file:
                return known.line(place.line)
        for file in self.files:
            if file.path == place.file:
                lines = file.source.splitlines()
                return lines[place.line - 1] if 0 < place.line <= len(lines) else ""
        return ""

    def source_line(self, cell: int, line: int) -> str:
        """A line of any cell of the session, empty if it is not known."""
        for known in (self.cell, *self.earlier_cells):
            if known.number == cell:
                return known.line(line)
        return ""

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``json.dumps``."""
        return {
            "format": "ddt-snapshot",
            "version": FORMAT,
            **codec.to_plain(replace(self, ranks=())),
            **to_tables(self.ranks, self.groups),
        }

    @classmethod
    def from_json(cls, plain: Any) -> Snapshot:
        """The inverse of `to_json`.

        Raises
        ------
        FormatError
            If it is not a snapshot, or has a later format.
        """
        if not isinstance(plain, dict) or plain.get("format") != "ddt-snapshot":
            raise codec.FormatError("this is not a ddt_notebook snapshot")
        version = plain.get("version")
        if not isinstance(version, int) or version > FORMAT:
            raise codec.FormatError(
                f"this snapshot has format {version}, but this ddt_notebook reads up to {FORMAT}: "
                "upgrade ddt_notebook"
            )
        plain = _from_older_files(plain)
        if version >= _TABLES:
            tables = TablesReader(plain)
            short = codec.from_plain(cls, plain | {"ranks": tables.ranks})
            return replace(short, ranks=tables.with_calls(short.ranks, short.groups))
        short = codec.from_plain(cls, plain)
        if version < _MEMBERS_BY_GROUP:
            return short
        return replace(short, ranks=_with_members(short.ranks, short.groups))

    def save(self, path: str | Path) -> Path:
        """Write it to ``path`` (customary ending ``.ddt.json``) and return the path."""
        target = Path(path)
        target.write_text(json.dumps(self.to_json(), ensure_ascii=False), encoding="utf-8")
        return target

    @classmethod
    def load(cls, path: str | Path) -> Snapshot:
        """Read what `save` wrote.

        Raises
        ------
        FormatError
            If the file is not a snapshot.
        OSError
            If it cannot be read.
        """
        try:
            plain = codec.parse(Path(path).read_text(encoding="utf-8"))
        except (codec.FormatError, UnicodeDecodeError) as error:
            raise codec.FormatError(f"{path} is not a ddt_notebook snapshot: {error}") from error
        try:
            return cls.from_json(plain)
        except codec.FormatError as error:
            raise codec.FormatError(f"{path}: {error}") from error


def _with_members(
    reports: tuple[RankReport, ...], groups: Mapping[str, tuple[int, ...]]
) -> tuple[RankReport, ...]:
    """Reports of format 2, with the members of each call."""

    def whole(call: Call) -> Call:
        members = call.members or groups.get(call.group, ())
        return replace(call, members=() if members == UNKNOWN else members)

    return tuple(
        replace(
            report,
            calls=tuple(map(whole, report.calls)),
            joined=whole(report.joined) if report.joined is not None else None,
        )
        for report in reports
    )


def _from_older_files(plain: dict[str, Any]) -> dict[str, Any]:
    """Rename what files of earlier versions call otherwise."""
    if plain.get("flight_recorder") is False:
        old = MissingFeature(feature=LIBRARY_COLLECTIVES.id)
        plain = plain | {"missing_features": [codec.to_plain(old)]}
    if plain.get("partition"):
        plain = plain | {"partition": _with_lines(plain["partition"])}
    if isinstance(kinds := plain.get("call_kinds"), list):
        plain = plain | {"call_kinds": [_with_detail(kind) for kind in kinds]}
    return plain


def _with_detail(kind: Any) -> Any:
    """What a framework notes with a set-up call; it was stored as the reduce operation, too."""
    if not isinstance(kind, Mapping) or kind.get("kind") != "setup" or "reduce_op" not in kind:
        return kind
    return {"detail": kind["reduce_op"], **{k: v for k, v in kind.items() if k != "reduce_op"}}


def _with_lines(plain: Any) -> Any:
    """Replace each epoch's ``place``, a text, by its line, as `partition.Epoch` has it."""
    if isinstance(plain, list):
        return [_with_lines(one) for one in plain]
    if not isinstance(plain, Mapping):
        return plain
    found = {name: _with_lines(one) for name, one in plain.items()}
    line = _OLD_LINE.fullmatch(str(found.pop("place", "")))
    return found | {"where": {"file": line[1], "line": int(line[2])}} if line else found
