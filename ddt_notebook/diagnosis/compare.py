"""Compares runs: is the symptom gone after a change, and does one rank alone show it, too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ddt_notebook.model import Finding, RankReport, Report, Snapshot

Change = Literal["gone", "untried", "same", "other", "new", "well"]
Alone = Literal["also", "called", "otherwise", "endless", "several", "well"]
_UNDEFINED = re.compile(r"name '(\w+)' is not defined")
#: What names the distributed library in an error or on the way to it.
_LIBRARY = re.compile(r"torch[/.]distributed|nn[/.]parallel|DistributedDataParallel|process group")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of the findings of a run in a later one.

    Attributes
    ----------
    change
        ``"gone"``: the later run is well. ``"untried"``: it is, but it did nothing of the kind in
        which the earlier one had failed. ``"same"``: the first finding is still there.
        ``"other"``: it is gone, and something else was found. ``"new"``: the earlier run was well,
        the later one is not. ``"well"``: both are.
    gone, left, new
        Findings of the earlier run that the later one does not have; those that it has, as it has
        them; and those that only the later one has.
    """

    change: Change
    gone: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    new: tuple[Finding, ...] = ()


def compare(
    before: Report,
    after: Report,
    runs: tuple[Snapshot, Snapshot] | None = None,
) -> Comparison:
    """Say what a change did to the findings of a run.

    Two findings are the same if they have the same symptom and cause; ranks and lines may differ.

    Parameters
    ----------
    before, after
        The diagnoses.
    runs
        What they were drawn from: without it, it is not seen whether the later run did anything.
    """
    earlier, later = _by_kind(before), _by_kind(after)
    gone = tuple(f for kind, f in earlier.items() if kind not in later)
    left = tuple(f for kind, f in later.items() if kind in earlier)
    new = tuple(f for kind, f in later.items() if kind not in earlier)
    if after.ok:
        change: Change = "well" if before.ok else "gone"
        if change == "gone" and runs is not None and _did(runs[0]) - _did(runs[1]):
            change = "untried"
    elif before.ok:
        change = "new"
    elif not before.findings:
        change = "other" if after.findings else "same"
    else:
        change = "same" if _kind(before.findings[0]) in later else "other"
    return Comparison(change, gone, left, new)


def _did(snapshot: Snapshot) -> set[str]:
    """What a run did that a cell left empty does not."""
    calls = any(call.kind != "setup" for report in snapshot.ranks for call in report.calls)
    steps = any(one.steps for rank in snapshot.training for one in rank.optimizers)
    did = {"communicated": calls, "trained": steps}
    return {what for what, done in did.items() if done}


def _by_kind(report: Report) -> dict[tuple[str, str | None], Finding]:
    found: dict[tuple[str, str | None], Finding] = {}
    for finding in report.findings:
        found.setdefault(_kind(finding), finding)
    return found


def _kind(finding: Finding) -> tuple[str, str | None]:
    return (finding.symptom, finding.cause)


@dataclass(frozen=True, slots=True)
class SingleRank:
    """What a cell did on one rank, beside what it did on several.

    Attributes
    ----------
    verdict
        ``"also"``: the same error, so the fault is not one of distribution. ``"called"``: the same
        error, of the distributed library itself. ``"several"``: one rank is well, so it shows with
        several only. ``"otherwise"``: one rank fails in another way, which says nothing.
        ``"endless"``: one rank did not end in the time given. ``"well"``: nothing had failed on
        several ranks either.
    alone, several
        How the one rank ended, and the first of the several that ended by themselves; empty if none
        did.
    lacks
        The variable that the one rank did not have, and the several had.
    """

    verdict: Alone
    alone: str = ""
    several: str = ""
    lacks: str = ""


def compare_alone(several: Snapshot, report: Report, alone: Snapshot) -> SingleRank:
    """Say whether what went wrong on several ranks goes wrong on one.

    Parameters
    ----------
    several, report
        The run on several ranks, and its diagnosis.
    alone
        The same cell on one rank.
    """
    one = alone.ranks[0]
    ended = _ended_themselves(several, report)
    alike = next((rank for rank in ended if _ending(rank) == _ending(one)), None)
    shown = next((_described(rank) for rank in (alike, *ended) if rank is not None), "")
    if not shown and several.outcome == "ok":
        shown = "finished the cell"
    if alone.outcome == "interrupted":
        return SingleRank("endless", "", shown)
    if alone.outcome == "ok":
        return SingleRank("well" if report.ok else "several", "", shown)
    if alike is None:
        return SingleRank("otherwise", _described(one), shown, _lacks(one))
    return SingleRank("called" if _of_library(alike) else "also", _described(one), shown)


def _lacks(rank: RankReport) -> str:
    if rank.error is None or rank.error.type != "NameError":
        return ""
    missing = _UNDEFINED.match(rank.error.message)
    return missing[1] if missing is not None else ""


def _ended_themselves(snapshot: Snapshot, report: Report) -> list[RankReport]:
    """Ranks that raised or died, not because the session ended their wait; the blamed first."""
    blamed = set(report.findings[0].ranks) if report.findings else set()
    return sorted(
        (rank for rank in snapshot.ranks if _ending(rank) is not None),
        key=lambda rank: (rank.rank not in blamed, rank.rank),
    )


def _ending(rank: RankReport) -> tuple[object, ...] | None:
    """What is the same when a rank ends in the same way: the error and its line, the signal."""
    if rank.state == "died":
        return ("died", rank.exit_code, rank.exit_signal)
    error = rank.error
    if error is None or error.released:
        return None
    return (error.type, error.where.line if error.where else None)


def _of_library(rank: RankReport) -> bool:
    """Whether the distributed library raised it, or is named by it."""
    error = rank.error
    return error is not None and (
        error.call is not None
        or _LIBRARY.search(error.message) is not None
        or any(_LIBRARY.search(frame.file) for frame in error.frames)
    )


def _described(rank: RankReport) -> str:
    if rank.error is None:
        signal, code = rank.exit_signal, rank.exit_code
        return f"died of signal {signal}" if signal is not None else f"exited with code {code}"
    place = f" at {rank.error.where.label}" if rank.error.where else ""
    message = next(iter(rank.error.message.splitlines()), "")
    return f"{rank.error.type}: {message}{place}" if message else f"{rank.error.type}{place}"
