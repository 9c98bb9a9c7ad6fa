"""Rules about extensions that PyTorch builds when they are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, RankReport
from ddt_notebook.model.finding import Values

#: A rank waits in here while the lock file of an extension exists.
_WAITS = ("torch/utils/file_baton.py", "wait")
#: The functions in which a rank builds, or loads what was built.
_BUILDS = frozenset({"_write_ninja_file_and_build_library", "_run_ninja_build"})


def lock_left_over(context: Context) -> Iterator[Finding]:
    """Report ranks that wait for the lock of a build, while no rank of this run builds.

    A process of another run may build; on this host, it has the file open.
    """
    reports = context.reports
    if context.snapshot.outcome not in ("hung", "interrupted") or not reports:
        return
    waiting = [rank for rank, report in reports.items() if _is_in_baton(report)]
    builds = any(at.function in _BUILDS for report in reports.values() for at in report.stack)
    if not waiting or builds:
        return
    locks = [_lock(reports[rank]) for rank in waiting]
    holder = next((held_by for _, held_by in locks if held_by is not None), None)
    file = next((file for file, _ in locks if file), "")
    facts = [Fact(kind="no-rank-builds")] if holder is None else []
    if file:
        values: Values = {"file": file}
        kind = "build-lock"
        if holder is not None:
            kind, values = "build-lock-open", {"file": file, "holder": holder}
        facts.append(Fact(kind=kind, ranks=tuple(waiting), values=values))
    yield conclude(
        "A.1",
        "waits-for-build-lock",
        cause="build-lock-left-over" if holder is None else "build-of-another-process",
        ranks=waiting,
        places=context.places(waiting),
        facts=facts,
        confidence="likely",
        case="named" if file and holder is None else "",
        slots={"lock": file},
    )


def _lock(report: RankReport) -> tuple[str, int | None]:
    """Return the file for which a rank waits, and the process that has it open."""
    seen = report.activity
    if seen is None or seen.waits_for != "build lock":
        return "", None
    return seen.file, seen.held_by


def _is_in_baton(report: RankReport) -> bool:
    file, function = _WAITS
    return any(
        at.function == function and at.file.replace("\\", "/").endswith(file)
        for at in report.stack[-1:]
    )


RULES = (lock_left_over,)
