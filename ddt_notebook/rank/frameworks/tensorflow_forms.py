"""Describes what graphs and pipelines compute, so that those of several workers can be compared.

Of a graph it lists the numbers in it, by the user's line that put them there: a temperature, the
rate of a dropout. Of a pipeline it lists the steps and a fingerprint of their functions.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

from ...model import Position
from ...model.tensorflow import LineNumbers, PipelineStep

#: Operations of a graph that are looked at, lines that are kept, and numbers of a line.
_MOST_OPERATIONS, _MOST_LINES, _MOST_NUMBERS = 20_000, 64, 32
#: Functions within functions that are looked into, and steps of a pipeline.
_DEEPEST, _MOST_STEPS = 4, 32

#: Finds the user's line that made an operation.
_Line = Callable[[Any], Position | None]


def numbers_of(graph: Any, users_line: _Line) -> tuple[LineNumbers, ...]:
    """The numbers with a fraction that a graph computes with, by the lines that put them there."""
    found: dict[Position, list[float]] = {}
    for at, (op, value) in enumerate(_numbers(graph, _DEEPEST)):
        where = users_line(op) if at < _MOST_LINES * _MOST_NUMBERS else None
        if where is not None and (where in found or len(found) < _MOST_LINES):
            found.setdefault(where, []).append(value)
    return tuple(
        LineNumbers(where=where, numbers=tuple(numbers[:_MOST_NUMBERS]))
        for where, numbers in found.items()
    )


def form_of(graph: Any) -> int:
    """A fingerprint of the operations of a graph and the shapes of their results."""
    form = 0
    for op in _operations(graph, _DEEPEST):
        shapes = [one.shape for one in op.outputs]
        form = zlib.crc32(f"{op.type} {shapes}".encode(), form)
    return form


def operations_of(graph: Any) -> Iterator[Any]:
    """The operations of a graph, and of the functions within it."""
    return _operations(graph, _DEEPEST)


def graphs_of(dataset: Any) -> Iterator[Any]:
    """The graphs of the functions that the steps of a pipeline call."""
    for step in _steps(dataset):
        yield from _graphs(step)


def steps_of(dataset: Any) -> tuple[PipelineStep, ...]:
    """The steps of a pipeline, the first one first."""
    return tuple(_step(one) for one in [*_steps(dataset)][:_MOST_STEPS])[::-1]


def _steps(dataset: Any) -> Iterator[Any]:
    yield dataset
    for before in dataset._inputs():
        yield from _steps(before)


def _step(dataset: Any) -> PipelineStep:
    name = type(dataset).__name__.strip("_").removesuffix("Dataset")
    content = 0
    for graph in _graphs(dataset):
        kinds = ",".join(one.type for one in _operations(graph, _DEEPEST))
        numbers = [value for _, value in _numbers(graph, _DEEPEST)]
        content = zlib.crc32(f"{kinds} {numbers}".encode(), content)
    return PipelineStep(name=name, content=content)


def _graphs(step: Any) -> Iterator[Any]:
    for wrapper in vars(step).values():
        graph = getattr(getattr(wrapper, "function", None), "graph", None)
        if graph is not None and hasattr(graph, "get_operations"):
            yield graph


def _operations(graph: Any, deepest: int) -> Iterator[Any]:
    for at, op in enumerate(graph.get_operations()):
        if at == _MOST_OPERATIONS:
            return
        yield op
    if deepest:
        for function in getattr(graph, "_functions", {}).values():
            inner = getattr(function, "graph", None)
            if inner is not None:
                yield from _operations(inner, deepest - 1)


def _numbers(graph: Any, deepest: int) -> Iterator[tuple[Any, float]]:
    for op in _operations(graph, deepest):
        if op.type != "Const" or not op.outputs[0].dtype.is_floating:
            continue
        if op.outputs[0].shape.rank == 0:
            tensor = op.get_attr("value")
            yield op, _value(tensor)


def _value(tensor: Any) -> float:
    from tensorflow.python.framework import tensor_util

    return float(tensor_util.MakeNdarray(tensor))
