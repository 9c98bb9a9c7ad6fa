"""Sums of what each rank averaged over a loop of its own, shown as the mean: no processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Snapshot
from ddt_notebook.model.exchanged import Exchanged, RankExchanged
from ddt_notebook.model.shown import EvaluatedInput, RankShown, ShownNumber

from .builders import at, only, rank, snapshot

DIVIDED = """mean = 0.0
for _ in range(steps):
    loss = evaluate(next_batch())
    loss = loss / steps
    mean += loss.detach()
dist.all_reduce(mean)
print(f"validation loss {mean.item():.4f}")
"""
DIVIDED_BEHIND = """mean = 0.0
for batch in batches:
    mean += evaluate(batch)
mean /= len(batches)

dist.all_reduce(mean)
print(f"validation loss {mean.item():.4f}")
"""
COUNTED = """mean, count = 0.0, 0
for batch in batches:
    count += 1; mean += evaluate(batch)
mean = mean / count

dist.all_reduce(mean)
print(f"validation loss {mean.item():.4f}")
"""
PER_RANK = """mean = 0.0
for _ in range(steps):
    mean += evaluate(next_batch()) / world_size


dist.all_reduce(mean)
print(f"validation loss {mean.item():.4f}")
"""
SUMMED = """mean = 0.0
for _ in range(steps):
    mean += evaluate(next_batch())


dist.all_reduce(mean)
print(f"validation loss {mean.item():.4f}")
"""


def scene(source: str, shown: str, *, reduce_op: str = "SUM", equal: bool = False) -> Snapshot:
    """Two ranks whose losses are 2.5 and 2.75; rank 0 writes a number."""
    made = snapshot(rank(0), rank(1), source=source)
    written = (ShownNumber(where=at(7), number=shown, text=f"validation loss {shown}"),)
    exchanged = tuple(
        RankExchanged(
            rank=number,
            values=(
                Exchanged(
                    op="all_reduce",
                    where=at(6),
                    number=1,
                    members=(0, 1),
                    reduce_op=reduce_op,
                    given=(given,),
                    result=(5.25,),
                    written=written if number == 0 else (),
                ),
            ),
        )
        for number, given in enumerate((2.5, 2.75))
    )
    fed = tuple(
        RankShown(
            rank=number,
            inputs=(
                EvaluatedInput(content=7 if equal else number, storage_bytes=80, offset=number),
            ),
            evaluated=1,
        )
        for number in range(2)
    )
    return replace(made, exchanged=exchanged, shown=fed)


@pytest.mark.parametrize(
    ("source", "line"),
    [(DIVIDED, 4), (DIVIDED_BEHIND, 4), (COUNTED, 4)],
    ids=["in", "behind", "own"],
)
def test_a_sum_of_means_that_is_shown_for_the_mean(source: str, line: int) -> None:
    finding = only(diagnose(scene(source, "5.2500")))
    assert (finding.kind, finding.cause, finding.ranks) == (
        "sum-of-means",
        "sum-shown-as-mean",
        [0],
    )
    places = [fact.place.line for fact in finding.facts if fact.place is not None]
    assert (finding.places[0].line, places) == (7, [6, line])


@pytest.mark.parametrize(
    "made",
    [
        scene(DIVIDED, "2.6250"),  # divided behind the call
        scene(DIVIDED, "5.2500", equal=True),  # every rank evaluates all
        scene(DIVIDED, "5.2500", reduce_op="MAX"),
        scene(PER_RANK, "5.2500"),  # a sum of sums, of which each rank's is a part
        scene(SUMMED, "5.2500"),
    ],
    ids=["mean", "equal-inputs", "max", "per-rank", "summed"],
)
def test_look_alikes_are_silent(made: Snapshot) -> None:
    assert diagnose(made).ok
