"""Puts the times of several hosts on one clock.

Each host counts its monotonic time from its own start. A collective without a root ends on no
member before all members have entered it, which bounds the difference between the clocks of two
hosts from both sides (`Cristian 1989 <https://doi.org/10.1007/BF01784024>`_ bounds it by a request
and its answer). Until a collective has ended, the hosts' wall clocks are compared; NTP keeps these
within milliseconds, or it does not run, and then they may be minutes apart.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..model import Call, RankReport
from ..model.clock import Clock
from ..model.operations import COLLECTIVES


def clocks(
    hosts: Mapping[int, str], reports: Iterable[RankReport], wall_s: Mapping[str, float]
) -> dict[str, Clock]:
    """The clock of each host.

    Parameters
    ----------
    hosts
        The host of each rank.
    reports
        What the ranks did.
    wall_s
        For each host, its wall clock minus its monotonic clock.
    """
    first = hosts[min(hosts)]
    found = {first: Clock()}
    least: dict[str, float] = {}
    most: dict[str, float] = {}
    for met in _met(hosts, reports):
        own = met.get(first)
        if own is None:
            continue
        for host, theirs in met.items():
            # nobody leaves before the last one has entered
            least[host] = max(least.get(host, -math.inf), own.entered_s - theirs.left_s)
            most[host] = min(most.get(host, math.inf), own.left_s - theirs.entered_s)
    for host in sorted(set(hosts.values()) - {first}):
        if host not in least or least[host] > most[host]:
            found[host] = Clock(wall_s[host] - wall_s[first], None)
        else:
            middle_s = (least[host] + most[host]) / 2
            found[host] = Clock(middle_s, (most[host] - least[host]) / 2)
    return found


@dataclass(slots=True)
class _Times:
    """When the last of a host's ranks entered a collective, and when the first one left it."""

    entered_s: float = -math.inf
    left_s: float = math.inf


def _met(hosts: Mapping[int, str], reports: Iterable[RankReport]) -> Iterable[Mapping[str, _Times]]:
    """For each collective that bounds the clocks, the times of each host that took part."""
    met: dict[tuple[str, int], dict[str, _Times]] = defaultdict(dict)
    for report in reports:
        for call in report.calls:
            if _waits_for_all(call) and report.rank in hosts:
                assert call.sequence is not None
                assert call.entered_s is not None
                assert call.left_s is not None
                times = met[call.group, call.sequence].setdefault(hosts[report.rank], _Times())
                times.entered_s = max(times.entered_s, call.entered_s)
                times.left_s = min(times.left_s, call.left_s)
    return met.values()


def _waits_for_all(call: Call) -> bool:
    """Whether a call has ended, which shows that all members had entered it."""
    known = COLLECTIVES.get(call.op)
    return (
        known is not None
        and known.root is None
        and call.kind == "collective"
        and call.source == "call log"
        and call.status == "done"
        and not call.asynchronous
        and None not in (call.sequence, call.entered_s, call.left_s)
    )
