"""Which line made an operation that TensorFlow names in an exception."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from ddt_notebook.model import Position
from ddt_notebook.rank.frameworks.tensorflow_failures import FailedOperations

_NEXT = "[[{{node %s}}]]\n\t [[IteratorGetNext]] [Op:__inference_step_7]"
_STEP = "[[{{node %s}}]] [Op:__inference_step_7]"


@dataclass(frozen=True)
class _Operation:
    name: str
    type: str
    line: int | None


class _Graph:
    def __init__(self, **lines: int | None) -> None:
        self._operations = [
            _Operation(name=name, type=name.partition("_")[0], line=line)
            for name, line in lines.items()
        ]
        self._functions: dict[str, Any] = {}

    def get_operations(self) -> list[Any]:
        return self._operations


class _Step:
    def __init__(self, graph: _Graph, *before: _Step) -> None:
        self._map_func = SimpleNamespace(function=SimpleNamespace(graph=graph))
        self._before = before

    def _inputs(self) -> tuple[_Step, ...]:
        return self._before


class _Failed(Exception):
    experimental_payloads: ClassVar[dict[str, str]] = {}


def _line(op: Any) -> Position | None:
    return Position(file="cell[1]", line=op.line, function="load") if op.line else None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (_NEXT % "Reshape", 3),
        (_NEXT % "while/body/Reshape", 3),
        (_NEXT % "Cast", None),
        (_NEXT % "Add", None),
        (_NEXT % "Mul", None),
        (_STEP % "Reshape", 9),
        (_STEP % "CollectiveReduceV2_1", None),
        ("[[{{node Reshape}}]] [Op:__inference_other_8]", None),
    ],
    ids=[
        "in a pipeline",
        "in a loop",
        "of a library",
        "two of one name",
        "not there",
        "in a step",
        "another worker is missing",
        "another graph",
    ],
)
def test_the_line_of_the_operation_is_found_in_its_graph(text: str, line: int | None) -> None:
    record = FailedOperations(_line)
    first = _Step(_Graph(Reshape=3, Cast=None, Add=4))
    last = _Step(_Graph(Add=6), first)
    record.distributes(last)
    step = _Graph(Reshape=9, CollectiveReduceV2_1=12)
    record.executes("__inference_step_7", step)
    found = record.where(_Failed(text), text)
    assert (found.line if found is not None else None) == line
    assert record.where(ValueError(text), text) is None
    record.begin_run()
    assert record.where(_Failed(text), text) is None
