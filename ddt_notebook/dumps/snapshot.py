"""Converts the dumps of a job's ranks to one `Snapshot` that every rule and view can read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..formatting import ranks_text
from ..model import Call, Cell, RankReport, Snapshot
from .calls import Calls
from .columns import Columns
from .entries import Entries, groups_of
from .files import read


def load(path: str | Path) -> Snapshot:
    """Read a folder of dumps, or one dump.

    Parameters
    ----------
    path
        A folder with one file for each rank, pickled or JSON, as a job writes it; or one such file.

    Returns
    -------
    Snapshot
        Its ``origin`` is ``"dumps"``. It does not show where a rank was outside its collectives,
        and contains nothing about a rank without a dump. Of large dumps, it holds the last
        collectives that all members of a group completed alike, and everything after the first
        difference.

    Raises
    ------
    FormatError
        If there is no dump, there are two of one rank, or one has other content.
    OSError
        If the path cannot be read.
    """
    return snapshot_of(*read(path))


def snapshot_of(dumps: Sequence[Columns], notes: Sequence[str] = ()) -> Snapshot:
    """The snapshot of a job from the dumps of its ranks, ordered by rank."""
    entries = Entries.of(dumps)
    groups, guessed = groups_of(dumps, entries)
    calls = Calls(dumps, entries, groups).of_each_dump()
    reports = tuple(
        _report(dump, kept, dropped) for dump, (kept, dropped) in zip(dumps, calls, strict=True)
    )
    world = 1 + max([d.rank for d in dumps] + [r for ranks in groups.values() for r in ranks])
    lost = sorted(set(range(world)) - {dump.rank for dump in dumps})
    said = list(notes)
    if lost:
        said.append(f"no dump of {ranks_text(lost)}: killed, or not able to write one")
    if guessed:
        said.append(
            f"the dumps do not say who belongs to {', '.join(f'group {g}' for g in guessed)}; "
            "taken to be the ranks that used it"
        )
    backends = (kind.name.partition(":")[0] for kind in entries.kinds if ":" in kind.name)
    return Snapshot(
        cell=Cell(number=0, source=""),
        origin="dumps",
        outcome="hung" if any(r.state == "blocked" for r in reports) or lost else "ok",
        ranks=reports,
        groups=groups,
        world_size=world,
        backend=next(backends, ""),
        timeout_s=max((kind.timeout_ms for kind in entries.kinds), default=0) / 1000,
        notes=tuple(said),
    )


def _report(dump: Columns, calls: tuple[Call, ...], dropped: int) -> RankReport:
    blocked = next((call for call in calls if call.status == "pending"), None)
    return RankReport(
        rank=dump.rank,
        state="recorded" if blocked is None else "blocked",
        blocked_in=None if blocked is None else blocked.index,
        position=None if blocked is None else blocked.where,
        calls=calls,
        calls_dropped=dump.dropped + dropped,
    )
