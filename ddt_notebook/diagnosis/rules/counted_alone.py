"""A rule about libraries that take each rank for the only process."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.communication import reduce_nothing
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.agreements import Given, broken
from ddt_notebook.model.frameworks import described
from ddt_notebook.model.frameworks.accelerate import PROCESSES


def counted_alone(context: Context) -> Iterator[Finding]:
    """Report ranks that train alike, each as if it were alone, and exchange nothing.

    Ranks that give the library other arguments may each train something of their own.
    """
    snapshot = context.snapshot
    if snapshot.outcome != "ok" or snapshot.world_size < 2:
        return
    counts: dict[str, dict[int, list[Given]]] = {}
    for one in context.agreements:
        found = [given for given in one.given if given.what == PROCESSES]
        if found:
            counts.setdefault(one.framework, {})[one.rank] = found
    stepped = {one.rank for one in snapshot.training if any(o.steps for o in one.optimizers)}
    for framework, by_rank in counts.items():
        if len(by_rank) < snapshot.world_size or not by_rank.keys() <= stepped:
            continue
        if any(given.value != "1" for found in by_rank.values() for given in found):
            continue
        if any(one.framework == framework for one in broken(context.agreements)):
            continue
        if not reduce_nothing(snapshot.ranks):
            continue
        yield conclude(
            "D.2.2",
            "counted-alone",
            cause="accelerate-ranks-train-alone",
            ranks=sorted(by_rank),
            values={"library": described(framework).title, "size": snapshot.world_size},
            places={
                rank: context.place(found[-1].where, "called")
                for rank, found in sorted(by_rank.items())
            },
            facts=[Fact(kind="counts-one-process", ranks=tuple(sorted(by_rank)))],
            confidence="likely",
        )
        return


RULES = (counted_alone,)
