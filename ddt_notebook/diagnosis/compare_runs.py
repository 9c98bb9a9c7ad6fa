"""Compares runs: before and after a change, and several ranks with a single one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ddt_notebook.model import Finding, RankReport, Report, Snapshot

Change = Literal["gone", "untried", "same", "other", "new", "well"]
Alone = Literal["also", "called", "otherwise", "endless", "several", "well"]
#: Matches a message or a file name of PyTorch's distributed library. The message counts, since an
#: error that C++ raises in ``backward`` has no frame of the library.
_LIBRARY = re.compile(r"torch[/.]distributed|nn[/.]parallel|DistributedDataParallel|process group")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The findings of a run compared with those of a later one.

    Attributes
    ----------
    change
        ``"gone"``: the later run has no findings. ``"untried"``: it has none, but it did not
        communicate or train as the earlier run did. ``"same"``: the later run has the first
        finding, too. ``"other"``: it has other findings. ``"new"``: only the later run has
        findings. ``"well"``: neither has.
    gone, left, new
        The findings of the earlier run only; those of both, as the later run has them; and those of
        the later run only.
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
    """Compare the diagnoses of two runs.

    Two findings are the same if they have the same symptom and cause; ranks and lines may differ.

    Parameters
    ----------
    before, after
        The diagnoses.
    runs
        The two runs. Without them the result is never ``"untried"``.
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
    """Return whether a run communicated and whether it trained; an empty cell does neither."""
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
    """A cell on a single rank compared with the same cell on several ranks.

    Attributes
    ----------
    verdict
        ``"also"``: the single rank has the same error, so the fault does not come from the
        distribution. ``"called"``: it has the same error, and PyTorch's distributed library raised
        it. ``"several"``: the single rank finishes, so the fault needs several ranks.
        ``"otherwise"``: the single rank fails in another way, which decides nothing.
        ``"endless"``: the single rank did not end within the limit. ``"well"``: nothing failed on
        several ranks either.
    alone
        How the single rank failed; empty if it did not.
    several
        How the first of the several ranks ended whose end the session did not cause; empty if there
        is none.
    lacks
        The variable that is missing on the single rank but not on the several ranks.
    """

    verdict: Alone
    alone: str = ""
    several: str = ""
    lacks: str = ""


def compare_alone(several: Snapshot, report: Report, alone: Snapshot) -> SingleRank:
    """Compare a run on several ranks with a run of the same cell on a single rank.

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
        lacks = one.error.undefined_name if one.error is not None else ""
        return SingleRank("otherwise", _described(one), shown, lacks)
    return SingleRank("called" if _of_library(alike) else "also", _described(one), shown)


def _ended_themselves(snapshot: Snapshot, report: Report) -> list[RankReport]:
    """Return the ranks that raised or died by themselves, first those of the first finding."""
    blamed = set(report.findings[0].ranks) if report.findings else set()
    return sorted(
        (rank for rank in snapshot.ranks if _ending(rank) is not None),
        key=lambda rank: (rank.rank not in blamed, rank.rank),
    )


def _ending(rank: RankReport) -> tuple[object, ...] | None:
    """Return the error and its line, or the signal: equal for ranks that failed in the same way."""
    if rank.state == "died":
        return ("died", rank.exit_code, rank.exit_signal)
    error = rank.error
    if error is None or error.released:
        return None
    return (error.type, error.where.line if error.where else None)


def _of_library(rank: RankReport) -> bool:
    """Whether the distributed library raised the error or the message names it."""
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
