"""Repairs that are none, repairs that are as good as the solution, and ways around the work."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddt_notebook.classroom.exercise import Exercise, exercise, exercise_names

#: Of every grading in the tests: any other would do.
SEED = 20
#: In front of a solution: each rank behaves as if it were the only one, and does all the work.
_ALONE = """
import contextlib
import types


class DDP(torch.nn.Module):
    def __init__(self, module, **_):
        super().__init__()
        self.module = module

    def forward(self, inputs):
        return self.module(inputs)

    def no_sync(self):
        return contextlib.nullcontext()

    join = no_sync


def nothing(*_, **__):
    return types.SimpleNamespace(wait=lambda: None)


calls = ("all_reduce", "broadcast", "barrier", "new_group")
dist = types.SimpleNamespace(ReduceOp=dist.ReduceOp, **dict.fromkeys(calls, nothing))
rank, world_size = 0, 1
"""
#: The sampler asks the process group itself; ranks that all write one file disturb one another; a
#: mesh needs the other ranks.
_ALONE_FAILS = {
    **dict.fromkeys(("fewer-ranks", "second-half", "too-early", "two-hosts", "whole-file"), ""),
    "new-epoch": "parity",
    "two-by-two": "ends",
}
#: Where cells that do nothing run on ranks; a unit test judges what they leave in all exercises.
_WITHOUT_WORK = ("shared-slice", "in-the-background")


@dataclass(frozen=True, slots=True)
class Case:
    """A cell, and the behaviour that fails; empty: any, or none of a right repair."""

    exercise: Exercise
    what: str
    source: str
    fails: str

    def __str__(self) -> str:
        return f"{self.exercise.name}: {self.what}"


def wrong_repairs() -> Iterator[Case]:
    """What people try, for each exercise."""
    return _edited("wrong")


def right_repairs() -> Iterator[Case]:
    """Repairs that differ from the solution, and are as good."""
    return _edited("right")


def _edited(kind: str) -> Iterator[Case]:
    for name in exercise_names():
        one = exercise(name)
        cases = tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text())
        for case in cases[kind]:
            source = getattr(one, case.get("base", "solution"))
            for old, new in case["edits"]:
                assert source.count(old) == 1, f"{name}, {case['what']}: {old!r}"
                source = source.replace(old, new)
            yield Case(one, case["what"], source, case.get("fails", ""))


def cheats() -> Iterator[Case]:
    """What gets around the work, for each exercise."""
    for name in exercise_names():
        one = exercise(name)
        if name in _WITHOUT_WORK:
            yield Case(one, "an empty cell", "", "reads-once")
            yield Case(one, "no training", "model = exercise.model()", "reads-once")
        fails = _ALONE_FAILS.get(name, "reads-once")
        yield Case(one, "every rank does all alone", f"{_ALONE}\n{one.solution}", fails)


def caught(one: Exercise) -> str:
    """The start, in which every exception is caught."""
    indented = one.start.replace("\n", "\n    ")
    return f"try:\n    {indented}\nexcept BaseException:\n    pass"
