"""The user's line of a call, and the library through which it was made."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import pytest

from ddt_notebook.rank.probes import calls
from ddt_notebook.rank.probes.call_sites import CallSites, locate
from ddt_notebook.wire.records import CallRecord


def made_by(*files: str) -> CallRecord:
    """The record of a call that is made through one function of each file, outermost first."""
    record = CallRecord(op="all_gather")

    def make() -> None:
        locate(record, CallSites().of(sys._getframe(1)))

    call: Callable[[], None] = make
    for file in reversed(files):
        names = {"inner": call}
        exec(compile("def outer():\n    inner()", file, "exec"), names)
        call = names["outer"]
    call()
    return record


@pytest.mark.parametrize(
    ("through", "library"),
    [
        ((), None),
        (("/env/lib/python3.11/site-packages/accelerate/utils/operations.py",), 0),
        (("/env/site-packages/transformers/trainer.py", "/env/site-packages/accelerate/a.py"), 1),
        (("/env/site-packages/accelerate/a.py", f"{calls.dist.__file__}"), 0),
        (("/usr/lib/python3.11/contextlib.py",), None),
    ],
)
def test_the_library_next_to_the_call_is_kept(
    through: tuple[str, ...], library: int | None
) -> None:
    record = made_by("/project/train.py", *through)
    assert (record.file, record.line) == ("/project/train.py", 2)
    assert record.library == (None if library is None else through[library])


def test_a_known_part_of_torch_counts_more_than_the_library_that_uses_it() -> None:
    wrapper = calls.dist.__file__.replace("distributed/__init__", "nn/parallel/distributed")
    record = made_by("cell[1]", "/env/site-packages/lightning/trainer.py", wrapper)
    assert (record.file, record.library) == ("cell[1]", "nn/parallel/distributed.py")


def test_a_callback_of_the_user_is_nearer_than_the_library_that_runs_it() -> None:
    record = made_by("/project/train.py", "/env/site-packages/lightning/fit.py", "/project/cb.py")
    assert (record.file, record.library) == ("/project/cb.py", None)


#: Of a program in two cells, its files and a library: which functions call each other.
_FILES = {
    "fit": "/env/site-packages/lightning/fit.py",
    "own": "/env/site-packages/lightning/own.py",
    "gather": "/env/site-packages/accelerate/gather.py",
    "callback": "/project/callback.py",
    "train": "/project/train.py",
}


def test_each_stack_gives_its_place_whatever_was_on_the_stack_before() -> None:
    sites = CallSites()
    found: list[tuple[object, ...]] = []

    def make(_: object) -> None:
        frame = sys._getframe(1)
        known, fresh = CallRecord(op="all_gather"), CallRecord(op="all_gather")
        locate(known, sites.of(frame))
        locate(fresh, CallSites().of(frame))
        assert known == fresh
        found.append((known.file, known.line, known.callers, known.library))

    programs = [
        ["train", "fit", "own", "gather"],
        ["train", "fit", "callback", "gather"],  # the user's in place of the library's own
        ["train", "fit", "own", "own", "gather"],
        ["train", "train", "fit", "gather"],
        ["gather"],
        ["train"],
    ]
    functions = {
        name: compile("def outer(way):\n    way[0](way[1:])\n", file, "exec")
        for name, file in _FILES.items()
    }

    def function(name: str) -> Callable[..., None]:
        names: dict[str, Callable[..., None]] = {}
        exec(functions[name], names)
        return names["outer"]

    named = {name: function(name) for name in _FILES}
    twice = compile("go()\ngo()\n", "cell[1]", "exec")
    for order in (programs, programs[::-1], [one for one in programs for _ in range(2)]):
        for program in order:
            first, *way = *(named[name] for name in program), make
            exec(twice, {"go": functools.partial(first, way)})
    # the cell has two lines, and it makes no difference how often the library calls itself
    assert len(set(found)) == 2 * (len(programs) - 1)
