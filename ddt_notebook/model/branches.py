"""The path of a rank through the user's code: branches, loop ends, returns and exceptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: ``"branch"``: a condition or a loop was decided. ``"guard"``: a condition inside an expression
#: was decided. ``"return"``: a function returned. ``"raised"``: an exception was raised or went
#: through. ``"handled"``: it was caught.
BranchKind = Literal["branch", "guard", "return", "raised", "handled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOutcome:
    """One outcome at one line: the way that a rank went.

    Attributes
    ----------
    file, line, function
        Where it was decided, as in `Position`. For ``"handled"``, the line of the handler.
    kind
        See `BranchKind`.
    to_line
        The line of the same function at which the rank went on. 0 if the loop or the function
        ended there. For ``"guard"``, ``line`` if the condition held, and 0 if not. A loop on one
        line goes on at that line. Else 0.
    error
        Name of the exception's class, empty if there is none.
    times
        How often the rank went this way in the run.
    values
        Values of the names in the condition, as short texts; only of simple values. They are those
        when the rank last changed to this way, or those at the end in a function that still runs.
        Empty if they were not read.
    """

    file: str
    line: int
    function: str = "<module>"
    kind: BranchKind = "branch"
    to_line: int = 0
    error: str = ""
    times: int = 0
    values: dict[str, str] = field(default_factory=dict)

    @property
    def site(self) -> tuple[str, int, str, str]:
        """The place at which ranks can go different ways."""
        return self.file, self.line, self.function, self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBranches:
    """The ways that one rank went in a run.

    Attributes
    ----------
    rank
        Global rank.
    outcomes
        All different ways that it went.
    events
        Indices in ``outcomes`` in order of time. The number of events before a call is
        ``Call.branches_before``.
    events_dropped
        How many earlier events of the run are not in ``events``.
    unobserved
        Why nothing was observed, such as the user's own debugger; empty if it was.
    callbacks_only
        Whether only functions that a library's trainer calls were observed.
    """

    rank: int
    outcomes: tuple[BranchOutcome, ...] = ()
    events: tuple[int, ...] = ()
    events_dropped: int = 0
    unobserved: str = ""
    callbacks_only: bool = False

    def between(self, begin: int, until: int | None) -> list[BranchOutcome]:
        """The outcomes from one event to another; both count from the start of the run."""
        first = begin - self.events_dropped
        last = None if until is None else max(first, until - self.events_dropped)
        return [self.outcomes[index] for index in self.events[first:last]]
