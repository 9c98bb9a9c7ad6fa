"""How soon a failure is reported with its cause, if a rank raises or stays away."""

from __future__ import annotations

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Report

from .common import Figure, check, median_of, run_checked, seconds, session

RAISES = """
if rank == 1:
    raise ValueError("broken input on one rank")
dist.all_reduce(torch.ones(10))
"""
STAYS_AWAY = """
if rank != 1:
    dist.all_reduce(torch.ones(10))
"""


def measure() -> list[Figure]:
    return [
        _figure("a rank raises, its peers wait: back with the cause", RAISES, 1.0),
        # Two of these seconds are `hang_after`, which the user may set.
        _figure("a rank stays away: named, others freed, variables alive", STAYS_AWAY, 3.0),
    ]


def _figure(what: str, source: str, limit: float) -> Figure:
    with session() as active:
        run_checked(active, "kept = rank + 1")

        def once() -> float:
            took = seconds(lambda: reports.append(diagnose(active.run(source).snapshot)))
            finding = reports[-1].findings[0]
            check(finding.ranks == [1], f"named ranks {finding.ranks} instead of rank 1")
            run_checked(active, "assert kept == rank + 1; dist.barrier()")
            return took

        reports: list[Report] = []
        took, note = median_of(once, 5)
    return Figure(what, took, limit, "s", note=note)


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
