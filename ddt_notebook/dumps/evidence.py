"""What is known of a job that ran elsewhere, from several sources, as one `Snapshot`."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..formatting import ranks_text
from ..model import Cell, Position, RankError, RankReport, Snapshot, SourceFile
from ..model.frameworks import waits_in
from ..model.rank import Activity
from ..model.snapshot import Outcome
from ..model.user_code import is_user_code, users_line
from .columns import Columns
from .snapshot import snapshot_of
from .stacks import Stack

#: The number of source files that a snapshot gets, and the most bytes of each.
_FILES, _FILE_BYTES = 32, 1 << 20


@dataclass(frozen=True, slots=True)
class Ending:
    """How the process of a rank ended.

    Attributes
    ----------
    code, signal
        Exit code or signal; one of the two is set.
    first
        Whether it ended before the others, so that its end is not a consequence.
    text
        What faulthandler printed.
    """

    code: int | None = None
    signal: int | None = None
    first: bool = False
    text: str = ""


@dataclass(slots=True)
class Evidence:
    """What is known of a job.

    Attributes
    ----------
    dumps
        The ranks' Flight Recorders.
    stacks
        The stack of each rank's main thread, outermost first.
    errors
        The exception that left each rank's script.
    endings
        How processes of ranks ended.
    pids
        Process ids, if they are known.
    cpu_shares
        Processor time of ranks divided by the time that passed, if it was measured.
    blocked_s
        For how many seconds a rank has been in the call in which it is blocked, if it is known.
    world_size
        Number of ranks; 0 if no source says it.
    moves
        Whether ranks were seen to go on, so that none of their waits is a hang.
    local
        Whether the job runs on this machine, so that its files are here.
    notes
        What the reader should know: which files were used and which were not.
    """

    dumps: Sequence[Columns] = ()
    stacks: Mapping[int, Stack] = field(default_factory=dict)
    errors: Mapping[int, RankError] = field(default_factory=dict)
    endings: Mapping[int, Ending] = field(default_factory=dict)
    pids: Mapping[int, int] = field(default_factory=dict)
    cpu_shares: Mapping[int, float] = field(default_factory=dict)
    blocked_s: Mapping[int, float] = field(default_factory=dict)
    world_size: int = 0
    moves: bool = False
    local: bool = False
    notes: Sequence[str] = ()

    def snapshot(self) -> Snapshot:
        """All of it in one snapshot, whose ``origin`` is ``"dumps"``."""
        if self.dumps:
            recorded = snapshot_of(self.dumps)
        else:
            recorded = Snapshot(cell=Cell(number=0, source=""), origin="dumps", backend="")
        endings, notes = self._own_endings()
        known = {report.rank: report for report in recorded.ranks}
        seen = known.keys() | self.stacks.keys() | self.errors.keys() | endings.keys()
        reports = tuple(
            self._report(rank, known.get(rank), endings.get(rank)) for rank in sorted(seen)
        )
        world = max(recorded.world_size, self.world_size, 1 + max(seen, default=0))
        failed = any(report.state in ("raised", "died") for report in reports)
        # a rank that runs does not hang; others have to wait for it
        stands = any(
            report.state == "blocked" or (report.state == "running" and waits_in(report.stack))
            for report in reports
        )
        outcome: Outcome = "failed" if failed else "ok"
        if self.moves:
            reports = tuple(replace(r, state="recorded", blocked_in=None) for r in reports)
        elif stands or recorded.outcome == "hung":
            outcome = "hung"
        return replace(
            recorded,
            ranks=reports,
            world_size=world,
            outcome=outcome,
            files=_sources(reports) if self.local else (),
            notes=(*self.notes, *recorded.notes, *notes),
        )

    def _own_endings(self) -> tuple[dict[int, Ending], list[str]]:
        """The endings without those that a launcher or a person caused, and a note on these.

        A launcher ends the other ranks after the first failure, with SIGTERM and later SIGKILL.
        Where every rank ended by SIGKILL, somebody ended a job that may have hung.
        """
        killed = {rank for rank, end in self.endings.items() if end.signal == signal.SIGKILL}
        ended = {rank for rank, end in self.endings.items() if end.signal == signal.SIGTERM}
        known = {dump.rank for dump in self.dumps} or set(self.stacks) or set(self.endings)
        others = self.endings.keys() - killed - ended
        if len(known) > 1 and known <= killed:
            note = "every rank was ended by SIGKILL: what they did before is shown"
            return {}, [note]
        # one that was killed is the cause, unless another rank failed by itself
        if any(self.endings[rank].first for rank in others):
            ended |= killed
        note = f"{ranks_text(ended)} ended by the launcher's signal, as a consequence"
        own = {rank: end for rank, end in self.endings.items() if rank not in ended}
        return own, [note] if ended else []

    def _report(self, rank: int, report: RankReport | None, ending: Ending | None) -> RankReport:
        report = report or RankReport(rank=rank, state="recorded")
        stack, error = self.stacks.get(rank, ()), self.errors.get(rank)
        if stack:
            report = _with_stack(report, stack)
        if rank in self.cpu_shares and report.state == "running":
            report = replace(report, activity=Activity(cpu_share=self.cpu_shares[rank]))
        if rank in self.pids:
            report = replace(report, pid=self.pids[rank])
        if report.state == "blocked":
            report = replace(report, blocked_s=self.blocked_s.get(rank))
        if error is not None:
            return replace(report, state="raised", error=error, blocked_in=None)
        if ending is not None and (ending.signal is not None or ending.code):
            return replace(
                report,
                state="died",
                blocked_in=None,
                exit_signal=ending.signal,
                exit_code=ending.code,
                crash_text=ending.text,
            )
        return report


def _with_stack(report: RankReport, stack: Stack) -> RankReport:
    """The report of a rank whose stack was seen after its recorder was read."""
    line = users_line(stack)
    if report.state != "blocked":
        return replace(report, state="running", stack=stack, position=line)
    calls = tuple(
        replace(call, where=line) if call.index == report.blocked_in and not call.where else call
        for call in report.calls
    )
    return replace(report, stack=stack, position=report.position or line, calls=calls)


def _sources(reports: Sequence[RankReport]) -> tuple[SourceFile, ...]:
    """The user's files that stacks and calls name, where they exist on this machine, too."""
    found: dict[str, SourceFile] = {}
    for name in _named(reports):
        if name in found or len(found) >= _FILES or not is_user_code(name):
            continue
        path = Path(name)
        try:
            if not path.is_absolute() or path.suffix != ".py" or not path.is_file():
                continue
            if path.stat().st_size > _FILE_BYTES:
                continue
            found[name] = SourceFile(path=name, source=path.read_text("utf-8", "replace"))
        except OSError:
            continue
    return tuple(found.values())


def _named(reports: Sequence[RankReport]) -> dict[str, None]:
    """The files that positions name, each once; those where ranks stand come first."""
    where: list[Position | None] = [report.position for report in reports]
    where += [frame for report in reports for frame in report.stack]
    where += [report.error.where for report in reports if report.error is not None]
    where += {call.where for report in reports for call in report.calls[-2:]}
    return dict.fromkeys(one.file for one in where if one is not None)
