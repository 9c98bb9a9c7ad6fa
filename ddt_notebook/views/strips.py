"""Time as a row of signs: one for each slot of time, the same in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from ..model.shares import Interval, RankShare
from . import html
from .html import Markup

SLOTS = 56
#: Sign, word and colour; whatever is none of the others is the rank's own work.
SIGNS = {
    "work": ("█", "own work", "#0072B2"),
    "waiting": ("w", "waiting for a rank", "#E69F00"),
    "communication": ("c", "communication", "#56B4E9"),
    "data": ("d", "loading data", "#CC79A7"),
}
_LEVELS = "▁▂▃▄▅▆▇█"


def strip(share: RankShare, start_s: float, slots: int = SLOTS) -> list[str]:
    """For each slot what took most of it."""
    if share.window_s <= 0:
        return []
    slot_s = share.window_s / slots
    parts = {
        "waiting": _spread(share.waiting, start_s, slot_s, slots),
        "communication": _spread(share.communication, start_s, slot_s, slots),
        "data": _spread(share.data, start_s, slot_s, slots),
    }
    result = []
    for at in range(slots):
        seconds = {kind: amounts[at] for kind, amounts in parts.items()}
        seconds["work"] = slot_s - sum(seconds.values())
        result.append(max(seconds, key=lambda kind: seconds[kind]))
    return result


def _spread(
    intervals: Iterable[Interval], start_s: float, slot_s: float, slots: int
) -> list[float]:
    """How much of each slot the intervals take."""
    amounts = [0.0] * slots
    for begin, end in intervals:
        first = max(0, int((begin - start_s) / slot_s))
        last = min(slots - 1, int((end - start_s) / slot_s))
        for at in range(first, last + 1):
            low, high = start_s + at * slot_s, start_s + (at + 1) * slot_s
            amounts[at] += max(0.0, min(end, high) - max(begin, low))
    return amounts


def as_text(kinds: Sequence[str]) -> str:
    """The signs."""
    return "".join(SIGNS[kind][0] for kind in kinds)


def as_html(kinds: Sequence[str]) -> Markup:
    """The signs, coloured."""
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    cells = [
        html.tag(
            "span",
            SIGNS[kind][0] * length,
            style=f"background-color:{SIGNS[kind][2]};color:{_ink(kind)}",
        )
        for kind, length in runs
    ]
    return html.tag("span", *cells, style="font-family:monospace;white-space:pre", role="code")


def _ink(kind: str) -> str:
    return SIGNS[kind][2] if kind == "work" else "#000000"


def legend() -> str:
    """What the signs mean."""
    return "   ".join(f"{sign} {word}" for sign, word, _ in SIGNS.values())


def curve(values: Sequence[float], slots: int = SLOTS) -> str:
    """A curve from its lowest to its highest value; empty if there are no values."""
    if not values:
        return ""
    count = min(slots, len(values))
    ends = [round(at * len(values) / count) for at in range(count + 1)]
    peaks = [max(values[low:high]) for low, high in zip(ends, ends[1:], strict=False)]
    low, high = min(peaks), max(peaks)
    if high == low:
        return _LEVELS[0] * count
    return "".join(_LEVELS[round((len(_LEVELS) - 1) * (v - low) / (high - low))] for v in peaks)
