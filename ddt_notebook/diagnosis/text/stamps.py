"""Time stamps at the beginning of the lines of a log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

#: A stamp begins within this many characters; a mark of the launcher may come before it.
_HEAD = 64
_TIME = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
#: ISO 8601 as Python's logging and containers write it; c10 and torch elastic; month/day/year.
_FORMS = (
    re.compile(rf"20\d\d-(?P<M>\d\d)-(?P<D>\d\d)[T _]{_TIME}(?P<zone>Z|[+-]\d\d:?\d\d)?"),
    re.compile(rf"(?:^|\[)[IWEF](?P<M>\d{{1,2}})(?P<D>\d\d) {_TIME}(?P<zone>)"),
    re.compile(rf"(?P<M>\d\d)/(?P<D>\d\d)/20\d\d {_TIME}(?P<zone>)"),
)
#: PyTorch's own lines have no year, so the year of the others does not count either. A leap year,
#: in which every date exists.
_YEAR = 2024


@dataclass(frozen=True, slots=True)
class Stamp:
    """The time of a line.

    Attributes
    ----------
    seconds
        Since the beginning of the year; only differences between stamps of one zone have a
        meaning.
    zone
        As the stamp names it; empty for the local time.
    """

    seconds: float
    zone: str


def read(text: str) -> Stamp | None:
    """Return the stamp of a line, None if it has none."""
    head = text[:_HEAD]
    if ":" not in head:
        return None
    for pattern in _FORMS:
        if match := pattern.search(head):
            parts = match.groupdict()
            try:
                day = datetime(_YEAR, int(parts["M"]), int(parts["D"]))
            except ValueError:
                continue
            fraction = float(f"0.{parts['f'] or 0}")
            clock = int(parts["h"]) * 3600 + int(parts["m"]) * 60 + int(parts["s"])
            days = day.timetuple().tm_yday
            return Stamp(days * 86400.0 + clock + fraction, parts["zone"] or "")
    return None
