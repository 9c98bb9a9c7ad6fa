"""Ranks of which Accelerate counts each one as the only process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddt_notebook.diagnosis.run_rules import diagnose
from ddt_notebook.model import Call, Report
from ddt_notebook.model.frameworks.accelerate import MADE, PROCESSES
from ddt_notebook.model.frameworks.transformers import TRAIN
from ddt_notebook.model.training import OptimizerTraining, RankTraining

from .builders import all_reduce, at, only, rank, snapshot


def settings(op: str = TRAIN, **given: str) -> Call:
    return Call(index=0, op=op, kind="setup", where=at(7), detail=json.dumps(given))


def told(*calls: tuple[Call, ...], steps: int = 3, **fields: Any) -> Report:
    """The report of two ranks that trained."""
    optimizer = OptimizerTraining(name="optimizer", kind="AdamW", steps=steps)
    training = tuple(RankTraining(rank=number, optimizers=(optimizer,)) for number in range(2))
    reports = [rank(number, *own) for number, own in enumerate(calls)]
    return diagnose(snapshot(*reports, training=training, **fields))


@pytest.mark.parametrize("op", [TRAIN, MADE])
def test_ranks_that_a_library_counts_alone_are_named_at_the_users_line(op: str) -> None:
    one = settings(op, **{PROCESSES: "1"})
    finding = only(told((one,), (one,)))
    assert (finding.symptom, finding.cause) == ("D.2.2", "accelerate-ranks-train-alone")
    assert finding.ranks == [0, 1]
    assert {place.line for place in finding.places.values()} == {7}


def test_ranks_that_train_together_or_each_something_else_are_not_accused() -> None:
    one, both = settings(**{PROCESSES: "1"}), settings(**{PROCESSES: "2"})
    assert told((both,), (both,)).ok
    assert told((one,), ()).ok, "only one rank uses the library"
    assert told((one, all_reduce()), (one, all_reduce())).ok, "the program averages by itself"
    assert told((one,), (one,), steps=0).ok, "nothing was trained"
    searched = [settings(**{PROCESSES: "1", "max_steps": number}) for number in ("3", "6")]
    assert told(*((one,) for one in searched)).ok, "each tries other arguments"
    first = settings()
    assert told((first,), (first,)).ok, "another version"
