"""Compares the clocks of ranks by lines that they print at the same event.

Such events are a torchrun rendezvous and NCCL's end of an initialisation, which all ranks leave
together, and the steps of a training whose ranks wait for one another in each of them: a rank that
finishes step n proves that every other has begun it. So an offset of more than a step is one of the
clocks, and not of the work.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass

from ddt_notebook.model.log_facts import ClockSkew

from . import stamps
from .sources import Origin, Source
from .stamps import Stamp

#: Events that are kept of a source, and sources; they bound memory.
_EVENTS, _SOURCES = 12, 20_000
_STEP = re.compile(r"\b(step|iter(?:ation)?|epoch)s?\W{1,3}(\d{1,9})\b", re.IGNORECASE)
_COMPLETE = re.compile(r"rank \d+ nranks (\d+) .*commId (0x\w+).*Init COMPLETE")
_RENDEZVOUS = "Rendezvous complete for workers"
#: Ranks leave a rendezvous within this time of one another: agents look about once a second.
_TOGETHER_S = 5.0
#: A smaller offset is not reported: lines are printed a moment after their event.
_LEAST_S = 2.0
#: Steps that have to agree.
_STEPS = 3

_Key = tuple[str, str]


@dataclass(slots=True)
class _Seen:
    stamp: Stamp
    line: Origin


class Events:
    """Collects the time stamps of events by the source of their lines."""

    def __init__(self) -> None:
        self._of: dict[Source, dict[_Key, _Seen]] = {}
        self._rendezvous: dict[Source, int] = defaultdict(int)

    def read(self, line: Origin) -> None:
        """Add a line, if it belongs to an event and has a time stamp."""
        source = line.source
        if source == "":
            return
        own = self._of.get(source)
        if own is not None and len(own) >= _EVENTS:
            return
        key = self._key(line)
        if key is None or (own is not None and key in own):
            return
        stamp = stamps.read(line.text)
        if stamp is None:
            return
        if own is None:
            if len(self._of) >= _SOURCES:
                return
            own = self._of[source] = {}
        own[key] = _Seen(stamp, line)

    def _key(self, line: Origin) -> _Key | None:
        text = line.text
        if _RENDEZVOUS in text:
            self._rendezvous[line.source] += 1
            return "together", f"rendezvous {self._rendezvous[line.source]}"
        if "Init COMPLETE" in text and (match := _COMPLETE.search(text)):
            return "together", match[2]
        lower = text[:400]
        if ("tep" in lower or "ter" in lower or "poch" in lower) and (match := _STEP.search(lower)):
            return "step", f"{match[1].lower()} {match[2]}"
        return None

    def skews(self) -> tuple[ClockSkew, ...]:
        """Return the clocks that differ from that of the first source, equal ones together."""
        if len(self._of) < 2:
            return ()
        reference = min(self._of, key=lambda source: (isinstance(source, str), source))
        ahead: dict[Source, tuple[float, float, int, tuple[_Seen, _Seen]]] = {}
        for source, own in self._of.items():
            if source != reference:
                found = _ahead(self._of[reference], own)
                if found is not None:
                    ahead[source] = found
        together: list[list[Source]] = []
        for source in sorted(ahead, key=lambda source: ahead[source][0]):
            if together and ahead[source][0] - ahead[together[-1][0]][0] <= _LEAST_S:
                together[-1].append(source)
            else:
                together.append([source])
        return tuple(_skew(group, ahead[group[0]]) for group in together)


def _skew(sources: list[Source], found: tuple[float, float, int, tuple[_Seen, _Seen]]) -> ClockSkew:
    ahead, spread, events, (first, other) = found
    return ClockSkew(
        ranks=tuple(sorted(source for source in sources if isinstance(source, int))),
        files=tuple(sorted(source for source in sources if isinstance(source, str))),
        ahead_s=round(ahead, 3),
        spread_s=round(spread, 3),
        events=events,
        lines=(first.line.quoted(), other.line.quoted()),
    )


def _ahead(
    first: dict[_Key, _Seen], other: dict[_Key, _Seen]
) -> tuple[float, float, int, tuple[_Seen, _Seen]] | None:
    """Return by how much one clock is ahead of the other, None if it cannot be concluded."""
    shared = [
        key for key in first if key in other and first[key].stamp.zone == other[key].stamp.zone
    ]
    together = [key for key in shared if key[0] == "together"]
    keys = together or shared
    offsets = [other[key].stamp.seconds - first[key].stamp.seconds for key in keys]
    if not offsets:
        return None
    ahead = statistics.median(offsets)
    spread = max(offsets) - min(offsets)
    least = _TOGETHER_S if together else max(_LEAST_S, _longest_step(first, keys), 2 * spread)
    if abs(ahead) <= least or (not together and len(keys) < _STEPS):
        return None
    return ahead, spread, len(keys), (first[keys[0]], other[keys[0]])


def _longest_step(of: dict[_Key, _Seen], keys: list[_Key]) -> float:
    """Return the longest time between two of the steps on one rank."""
    times = sorted(of[key].stamp.seconds for key in keys)
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)
