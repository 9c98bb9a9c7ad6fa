"""Short spans of time in words, and who made the others wait."""

from __future__ import annotations

import statistics

from ..model.meetings import Meeting, lateness
from . import words
from .flags import Flag

#: A rank is called a straggler if it cost the others this much of the time, and this many seconds.
_SHARE, _AT_LEAST_S = 0.05, 0.01
#: Its own lateness: arrivals closer than this say nothing.
_NOTABLE_S = 1e-3


def short(seconds: float | None) -> str:
    """``0.35 ms``, ``150 ms``, ``1.2 s``; empty if it is not known."""
    if seconds is None:
        return ""
    milliseconds = 1e3 * seconds
    if milliseconds < 10:
        return f"{milliseconds:.2f} ms"
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else words.duration(seconds)


def rate(bytes_per_s: float | None) -> str:
    """``630 MB/s``; empty if it is not known."""
    return f"{words.size(round(bytes_per_s))}/s" if bytes_per_s is not None else ""


def straggler_flags(met: list[Meeting], window_s: float) -> list[Flag]:
    """Ranks for which the others waited a notable part of the time, the worst first."""
    found = []
    for rank, late in sorted(lateness(met).items(), key=lambda item: -sum(item[1])):
        notable = [seconds for seconds in late if seconds >= _NOTABLE_S]
        cost = sum(notable)
        if cost < max(_AT_LEAST_S, _SHARE * window_s):
            continue
        found.append(
            Flag(
                "warning",
                f"rank {rank} came last to {words.count(len(notable), 'collective')} of {len(met)}, "
                f"{short(statistics.median(notable))} after the others (median): they waited "
                f"{short(cost)} for it, of {short(window_s)}; look at what only it does before them",
            )
        )
    return found
