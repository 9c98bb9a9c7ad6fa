"""Collects which ways the ranks went through the user's code, when a run has failed or hung."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..model.branches import RankBranches
from ..model.snapshot import SourceFile
from .rank_handle import RankHandle

#: How many of the user's files are kept, and how many characters of all of them together.
_MOST_FILES, _MOST_CHARACTERS = 32, 1_000_000


def rank_branches(handles: Iterable[RankHandle]) -> tuple[RankBranches, ...]:
    """The branch events of ranks in their current run; ranks that observed none are left out."""
    found = []
    for handle in handles:
        if handle.branch_ring is None:
            continue
        log, told = handle.branch_ring.read(), handle.branch_values
        values = told.values if told is not None else {}
        outcomes = tuple(
            replace(outcome, values=values.get(index, {}))
            for index, outcome in enumerate(log.outcomes)
        )
        unobserved = told.unobserved if told is not None else ""
        if log.events or unobserved:
            found.append(
                RankBranches(
                    rank=handle.rank,
                    outcomes=outcomes,
                    events=log.events,
                    events_dropped=log.events_dropped,
                    unobserved=unobserved,
                )
            )
    return tuple(found)


def source_files(branches: Iterable[RankBranches]) -> tuple[SourceFile, ...]:
    """The texts of the user's files in which ranks went one way or another; cells are left out."""
    names = {outcome.file for one in branches for outcome in one.outcomes if outcome.file}
    found: list[SourceFile] = []
    room = _MOST_CHARACTERS
    for name in sorted(names):
        path = Path(name)
        if name.startswith("cell[") or len(found) == _MOST_FILES or not path.is_absolute():
            continue
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if len(source) <= room:
            found.append(SourceFile(path=name, source=source))
            room -= len(source)
    return tuple(found)
