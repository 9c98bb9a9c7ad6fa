"""Records which numbers that graphs returned a worker writes to its output.

A graph may return what a replica computed from its own batch, and not the sum or mean over all
replicas. Whether the numbers of the workers differ is known when they are compared. Results are
kept as they are, and read when a line with a number is written.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...model import Position
from ...model.tensorflow import GraphResults, ShownResult
from ..probes import shown
from ..user_signals import left_out

#: Graphs whose results are kept, results of one graph before one of them is written, and numbers
#: of a graph.
_MOST_GRAPHS, _MOST_UNREAD, _MOST_NUMBERS = 8, 1024, 4
#: The first executions of a graph whose results are compared between the workers.
_COMPARED = 4
#: Lines that are kept, and characters of a line.
_MOST_LINES, _LONGEST = 64, 160
_DECIMAL = re.compile(r"(?<![\w.])[-+]?\d+\.(\d+)(?:e([-+]?\d+))?(?![\w.]*\d)")
#: A shorter number may be equal to another one by chance.
_FEWEST_DIGITS = 3
#: Relative error of single precision, with some steps of computing.
_RELATIVE = 2e-6


@dataclass
class _Results:
    """What a graph returned since the run began."""

    executed: int = 0
    #: Executions that were not read yet.
    unread: list[tuple[Any, ...]] = field(default_factory=list)
    #: The numbers of the first executions.
    first: list[tuple[float, ...]] = field(default_factory=list)
    last: tuple[float, ...] = ()
    #: Since a sum or mean was written, how many executions there were and their sums.
    count: int = 0
    totals: list[float] = field(default_factory=list)
    #: Places of results that are a mean over the replica's own batch: an estimate.
    estimates: frozenset[int] = frozenset()

    def read(self) -> None:
        """Read what is not read yet."""
        unread, self.unread = self.unread, []
        for tensors in unread:
            numbers = tuple(float(one) for one in tensors)
            if len(self.first) < _COMPARED:
                self.first.append(numbers)
            self.last = numbers
            self.count += 1
            if len(self.totals) != len(numbers):
                self.totals = [0.0] * len(numbers)
            self.totals = [a + b for a, b in zip(self.totals, numbers, strict=True)]

    def forms(self) -> Iterator[tuple[int, str, float]]:
        """What programs compute from results: the place of the result, a name, and the value."""
        for at, value in enumerate(self.last):
            yield at, "last", value
            if self.count > 1:
                yield at, "total", self.totals[at]
                yield at, "mean", self.totals[at] / self.count
            for other, divisor in enumerate(self.last):
                if other != at and divisor:
                    yield at, "ratio", value / divisor


class ShownRecord:
    """The numbers that graphs returned in the current run, and where they were written."""

    def __init__(self) -> None:
        self._graphs: dict[str, _Results] = {}
        #: Of each graph, the places of numbers among its results.
        self._places: weakref.WeakKeyDictionary[Any, tuple[int, ...]] = weakref.WeakKeyDictionary()
        self._shown: dict[tuple[Position, str, int, str], ShownResult] = {}
        self._wrote: dict[Position, None] = {}

    def begin_run(self) -> None:
        """Forget the run before."""
        self._graphs.clear()
        self._shown.clear()
        self._wrote.clear()
        shown.RECORD.followers[:] = []

    def returned(
        self, graph: Any, results: Any, estimates: Callable[[Any], frozenset[int]]
    ) -> None:
        """Note what an execution of a graph returned; a function tells which are estimates."""
        try:
            places = self._places[graph]
        except KeyError:
            places = self._places[graph] = _places(results)
        if not places:
            return
        known = self._graphs.get(graph.name)
        if known is None:
            if len(self._graphs) == _MOST_GRAPHS:
                return
            known = self._graphs[graph.name] = _Results()
            means = estimates(graph)
            known.estimates = frozenset(n for n, at in enumerate(places) if at in means)
            if not shown.RECORD.followers:
                shown.RECORD.followers.append(self._follow)
        known.executed += 1
        several = isinstance(results, (list, tuple))
        known.unread.append(tuple(results[at] for at in places) if several else (results,))
        if len(known.unread) == _MOST_UNREAD:
            known.read()

    def observed(self) -> dict[str, Any]:
        """What was observed, as fields of `RankTensorFlow`."""
        for one in self._graphs.values():
            with left_out():  # the context in which it was computed may have ended
                one.read()
        return {
            "results": tuple(
                GraphResults(graph=name, first=tuple(one.first))
                for name, one in self._graphs.items()
            ),
            "shown": tuple(self._shown.values()),
            "wrote": tuple(self._wrote),
        }

    def _follow(self, line: str, whole: str) -> None:
        numbers = [
            one
            for one in _DECIMAL.finditer(line)
            if sum(map(str.isdigit, one[0].partition("e")[0].lstrip("-+0."))) >= _FEWEST_DIGITS
        ]
        where = shown.line_of_text(sys._getframe(), numbers[0][0]) if numbers else None
        if where is None or (where not in self._wrote and len(self._wrote) == _MOST_LINES):
            return
        self._wrote[where] = None
        for name, one in self._graphs.items():
            with left_out():
                one.read()
            forms = list(one.forms())
            for number in numbers:
                value = float(number[0])
                digits = len(number[1]) - int(number[2] or 0)
                near = max(0.51 * 10.0**-digits, abs(value) * _RELATIVE)
                for at, form, result in forms:
                    if any(abs(scaled - value) <= near for scaled in (result, 100 * result)):
                        self._show(where, name, at, form, whole.strip()[:_LONGEST], one)
                        if form in ("total", "mean"):
                            one.count, one.totals = 0, []

    def _show(
        self, where: Position, graph: str, at: int, form: str, text: str, results: _Results
    ) -> None:
        key = where, graph, at, form
        if key in self._shown or len(self._shown) < _MOST_LINES:
            self._shown[key] = ShownResult(
                where=where, graph=graph, at=at, text=text, estimate=at in results.estimates
            )


def _places(results: Any) -> tuple[int, ...]:
    if isinstance(results, (list, tuple)):
        found = (at for at, one in enumerate(results) if _is_number(one))
        return tuple(found)[:_MOST_NUMBERS]
    return (0,) if _is_number(results) else ()


def _is_number(result: Any) -> bool:
    kind = getattr(result, "dtype", None)
    numeric = kind is not None and (kind.is_floating or kind.is_integer)
    return bool(numeric) and getattr(result.shape, "rank", None) == 0
