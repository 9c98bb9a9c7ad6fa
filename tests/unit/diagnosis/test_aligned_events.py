"""The events of two ranks, laid beside each other."""

from __future__ import annotations

from ddt_notebook.diagnosis.aligned_events import align
from ddt_notebook.model.branches import BranchKind, BranchOutcome


def event(function: str, line: int, to_line: int = 0, kind: BranchKind = "branch") -> BranchOutcome:
    return BranchOutcome(file="train.py", line=line, function=function, kind=kind, to_line=to_line)


FORWARD = event("forward", 5, kind="return")
#: A step of training, which calls the model; a loop around it goes on.
STEP = [FORWARD, event("step", 12, kind="return"), event("fit", 40, 41)]
DRAW = event("sample", 20, 21)
NO, YES = event("report", 30, 0), event("report", 30, 31)
LEFT = event("report", 31, kind="return")
SAMPLE = [DRAW, FORWARD, DRAW, FORWARD, event("sample", 20, 0), event("sample", 22, kind="return")]


def test_a_function_that_both_ranks_call_from_different_places_is_no_meeting() -> None:
    """One rank alone samples with the model; the other one calls the model in its next step."""
    one = [*STEP, YES, *SAMPLE, LEFT, *STEP, *STEP]
    other = [*STEP, NO, LEFT, *STEP, *STEP]
    (parting,) = align(one, other, (0, 0))
    assert (parting.absent, parting.waiter) == (YES, NO)
    assert parting.apart == ((3, one.index(LEFT)), (3, other.index(LEFT)))


def test_where_the_callers_are_not_known_the_line_counts() -> None:
    """The ranks have not yet returned to the function that calls the model."""
    one, other = [event("step", 8, 9), FORWARD], [event("step", 8, 10), FORWARD]
    (parting,) = align(one, other, (100, 200))
    assert parting.apart == ((100, 101), (200, 201))


def test_a_loop_that_asks_its_loader_once_more_on_one_rank_parts_at_the_loop() -> None:
    """One rank's loader works for its next batch when the other rank's loop has ended."""
    item, more, ends = event("item", 3, kind="return"), event("fit", 40, 41), event("fit", 40, 50)
    one = [item, item, more, ends, item, item]
    other = [item, item, more, item, item, more]
    (parting,) = align(one, other, (0, 0))
    assert (parting.absent, parting.waiter) == (ends, more)


def test_a_generator_that_goes_on_later_is_no_function_that_returned() -> None:
    """A sampler of unequal batches yields; its events of the next round are another call."""
    draw, item = event("sampler", 27, 28), event("item", 3, kind="return")
    more, ends = event("fit", 40, 41), event("fit", 40, 50)
    step = [event(name, 9, kind="return") for name in ("forward", "loss", "report", "sync")]
    large, small = [*[draw] * 6, item, *step], [*[draw] * 3, item, *step]
    one = [more, *large, more, *large, ends]
    other = [more, *small, more, *small, more, *small, more]
    (parting,) = align(one, other, (0, 0))
    assert (parting.absent, parting.waiter) == (ends, more)
    assert parting.apart == ((len(one) - 1, None), (2 * len(small) + 2, None)), "no later round"
