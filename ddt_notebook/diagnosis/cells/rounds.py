"""How often a rank came to a call."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.model import Call, RankReport


def rounds(call: Call, report: RankReport) -> int | None:
    """How often a rank called from the line of ``call``, on its group; None if it is not known."""
    where = call.where
    such = [c.where for c in _until(call, report) if (c.group, c.op) == (call.group, call.op)]
    if where is None or None in such:
        return None
    return sum(
        1 for place in such if place and (place.file, place.line) == (where.file, where.line)
    )


def issued(call: Call, report: RankReport) -> int:
    """How often a rank, or the library that issued ``call``, called the same on its group."""
    kind = (call.group, call.op, call.caller)
    return sum(1 for other in _until(call, report) if (other.group, other.op, other.caller) == kind)


def _until(call: Call, report: RankReport) -> Iterator[Call]:
    """What a rank called until it had come to the place of ``call`` in the order of its group."""
    for other in report.calls:
        yield other
        if call.sequence and (other.group, other.sequence) == (call.group, call.sequence):
            return
