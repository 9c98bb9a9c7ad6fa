"""The pre-flight report: this machine, and the ranks of the active session if there is one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from ..host import active
from ..model.codec import FormatError
from ..model.preflight import Preflight
from ..views.preflight import PreflightView
from . import compare_machines, examine
from .variables import described

#: Ranks that a machine is checked for, without a session.
RANKS = 4


def doctor(
    ranks: int | None = None,
    *,
    form_groups: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> PreflightView:
    """Check what a job needs, before it runs.

    Versions that go together, backends that really form a group, environment variables, time-outs,
    host name, interfaces and ports, limits, memory and threads, modules that hide a package; and,
    with an active session, whether its ranks agree.

    Parameters
    ----------
    ranks
        How many ranks are wanted; default: those of the session, else 4.
    form_groups
        Whether to form a group of two processes with each backend; takes a few seconds.
    progress
        Told what is done now.

    Raises
    ------
    ValueError
        If ``ranks`` is below 1.
    """
    session = active.get()
    environments = {}
    if session is not None and session.alive and not session.busy and not session.frozen:
        seen = session.observe("environment", variables=sorted(described()))
        environments = {rank: one.environment or {} for rank, one in seen.items()}
    wanted = ranks or (session.world_size if session is not None else RANKS)
    if ranks is not None and ranks < 1:
        raise ValueError(f"there cannot be {ranks} ranks")
    report = examine(
        wanted,
        form_groups=form_groups,
        environments=environments,
        session=(session.timeout, session.hang_after) if session is not None else None,
        progress=progress,
    )
    return PreflightView(report)


def compare_reports(paths: Sequence[str | Path]) -> PreflightView:
    """Read the reports of several machines (``ddt-notebook doctor --json``) and compare them.

    Raises
    ------
    FormatError
        If a file is no such report.
    OSError
        If one cannot be read.
    """
    reports = []
    for path in paths:
        try:
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise FormatError(f"{path} is not a pre-flight report: {error}") from error
        try:
            reports.append(Preflight.from_json(plain))
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from error
    return PreflightView(compare_machines(reports))
