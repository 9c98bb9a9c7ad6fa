"""Finds the hosts and connections that are slower than others of the same session."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..formatting import count, listing, rate, seconds
from ..model.hosts import LinkQuantity, Pair, Trial
from ..model.preflight import Check

#: A round trip that is longer by less does not matter to training.
_TIME_S = 1e-3
#: How many times slower a slow connection is.
_SLOW = 4.0
#: So many slow connections are listed.
_LISTED = 3
_MEANING = "a collective over all hosts is as fast as the slowest connection"
_FIX = (
    "compare speed and errors of the interfaces at both ends (ethtool NAME, ip -s link), the "
    "cable, the port of the switch, and what else uses this connection"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """What was measured on each connection, as a number that is larger if it is faster.

    Attributes
    ----------
    speeds
        The number of each connection.
    at_most
        The same if a busy processor is not to blame for it. A connection is compared by this with
        the speeds of others.
    factor
        How many times slower a slow connection is than the best one of each of its hosts.
    name
        What it is.
    shown
        The number as text.
    at_best
        What says that nothing was faster.
    """

    speeds: Mapping[Pair, float]
    at_most: Mapping[Pair, float]
    factor: float
    name: LinkQuantity
    shown: Callable[[float], str]
    at_best: str

    def best(self) -> dict[str, float]:
        """The best connection of each host."""
        return _best(self.speeds)

    def slow_hosts(self) -> dict[str, float]:
        """Hosts without a fast connection, and how fast the others are."""
        best = self.best()
        if len(best) < 3:
            return {}
        usual = statistics.median(best.values())
        at_most = _best(self.at_most)
        return {host: usual for host in best if at_most[host] * self.factor < usual}

    def slow(self) -> set[Pair]:
        """The connections that are slower than their hosts or the other hosts permit."""
        best, hosts = self.best(), self.slow_hosts()
        return {
            (one, other)
            for (one, other), speed in self.at_most.items()
            if speed * self.factor < min(best[one], best[other]) or one in hosts or other in hosts
        }


def _best(speeds: Mapping[Pair, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for pair, speed in speeds.items():
        for host in pair:
            found[host] = max(speed, found.get(host, 0.0))
    return found


def slow_pairs(
    trials: Mapping[Pair, Trial], factor: float = _SLOW
) -> dict[Pair, tuple[LinkQuantity, ...]]:
    """The connections that are so many times slower than others, and what is slow about them."""
    found: dict[Pair, tuple[LinkQuantity, ...]] = {}
    for measure in _measures(trials, factor):
        for pair in measure.slow():
            found[pair] = (*found.get(pair, ()), measure.name)
    return found


def link_checks(trials: Mapping[Pair, Trial]) -> Iterator[Check]:
    """Name the hosts and connections that are clearly slower than others."""
    for measure in _measures(trials):
        yield from _checks(measure)


def _measures(trials: Mapping[Pair, Trial], factor: float = _SLOW) -> list[_Measure]:
    passed = {pair: one for pair, one in trials.items() if one.end == "passed"}
    rates = {pair: one.bytes_per_s for pair, one in passed.items() if one.bytes_per_s}
    at_most = {pair: max(passed[pair].at_most or 0.0, speed) for pair, speed in rates.items()}
    times = {pair: one.round_trip_s for pair, one in passed.items() if one.round_trip_s}
    # so that twice a short time is not twice as slow
    speeds = {pair: 1.0 / max(time_s, _TIME_S) for pair, time_s in times.items()}
    return [
        _Measure(
            speeds=rates,
            at_most=at_most,
            factor=factor,
            name="bandwidth",
            shown=rate,
            at_best="at most {speed}",
        ),
        _Measure(
            speeds=speeds,
            at_most=speeds,
            factor=factor,
            name="round trip",
            shown=lambda speed: seconds(1.0 / speed),
            at_best="{speed} or more",
        ),
    ]


def _checks(measure: _Measure) -> Iterator[Check]:
    best, hosts = measure.best(), measure.slow_hosts()
    for host, usual in hosts.items():
        most = measure.at_best.format(speed=measure.shown(best[host]))
        seen = f"{most} with each other host; the others reach {measure.shown(usual)}"
        yield _warning(f"{measure.name} of {host}", seen)
    left = {pair for pair in measure.slow() if not hosts.keys() & set(pair)}
    for host in best:
        for end, verb in ((0, "sends"), (1, "receives")):
            mine = {pair for pair in measure.speeds if pair[end] == host}
            if len(mine) > 1 and mine <= left:
                left -= mine
                most = measure.at_best.format(
                    speed=measure.shown(max(measure.speeds[pair] for pair in mine))
                )
                seen = f"{most}; in the other direction {measure.shown(best[host])}"
                yield _warning(f"{measure.name} of what {host} {verb}", seen)
    yield from _pairs(measure, best, sorted(left, key=lambda pair: measure.speeds[pair]))


def _pairs(measure: _Measure, best: Mapping[str, float], slow: list[Pair]) -> Iterator[Check]:
    """The slow connections between hosts that have faster ones; the slowest first."""
    if not slow:
        return
    shown = [f"{measure.shown(measure.speeds[pair])} {' → '.join(pair)}" for pair in slow[:_LISTED]]
    if len(slow) > _LISTED:
        shown.append(f"{count(len(slow) - _LISTED, 'more connection')}")
    elsewhere = min(min(best[host] for host in pair) for pair in slow)
    where = "in the other direction" if len(best) == 2 else "with other hosts"
    seen = f"{listing(shown)}; these hosts reach {measure.shown(elsewhere)} {where}"
    yield _warning(f"{measure.name} of {count(len(slow), 'connection')}", seen)


def _warning(name: str, seen: str) -> Check:
    return Check("connections", name, "warning", seen, _MEANING, _FIX, "slow-host")
