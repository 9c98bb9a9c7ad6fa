"""Counts the graphs of backward passes that are alive at once, because something keeps losses."""

from __future__ import annotations

import weakref
from typing import Any

#: The number of backward passes in a run whose graphs are watched: 1 µs each. A loop that keeps its
#: graphs for longer than this keeps them for an epoch.
WATCHED = 32
#: The loss and this many operations before it are marked: a list may hold the model's output.
_DEPTH = 3


class _Mark:
    """An object that a node of a graph holds."""

    __slots__ = ("__weakref__",)


class KeptGraphs:
    """The graphs of the first backward passes of a run."""

    def __init__(self) -> None:
        self._marks: list[list[weakref.ref[_Mark]]] = []
        self._most = 0

    def add(self, loss: Any) -> None:
        """Mark the graph of a backward pass, while fewer than `WATCHED` are."""
        if len(self._marks) == WATCHED:
            return
        marks, node = [], loss.grad_fn
        for _ in range(_DEPTH):
            if node is None or "AccumulateGrad" in node.name():  # it lives as long as its parameter
                break
            mark = node.metadata["ddt"] = _Mark()
            marks.append(weakref.ref(mark))
            inputs, node = node.next_functions, None
            for node, _ in inputs:
                if node is not None:
                    break
        self._marks.append(marks)
        if len(self._marks) == WATCHED:
            self._most = self.alive()

    def alive(self) -> int:
        """How many of the graphs are alive now."""
        return sum(any(mark() is not None for mark in marks) for marks in self._marks)

    def most(self) -> int:
        """How many were alive when the last of them was marked; 0 if there were fewer passes."""
        return self._most
