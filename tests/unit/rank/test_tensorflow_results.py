"""Numbers that TensorFlow's graphs return, read a few executions later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ddt_notebook.model import Position
from ddt_notebook.model.tensorflow import NotFiniteResult
from ddt_notebook.rank.frameworks.tensorflow_results import ResultRecord

_AT = Position(file="cell[1]", line=7, function="<module>")


class _Graph:
    """A graph, which can be the key of a weak dictionary."""


class _Number:
    def __init__(self, value: float, floating: bool = True) -> None:
        self.value = value
        self.dtype = SimpleNamespace(is_floating=floating)
        self.shape = SimpleNamespace(rank=0)

    def __float__(self) -> float:
        return self.value


class _Gone(_Number):
    def __float__(self) -> float:
        raise RuntimeError("its context has ended")


def _observed(results: list[Any]) -> tuple[NotFiniteResult, ...]:
    record, graph = ResultRecord(), _Graph()
    for executed, result in enumerate(results):
        record.returned("step()", graph, result, executed, _AT)
    return record.observed()


@pytest.mark.parametrize("first", [0, 3, 7, 8, 17])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_the_first_execution_that_returned_it_is_known_though_it_is_read_later(
    first: int, value: str
):
    results = [_Number(1.0 if at < first else float(value)) for at in range(20)]
    expected = NotFiniteResult(graph="step()", where=_AT, value=value, executed=first)
    assert _observed(results) == (expected,)


@pytest.mark.parametrize("after", [2, 12])
def test_one_that_is_finite_again_is_not_lasting(after: int):
    results = [_Number(1.0), _Number(float("nan")), *[_Number(1.0)] * after]
    (found,) = _observed(results)
    assert not found.lasting
    assert found.executed == 1


def test_only_floating_numbers_among_the_results_are_read():
    vector = SimpleNamespace(dtype=SimpleNamespace(is_floating=True), shape=SimpleNamespace(rank=1))
    assert _observed([[vector, "text", _Number(float("nan"), floating=False)]] * 9) == ()
    (found,) = _observed([(vector, _Number(float("inf")))])
    assert found.value == "inf"


def test_a_number_that_cannot_be_read_is_passed_by():
    (found,) = _observed([_Gone(0.0), _Number(float("nan"))])
    assert found.executed == 1


def test_another_run_begins_without_what_was_not_read():
    record = ResultRecord()
    record.returned("step()", _Graph(), _Number(float("nan")), 0, _AT)
    record.begin_run()
    assert record.observed() == ()
