"""Rules about extensions that PyTorch builds when they are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, RankReport

#: A rank waits in here while the lock file of an extension exists.
_WAITS = ("torch/utils/file_baton.py", "wait")
#: The functions in which a rank builds, or loads what was built.
_BUILDS = frozenset({"_write_ninja_file_and_build_library", "_run_ninja_build"})


def lock_left_over(context: Context) -> Iterator[Finding]:
    """Report ranks that wait for the lock of a build, while no rank of this run builds.

    A process of another run may build.
    """
    reports = context.reports
    if context.snapshot.outcome not in ("hung", "interrupted") or not reports:
        return
    waiting = [rank for rank, report in reports.items() if _is_in_baton(report)]
    builds = any(at.function in _BUILDS for report in reports.values() for at in report.stack)
    if not waiting or builds:
        return
    yield conclude(
        "A.1",
        "waits-for-build-lock",
        cause="build-lock-left-over",
        ranks=waiting,
        places=context.places(waiting),
        facts=[Fact(kind="no-rank-builds")],
        confidence="likely",
    )


def _is_in_baton(report: RankReport) -> bool:
    file, function = _WAITS
    return any(
        at.function == function and at.file.replace("\\", "/").endswith(file)
        for at in report.stack[-1:]
    )


RULES = (lock_left_over,)
