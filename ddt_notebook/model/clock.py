"""The clock of a host, and reports on the clock of another one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .collective import Call
from .rank import RankReport


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of one host.

    Attributes
    ----------
    ahead_s
        What has to be added to its times, so that they are those of the first rank's host.
    error_s
        The largest possible error of that; None if only the wall clocks were compared.
    """

    ahead_s: float = 0.0
    error_s: float | None = 0.0

    def moved(self, at_s: float | None) -> float | None:
        """One of its times on the clock of the first rank's host; None stays None."""
        return None if at_s is None else at_s + self.ahead_s


def on_one_clock(report: RankReport, clock: Clock) -> RankReport:
    """A report with its times on the clock of the first rank's host."""
    if not clock.ahead_s:
        return report

    def moved(call: Call) -> Call:
        entered_s, left_s = clock.moved(call.entered_s), clock.moved(call.left_s)
        return replace(call, entered_s=entered_s, left_s=left_s)

    return replace(
        report,
        calls=tuple(map(moved, report.calls)),
        joined=report.joined and moved(report.joined),
        error=report.error and replace(report.error, at_s=clock.moved(report.error.at_s)),
    )
