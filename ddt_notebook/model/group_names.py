"""Adds the names that a framework gives its process groups to their names in torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from .rank import RankReport
from .snapshot import Snapshot


def with_names_of_framework(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with groups such as ``"43 (tensor)"``.

    A group to which ranks give different names keeps its name in torch.
    """
    given: dict[str, set[str]] = defaultdict(set)
    for one in snapshot.agreements:
        for group, name in one.groups.items():
            given[group].add(name)
    names = {
        group: f"{group} ({next(iter(names))})" for group, names in given.items() if len(names) == 1
    }
    if not names:
        return snapshot
    return replace(
        snapshot,
        ranks=tuple(_renamed(report, names) for report in snapshot.ranks),
        groups={names.get(group, group): members for group, members in snapshot.groups.items()},
    )


def _renamed(report: RankReport, names: Mapping[str, str]) -> RankReport:
    calls = tuple(
        replace(call, group=names[call.group]) if call.group in names else call
        for call in report.calls
    )
    beside = tuple(
        replace(call, group=names[call.group]) if call.group in names else call
        for call in report.thread_calls
    )
    return replace(report, calls=calls, thread_calls=beside)
