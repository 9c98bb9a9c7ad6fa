"""Compares what the ranks of a log print when NCCL's watchdog gives a collective up.

It shows which ranks gave up which collective, and names no culprit: ranks of different groups may
be in different collectives, and the launcher may end a rank before its watchdog prints.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddt_notebook.model import Fact

from .lines import Line

#: ProcessGroupNCCL's own line, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: the first form
#: since torch 2.1, without the numbers of elements before.
_GAVE_UP = re.compile(
    r"(?:\[Rank (\d+)\] )?Watchdog caught collective operation timeout: "
    r"WorkNCCL\((?:SeqNum|OpId)=(\d+), OpType=(\w+)(?:, NumelIn=(\d+), NumelOut=(\d+))?"
    r", Timeout\(ms\)=(\d+)\)"
)
_RAN_FOR = re.compile(r"ran for (\d{1,12}) milliseconds before timing out")
#: Facts of one kind that are shown. Chosen, not measured.
_MOST = 4


@dataclass(frozen=True, slots=True)
class GaveUp:
    """A collective that a rank gave up after its timeout.

    Attributes
    ----------
    op, sequence, elements
        Its type, such as ``ALLREDUCE``, its number in the group, and the elements of its input,
        None if the line does not name them.
    timeout_s
        How long the rank waited for it.
    """

    op: str
    sequence: int
    elements: int | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The ranks that gave up the same collective, for each collective, and the silent ranks.

    Attributes
    ----------
    ranks_of
        The first collective that each rank gave up.
    silent
        Ranks of the log that printed no such line.
    """

    ranks_of: dict[GaveUp, tuple[int, ...]]
    silent: tuple[int, ...]

    def facts(self) -> list[Fact]:
        """Return who gave up what, the collective of most ranks first."""
        groups = sorted(self.ranks_of.items(), key=lambda item: (-len(item[1]), item[1]))
        found = [
            Fact(
                kind="gave-up",
                ranks=ranks,
                values={
                    "op": one.op,
                    "sequence": one.sequence,
                    "elements": one.elements,
                    "timeout_s": one.timeout_s,
                },
            )
            for one, ranks in groups[:_MOST]
        ]
        if self.silent and groups:
            found.append(Fact(kind="gave-up-nothing", ranks=self.silent))
        return found


def read(lines: Sequence[Line]) -> Timeouts:
    """Read the lines of a log; a line names its rank, or the launcher's mark does."""
    first: dict[int, GaveUp] = {}
    for line in lines:
        found = of_line(line.text, line.rank)
        if found is not None and found[0] is not None:
            first.setdefault(found[0], found[1])
    return Timeouts(_by_collective(first.items()), _silent(lines, first))


def of_line(text: str, marked: int | None) -> tuple[int | None, GaveUp] | None:
    """Return the rank that gave up, and what; None if the line is about something else.

    Parameters
    ----------
    marked
        The rank that the launcher's mark names, or None.
    """
    if (match := _GAVE_UP.search(text)) is None:
        return None
    own = int(match[1]) if match[1] else None
    elements = int(match[4]) if match[4] else None
    one = GaveUp(match[3], int(match[2]), elements, int(match[6]) / 1000)
    return own if marked is None else marked, one


def waited(text: str) -> float | None:
    """Return how long a rank had waited when it printed that it gave up."""
    match = _RAN_FOR.search(text)
    return int(match[1]) / 1000 if match else None


def _by_collective(given: Iterable[tuple[int, GaveUp]]) -> dict[GaveUp, tuple[int, ...]]:
    found: dict[GaveUp, list[int]] = defaultdict(list)
    for rank, one in given:
        found[one].append(rank)
    return {one: tuple(sorted(ranks)) for one, ranks in found.items()}


def _silent(lines: Sequence[Line], gave_up: dict[int, GaveUp]) -> tuple[int, ...]:
    """Return the ranks that the launcher's marks name and that gave nothing up."""
    return tuple(sorted({line.rank for line in lines if line.rank is not None} - set(gave_up)))
