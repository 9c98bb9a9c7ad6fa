"""The line below a running cell: which ranks wait, and what the awaited ranks do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..formatting import agree, ranks_label
from ..model import RankReport
from ..model.rank import Activity, WaitsFor
from ..model.waits import Waiting
from . import safe, words

#: How many groups of awaited ranks are shown; the others are counted.
_SHOWN = 3
#: Longest path of a file, in characters, and of one that the user may have to delete.
_FILE, _LOCK_FILE = 40, 160


def parts(waiting: Waiting) -> list[str]:
    """``ranks 1, 2 have been waiting in barrier #3 for 4.2 s``, then what the awaited ranks do."""
    said = []
    if waiting.call is not None:
        op = safe.one_line(waiting.call.op, 60)
        number = f" #{waiting.call.sequence}" if waiting.call.sequence is not None else ""
        verb = agree(waiting.ranks, "has", "have")
        waited = words.duration(waiting.waited_s)
        said.append(
            f"{ranks_label(waiting.ranks)} {verb} been waiting in {op}{number} for {waited}"
        )
        if not waiting.awaited:
            known = waiting.call.members or waiting.call.kind != "collective"
            return [*said, "every member has entered it"] if known else said
    alike: dict[tuple[str, str, str], list[RankReport]] = defaultdict(list)
    for report in waiting.awaited:
        alike[_activity(report)].append(report)
    for (one, several, where), reports in list(alike.items())[:_SHOWN]:
        ranks = [report.rank for report in reports]
        does = agree(ranks, one, several)
        said.append(f"{ranks_label(ranks)} {does}{where}{_share(reports)}")
    rest = sum(len(reports) for reports in list(alike.values())[_SHOWN:])
    return [*said, f"and {words.count(rest, 'more rank')}"] if rest else said


_WAITED = {
    "lock": "a lock or another thread",
    "process": "a process that it started",
    "data": "data from a pipe or a socket",
}


def _activity(report: RankReport) -> tuple[str, str, str]:
    """What a rank does: the verb for one rank, the verb for several ranks, and the place."""
    place = report.position.place if report.position is not None else ""
    where = f" in {safe.one_line(place, 60)}" if place else ""
    if report.state == "silent":
        seen = f", last seen{where}" if where else ""
        return "is in a C call that holds its interpreter", "are in such C calls", seen
    if report.state == "blocked":
        return "waits, too,", "wait, too,", where
    if report.state != "running":
        return words.state(report), words.state(report, ranks=2), ""
    activity = report.activity
    if activity is None or activity.computes:
        return "is at work", "are at work", where
    file = f" {safe.middle(safe.one_line(activity.file), _FILE)}" if activity.file else " a file"
    match activity.waits_for:
        case "time":
            return "sleeps", "sleep", where
        case "file":
            return f"reads{file}", f"read{file}", where
        case "file lock":
            return f"waits for the lock of{file}", f"wait for the lock of{file}", where
        case "busy lock":
            return f"asks for the lock of{file}", f"ask for the lock of{file}", where
        case "missing file":
            there = ", which does not exist"
            return f"waits for the file{file}{there}", f"wait for the file{file}{there}", where
        case "build lock" | "build":
            return *_of_build(activity), where
        case "ended thread":
            one = "for a thread that an exception has ended"
            return f"waits {one}", f"wait {one}", where
        case waits_for if waits_for not in _WAITED:
            return "is", "are", where or " at work"
    what = _WAITED[activity.waits_for]
    return f"waits for {what}", f"wait for {what}", where


def of_process(pid: int, waits_for: WaitsFor, file: str, held_by: int | None) -> str:
    """What a process of a job does that builds an extension, or waits for one."""
    does, _ = _of_build(Activity(cpu_share=0.0, waits_for=waits_for, file=file, held_by=held_by))
    said = f"process {pid} {does}"
    if waits_for == "build":
        return f"{said} in {safe.middle(safe.one_line(file), _LOCK_FILE)}"
    if held_by is None:
        return f"{said}; delete that file if no process of another host builds"
    return said


def _of_build(activity: Activity) -> tuple[str, str]:
    if activity.waits_for == "build lock":
        holder = activity.held_by
        who = "no process here" if holder is None else f"process {holder}"
        lock = safe.middle(safe.one_line(activity.file), _LOCK_FILE)
        what = f"for the lock of a build, which {who} has open: {lock}"
        return f"waits {what}", f"wait {what}"
    what = "an extension of PyTorch"
    if activity.compiled is not None:
        done, files = activity.compiled
        what += f" ({done} of {words.count(files, 'file')} compiled)"
    return f"builds {what}", f"build {what}"


def _share(reports: Sequence[RankReport]) -> str:
    """``(82 % of a core)``: how much processor time ranks at work use on average."""
    shares = [
        report.activity.cpu_share
        for report in reports
        if report.activity is not None
        and (report.activity.computes or not report.activity.waits_for)
    ]
    if not shares:
        return ""
    mean = sum(shares) / len(shares)
    amount = f"{mean:.1f} cores" if mean >= 1.5 else f"{round(100 * mean)} % of a core"
    return f" ({amount}{' each' if len(reports) > 1 else ''})"
