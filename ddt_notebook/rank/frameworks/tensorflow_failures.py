"""Finds the user's line of an operation that failed inside of a graph or of a pipeline.

TensorFlow raises where the program reads the next batch or executes a graph, and names the
operation. Where the operation was made is known to its graph, if that is still there.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...model import Position
from .tensorflow_forms import graphs_of, operations_of

#: How TensorFlow names operations in the text of an exception, the one that failed first.
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
#: Operations that read the next element of a pipeline.
_READS = re.compile(r"Iterator\w*GetNext|OptionalGetValue")
#: The graph that was executed.
_EXECUTED = re.compile(r"\[Op:(\w+)\]")
_COLLECTIVE = "Collective"
#: Pipelines that are remembered.
_MOST = 50


class FailedOperations:
    """The pipelines of the current run, and where operations that fail were made.

    Parameters
    ----------
    users_line
        Finds the user's line that made an operation.
    """

    def __init__(self, users_line: Callable[[Any], Position | None]) -> None:
        self._users_line = users_line
        #: The functions of pipelines, which live as long as those.
        self._of_pipelines: weakref.WeakSet[Any] = weakref.WeakSet()
        #: The graphs that were executed, by TensorFlow's name.
        self._executed: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def begin_run(self) -> None:
        """Forget the run before."""
        self._of_pipelines.clear()
        self._executed.clear()

    def distributes(self, dataset: Any) -> None:
        """Remember the functions of a pipeline."""
        for graph in graphs_of(dataset):
            if len(self._of_pipelines) < _MOST:
                self._of_pipelines.add(graph)

    def executes(self, name: str, graph: Any) -> None:
        """Remember a graph that is executed."""
        self._executed[name] = graph

    def where(self, error: BaseException, text: str) -> Position | None:
        """The line of the operation that an exception names; None if it is not certain."""
        if not hasattr(error, "experimental_payloads"):
            return None
        read = _READS.search(text) is not None
        executed = _EXECUTED.search(text)
        graphs: Iterable[Any] = ()
        if read:
            graphs = list(self._of_pipelines)
        elif executed is not None and executed[1] in self._executed:
            graphs = [self._executed[executed[1]]]
        for name in _NODE.findall(text):
            failed = [op for graph in graphs for op in _named(graph, name)]
            if any(op.type.startswith(_COLLECTIVE) for op in failed):
                return None  # another worker is missing
            lines = {line for op in failed if (line := self._users_line(op)) is not None}
            if lines:
                return lines.pop() if len(lines) == 1 else None
        return None


def _named(graph: Any, name: str) -> Iterator[Any]:
    """The operations of a graph, and of functions in it, that have a name."""
    return (op for op in operations_of(graph) if name == op.name or name.endswith(f"/{op.name}"))
