"""A rank's own sum that is divided by what all ranks have counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Report
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition, pack_indices
from ddt_notebook.model.shown import Accumulated, RankShown, ShownNumber

from .builders import at, only, rank, snapshot

SOURCE = """\
for x in loader:
    logs["loss"] += loss(x)
    logs["count"] += mask(x)
logs["count"] = gather(logs["count"]).sum()
if rank == 0:
    print(logs["loss"] / logs["count"])
"""
LOSSES, COUNTS = (61.5, 72.25), (28.0, 23.0)
#: What rank 0 shows.
OWN, ALL = f"{LOSSES[0] / sum(COUNTS):.4f}", f"{sum(LOSSES) / sum(COUNTS):.4f}"


def report(shown: str, given: tuple[tuple[float, ...], ...], count: str = "logs.count") -> Report:
    made = snapshot(rank(0), rank(1), source=SOURCE)
    partition, ranks = [], []
    for number, part in enumerate(([0, 2], [1, 3])):
        epoch = Epoch(number=1, run=1, batches=2, samples=2, where=at(1))
        bits = sum(1 << index for index in part).to_bytes(1, "little")
        loader = LoaderPartition(
            name="loader", dataset="Set", epochs=(epoch,), handed_out=pack_indices(bits)
        )
        partition.append(RankPartition(rank=number, run=1, loaders=(loader,)))
        sums = tuple(
            Accumulated(
                name=name,
                loop=at(1),
                epoch=1,
                batches=2,
                samples=2,
                even=True,
                total=total,
                weighted=total,
            )
            for name, total in (("logs.loss", LOSSES[number]), (count, COUNTS[number]))
        )
        written = (ShownNumber(where=at(6), number=shown, text=shown),) if number == 0 else ()
        ranks.append(RankShown(rank=number, accumulated=sums, given=given[number], numbers=written))
    return diagnose(replace(made, partition=tuple(partition), shown=tuple(ranks)))


COUNTED = tuple((count,) for count in COUNTS)
BOTH = tuple(zip(LOSSES, COUNTS, strict=True))


def test_the_sum_of_one_rank_over_the_count_of_all() -> None:
    finding = only(report(OWN, COUNTED))
    assert (finding.symptom, finding.cause) == ("D.2.4", "metric-not-reduced")
    assert (finding.ranks, finding.places[0].line) == ([0], 6)


@pytest.mark.parametrize(
    ("shown", "given", "count"),
    [
        (ALL, BOTH, "logs.count"),  # sums of all
        (OWN, BOTH, "logs.count"),  # the sums were given, too
        (OWN, ((), ()), "logs.count"),  # no count was given
        (OWN, COUNTED, "other.count"),  # a number of something else
        ("0.1234", COUNTED, "logs.count"),
    ],
)
def test_look_alikes(shown: str, given: tuple[tuple[float, ...], ...], count: str) -> None:
    assert not report(shown, given, count).findings
