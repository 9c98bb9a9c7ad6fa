"""Writes the reports of many ranks as tables, so that what they share is written once.

The ranks of a large job make the same calls at the same lines. A saved run therefore has a list of
positions and a list of kinds of calls, which the reports name by number::

    "positions": [{"file": "train.py", "line": 40, "code": "dist.all_reduce(loss)"}],
    "call_kinds": [{"op": "all_reduce", "reduce_op": "SUM", "shapes": [[8]], "where": 0}],
    "ranks": [{
        "rank": 0,
        "position": 0,
        "calls": {"kind": [0, 0], "sequence": [1, 2], "entered_s": [7.5, 8.1]}
    }]

A call is the fields of its kind and its own entry in each column. A column that is missing holds
the default of its field, and ``index`` counts from 0.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from . import codec
from .collective import Call, CallStatus
from .position import Position
from .rank import RankReport

#: Stands for the members of a call whose members are not known.
UNKNOWN = (-1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallColumns:
    """The calls of one rank. Each field but ``kind`` is a column of the field of `Call`.

    Attributes
    ----------
    kind
        For each call, the number of its kind.
    """

    kind: tuple[int, ...] = ()
    index: tuple[int, ...] = ()
    sequence: tuple[int | None, ...] = ()
    status: tuple[CallStatus, ...] = ()
    entered_s: tuple[float | None, ...] = ()
    left_s: tuple[float | None, ...] = ()
    error: tuple[str | None, ...] = ()
    branches_before: tuple[int | None, ...] = ()
    branch_hash: tuple[int, ...] = ()


_COLUMNS = tuple(column.name for column in fields(CallColumns) if column.name != "kind")
_DEFAULTS = {one.name: one.default for one in fields(Call) if one.name in _COLUMNS}
_SHARED = tuple(one.name for one in fields(Call) if one.name not in (*_COLUMNS, "members"))
_shared_of = operator.attrgetter(*_SHARED)


@dataclass
class _Numbers:
    """Numbers values in the order in which they first appear."""

    values: list[Any] = field(default_factory=list)
    known: dict[Any, int] = field(default_factory=dict)

    def of(self, key: Any, build: Callable[[], Any]) -> int:
        number = self.known.get(key)
        if number is None:
            number = self.known[key] = len(self.values)
            self.values.append(build())
        return number


def to_tables(
    reports: Sequence[RankReport], groups: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """The reports as plain data: the entries ``positions``, ``call_kinds`` and ``ranks``.

    Parameters
    ----------
    reports
        One for each rank.
    groups
        Members of the groups by name. A call whose members are these does not repeat them.
    """
    return _Writer(groups).tables(reports)


class _Writer:
    def __init__(self, groups: Mapping[str, tuple[int, ...]]) -> None:
        self._groups = groups
        self._positions = _Numbers()
        self._kinds = _Numbers()
        # by identity, because comparing thousands of members for each call would be slow
        self._members: dict[tuple[int, str], tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def tables(self, reports: Sequence[RankReport]) -> dict[str, Any]:
        ranks = [self._report(report) for report in reports]
        tables = {
            "positions": self._positions.values,
            "call_kinds": self._kinds.values,
            "ranks": ranks,
        }
        return {name: table for name, table in tables.items() if table}

    def _report(self, report: RankReport) -> dict[str, Any]:
        short = replace(report, calls=(), joined=None, position=None, stack=(), error=None)
        plain: dict[str, Any] = codec.to_plain(short)
        if report.position is not None:
            plain["position"] = self._position(report.position)
        if report.stack:
            plain["stack"] = [self._position(frame) for frame in report.stack]
        if report.error is not None:
            error = codec.to_plain(replace(report.error, where=None, frames=()))
            if report.error.where is not None:
                error["where"] = self._position(report.error.where)
            if report.error.frames:
                error["frames"] = [self._position(frame) for frame in report.error.frames]
            plain["error"] = error
        if report.calls:
            plain["calls"] = self._columns(report.calls)
        if report.joined is not None:
            plain["joined"] = self._columns((report.joined,))
        return plain

    def _position(self, position: Position) -> int:
        return self._positions.of(position, lambda: codec.to_plain(position))

    def _columns(self, calls: Sequence[Call]) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {"kind": [self._kind(call) for call in calls]}
        for name in _COLUMNS:
            column = [getattr(call, name) for call in calls]
            default = _DEFAULTS[name]
            usual = range(len(column)) if name == "index" else [default] * len(column)
            if column != list(usual):
                columns[name] = column
        return columns

    def _kind(self, call: Call) -> int:
        members = self._short_members(call)
        shared = _shared_of(call)

        def build() -> dict[str, Any]:
            plain: dict[str, Any] = codec.to_plain(
                replace(call, members=members, where=None, callers=())
            )
            for name in _COLUMNS:
                plain.pop(name, None)
            if call.where is not None:
                plain["where"] = self._position(call.where)
            if call.callers:
                plain["callers"] = [self._position(line) for line in call.callers]
            return plain

        return self._kinds.of((members, shared), build)

    def _short_members(self, call: Call) -> tuple[int, ...]:
        """Empty if they are those of the call's group."""
        key = id(call.members), call.group
        known = self._members.get(key)
        if known is None:
            short = () if call.members == self._groups.get(call.group) else call.members or UNKNOWN
            # the members are kept, so that no other tuple gets their id meanwhile
            known = self._members[key] = call.members, short
        return known[1]


class TablesReader:
    """The inverse of `to_tables`.

    Parameters
    ----------
    plain
        A saved snapshot.

    Raises
    ------
    FormatError
        If an entry is not of its type, or a number names no entry of its table.
    """

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self._positions = _list(plain.get("positions", []), "positions")
        ranks = [dict(_object(one, "ranks")) for one in _list(plain.get("ranks", []), "ranks")]
        self._calls = [(one.pop("calls", {}), one.pop("joined", None)) for one in ranks]
        self._kinds = [
            self._placed(_object(one, "call_kinds"), "where", "callers")
            for one in _list(plain.get("call_kinds", []), "call_kinds")
        ]
        #: The reports as plain data of `RankReport`, without their calls.
        self.ranks = [self._report(one) for one in ranks]

    def with_calls(
        self, reports: Sequence[RankReport], groups: Mapping[str, tuple[int, ...]]
    ) -> tuple[RankReport, ...]:
        """The reports that were built from `ranks`, with their calls."""
        kinds = [_shared_fields(plain, groups) for plain in self._kinds]
        return tuple(
            replace(
                report,
                calls=_calls(calls, kinds),
                joined=_entry(_calls(joined, kinds), 0, "call") if joined is not None else None,
            )
            for report, (calls, joined) in zip(reports, self._calls, strict=True)
        )

    def _report(self, plain: dict[str, Any]) -> dict[str, Any]:
        report = self._placed(plain, "position", "stack")
        if plain.get("error") is not None:
            report["error"] = self._placed(_object(plain["error"], "error"), "where", "frames")
        return report

    def _placed(self, plain: Mapping[str, Any], *names: str) -> dict[str, Any]:
        """The object with positions in place of their numbers."""
        found = {name: plain[name] for name in names if plain.get(name) is not None}
        return {**plain, **{name: self._position(number) for name, number in found.items()}}

    def _position(self, number: Any) -> Any:
        if isinstance(number, list):
            return [self._position(one) for one in number]
        return _entry(self._positions, number, "position")


def _shared_fields(
    plain: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    kind = codec.from_plain(Call, {**plain, "index": 0})
    members = kind.members or groups.get(kind.group, ())
    values = {name: getattr(kind, name) for name in _SHARED}
    return values | {"members": () if members == UNKNOWN else members}


def _calls(plain: Any, kinds: Sequence[dict[str, Any]]) -> tuple[Call, ...]:
    columns = codec.from_plain(CallColumns, plain)
    count = len(columns.kind)
    own: dict[str, Sequence[Any]] = {"index": range(count)}
    for name in _COLUMNS:
        column = getattr(columns, name)
        if len(column) not in (0, count):
            raise codec.FormatError(f"the column {name} of a rank's calls has not {count} entries")
        if column:
            own[name] = column
    return tuple(
        Call(**_entry(kinds, kind, "kind of call"), **dict(zip(own, values, strict=True)))
        for kind, *values in zip(columns.kind, *own.values(), strict=True)
    )


def _entry(table: Sequence[Any], number: Any, what: str) -> Any:
    if type(number) is not int or not 0 <= number < len(table):
        raise codec.FormatError(f"the {what} {number!r} is not among the {len(table)} of the file")
    return table[number]


def _list(plain: Any, what: str) -> list[Any]:
    if not isinstance(plain, list):
        raise codec.FormatError(f"Snapshot.{what} is not a list")
    return plain


def _object(plain: Any, what: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise codec.FormatError(f"Snapshot.{what} is not an object")
    return plain
