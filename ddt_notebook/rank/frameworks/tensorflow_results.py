"""Notes whether the numbers that a training step returns are finite."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...model import Position
from ...model.tensorflow import NotFiniteResult
from ..probes.call_sites import CallSite
from ..user_signals import left_out

#: Results that are kept before they are read: one that was just computed takes ten times as long.
_MOST_UNREAD = 8

#: Name of a graph, its execution in this run, where it was executed, and its numbers.
_Unread = tuple[str, int, CallSite | Position | None, tuple[Any, ...]]


class ResultRecord:
    """The numbers that graphs with an optimizer's update returned in the current run."""

    def __init__(self) -> None:
        self._found: dict[str, NotFiniteResult] = {}
        self._unread: list[_Unread] = []
        #: Of each graph, the places of numbers in its list of results; None if it returns one.
        self._places: weakref.WeakKeyDictionary[Any, tuple[int, ...] | None] = (
            weakref.WeakKeyDictionary()
        )

    def begin_run(self) -> None:
        """Forget the run before."""
        self._found.clear()
        self._unread.clear()

    def returned(
        self,
        name: str,
        graph: Any,
        results: Any,
        executed: int,
        place: CallSite | Position | None,
    ) -> None:
        """Note what an execution of a graph returned."""
        try:
            places = self._places[graph]
        except KeyError:
            places = self._places[graph] = _places(results)
        if places is None:
            numbers: tuple[Any, ...] = (results,)
        elif places:
            numbers = tuple(results[at] for at in places)
        else:
            return
        self._unread.append((name, executed, place, numbers))
        if len(self._unread) == _MOST_UNREAD:
            self._read()

    def observed(self) -> tuple[NotFiniteResult, ...]:
        """The first result of each graph that was not finite."""
        self._read()
        return tuple(self._found.values())

    def _read(self) -> None:
        unread, self._unread = self._unread, []
        for name, executed, place, numbers in unread:
            value = None
            with left_out():  # the context in which it was computed may have ended
                value = _not_finite(numbers)
            known = self._found.get(name)
            if known is None and value:
                where = None
                if place is not None:
                    where = Position(file=place.file, line=place.line, function=place.function)
                found = NotFiniteResult(graph=name, where=where, value=value, executed=executed)
                self._found[name] = found
            elif known is not None and value == "" and known.lasting:
                self._found[name] = replace(known, lasting=False)


def _places(results: Any) -> tuple[int, ...] | None:
    if isinstance(results, (list, tuple)):
        return tuple(at for at, one in enumerate(results) if _is_number(one))
    return None if _is_number(results) else ()


def _is_number(result: Any) -> bool:
    kind = getattr(result, "dtype", None)
    return kind is not None and bool(kind.is_floating) and result.shape.rank == 0


def _not_finite(numbers: Sequence[Any]) -> str:
    """``"nan"`` or ``"inf"`` if one of the numbers is that; else empty."""
    for one in numbers:
        value = float(one)
        if not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf"
    return ""
