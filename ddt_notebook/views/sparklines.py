"""A span of time, or a curve, as one row of signs for a terminal and a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TypeVar

from ..model.shares import Activity, Interval, TimeWindow
from . import html, words
from .html import Markup

SLOTS = 56
#: Sign, word and colour; time in none of the other states is the rank's own work. The colours are
#: those of the interactive timeline.
SIGNS = {
    "work": ("█", "own work", "#7F8FA6"),
    "waiting": ("w", "waiting for a rank", "#E69F00"),
    "communication": ("c", "communication", "#56B4E9"),
    "data": ("d", "loading data", "#D55E00"),
}
#: What time in none of the states is if the ends of collectives were not recorded.
UNKNOWN = "unknown"
#: An arrow from a rank that came last to those that had waited for it, through lanes between them.
LAST, UP, DOWN, THROUGH = "last", "up", "down", "through"
_SHOWN = {
    **SIGNS,
    UNKNOWN: ("░", "own work, or a collective whose end was not recorded", "#BBBBBB"),
    LAST: ("●", "came last", "#F0E442"),
    UP: ("↑", "had waited for it", SIGNS["waiting"][2]),
    DOWN: ("↓", "had waited for it", SIGNS["waiting"][2]),
    THROUGH: ("│", "", ""),
}
_ENDED = "ended"
_LEVELS = "▁▂▃▄▅▆▇█"

Name = TypeVar("Name")


def strip(activity: Activity, window: TimeWindow, rest: str = "work") -> list[str]:
    """The sign's name for each of `SLOTS` slots of a window; ``rest`` is time in no known state."""
    parts = {
        "waiting": activity.waiting,
        "communication": activity.communication,
        "data": activity.data,
    }
    if activity.ended_s is not None:
        parts[_ENDED] = [(activity.ended_s, window.end_s)]
    kinds = []
    for share in slots(parts, window.start_s, window.end_s, SLOTS):
        share[rest] = 1 - sum(share.values())
        kinds.append(max(share, key=lambda kind: share[kind]))
    return kinds


def ruler(length: float) -> str:
    """The time below a strip of some seconds: where its quarters begin, and how long it is."""
    if length <= 0:
        return ""
    width = SLOTS // 4
    quarters = (words.short(length * at / 4) if at else "0" for at in range(4))
    return "".join(f"{quarter:<{width}}" for quarter in quarters) + words.short(length)


def numbered(starts: Mapping[int, float], window: TimeWindow) -> str:
    """Numbers above a strip, each where it starts; one that has no room is left out."""
    length, row = window.end_s - window.start_s, ""
    for number, start_s in starts.items():
        at = int(SLOTS * (start_s - window.start_s) / length) if length > 0 else 0
        if len(row) + bool(row) <= at <= SLOTS - len(str(number)):
            row = f"{row:<{at}}{number}"
    return row.ljust(SLOTS)


def slots(
    parts: Mapping[Name, Iterable[Interval]], start_s: float, end_s: float, count: int
) -> list[dict[Name, float]]:
    """The share that each part took of each slot of time."""
    slot_s = (end_s - start_s) / count
    if not (slot_s > 0 and math.isfinite(start_s) and math.isfinite(slot_s)):
        return [{} for _ in range(count)]
    spread = {name: _spread(part, start_s, slot_s, count) for name, part in parts.items()}
    return [
        {name: amounts[at] / slot_s for name, amounts in spread.items() if amounts[at]}
        for at in range(count)
    ]


def _spread(
    intervals: Iterable[Interval], start_s: float, slot_s: float, count: int
) -> list[float]:
    """The share of each slot that the intervals take."""
    amounts = [0.0] * count
    for begin, end in intervals:
        if not (math.isfinite(begin) and math.isfinite(end)):
            continue
        # bounded, as the times in a file that was changed may be many orders larger
        first, last = (int(min(max((at_s - start_s) / slot_s, -1), count)) for at_s in (begin, end))
        if first == last and 0 <= first < count and begin >= start_s:
            amounts[first] += end - begin
            continue
        for at in range(max(0, first), min(count - 1, last) + 1):
            low = start_s + at * slot_s
            amounts[at] += max(0.0, min(end, low + slot_s) - max(begin, low))
    return amounts


def as_text(kinds: Sequence[str]) -> str:
    """The signs."""
    return "".join(" " if kind == _ENDED else _SHOWN[kind][0] for kind in kinds)


def as_html(kinds: Sequence[str]) -> Markup:
    """The signs, coloured."""
    cells = []
    for kind, run in groupby(kinds):
        if kind == _ENDED:
            cells.append(html.tag("span", BLANK * len(list(run))))
            continue
        sign, _, colour = _SHOWN[kind]
        ink = colour if kind == "work" else "#000000"
        style = f"background-color:{colour};color:{ink}" if colour else ""
        cells.append(html.tag("span", sign * len(list(run)), style=style))
    return fixed_width(*cells)


#: nbconvert's HTML loses elements that hold nothing but ordinary spaces.
BLANK = "\N{NO-BREAK SPACE}"


def painted(
    signs: str, colours: Mapping[str, str], inks: Mapping[str, str] | None = None
) -> Markup:
    """A row of signs, each on its colour; signs without a colour stay as they are.

    Parameters
    ----------
    signs
        The row.
    colours
        The ground of each sign.
    inks
        The colour of a sign that is not black.
    """
    cells = []
    for sign, run in groupby(signs):
        ground = colours.get(sign)
        ink = (inks or {}).get(sign, "#000000")
        style = f"background-color:{ground};color:{ink}" if ground else ""
        cells.append(html.tag("span", "".join(run).replace(" ", BLANK), style=style))
    return fixed_width(*cells)


def fixed_width(*content: str) -> Markup:
    """Text or markup whose signs are aligned in columns, also where styles are dropped."""
    kept = (c if isinstance(c, Markup) else c.replace(" ", BLANK) for c in content)
    return html.tag(
        "samp", *kept, style="font-family:monospace;white-space:pre", role="code ddt-strip"
    )


def legend(kinds: Iterable[str] = SIGNS) -> str:
    """The legend of the signs."""
    return " · ".join("{} {}".format(*_SHOWN[kind]) for kind in kinds)


def legend_as_html(kinds: Iterable[str] = SIGNS) -> Markup:
    """The legend, with each sign as it is coloured in the strips."""
    shown = [Markup(f"{as_html([kind])} {html.escape(_SHOWN[kind][1])}") for kind in kinds]
    return Markup(" · ".join(shown))


def bar(part: float, whole: float, count: int = 8) -> str:
    """A bar of so many signs that shows a part of a whole; empty if there is no whole."""
    if not (0 < whole < math.inf and part >= 0):
        return ""
    filled = max(1, round(count * min(1.0, part / whole)))
    return "█" * filled + "░" * (count - filled)


def level(share: float) -> str:
    """A bar as high as a share from 0 to 1; the lowest one also for the smallest share."""
    return _LEVELS[max(0, math.ceil(share * len(_LEVELS)) - 1)]


def curve(values: Sequence[float], count: int = SLOTS, *, least_rise: float = 0.0) -> str:
    """A curve from its lowest to its highest value; empty if there are no values.

    A rise of less than ``least_rise`` does not fill the height: noise stays low.
    """
    if not values:
        return ""
    count = min(count, len(values))
    ends = [round(at * len(values) / count) for at in range(count + 1)]
    peaks = [max(values[low:high]) for low, high in pairwise(ends)]
    low = min(peaks)
    high = max(*peaks, low + least_rise)
    if high == low:
        return _LEVELS[0] * count
    return "".join(_LEVELS[round((len(_LEVELS) - 1) * (v - low) / (high - low))] for v in peaks)
