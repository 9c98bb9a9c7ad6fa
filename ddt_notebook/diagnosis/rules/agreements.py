"""Rules about values that a framework needs equal on some ranks, or different on them."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.agreements import Broken, alike, broken
from ddt_notebook.model.frameworks import described

_SYMPTOMS = {"hung": "D.2.1", "failed": "D.1.1"}
_OF_SETUP = {"hung": "B.2", "failed": "B.2"}


def given_apart(context: Context) -> Iterator[Finding]:
    """Report what differs first, once for each cause.

    Parameters that differ are reported only if nothing explains it.
    """
    snapshot = context.snapshot
    seen: set[str] = set()
    for one in broken(context.agreements):
        if one.axis == "training" and snapshot.outcome == "ok":
            continue  # ranks may well train with other batch sizes
        cause = described(one.framework).causes.get(one.what.partition(" ")[0])
        is_parameter = one.what.startswith("parameter ")
        if cause is None or cause in seen or (is_parameter and seen):
            continue
        lines = {given.where for given in one.given.values()}
        if len(lines) > 1 or (is_parameter and one.number > 1 and snapshot.outcome != "ok"):
            continue  # a rank that is elsewhere may well be given something else
        seen.add(cause)
        yield _finding(context, one, cause)


def given_alike(context: Context) -> Iterator[Finding]:
    """Report batches that all replicas of a model train on."""
    if context.snapshot.outcome != "ok":
        return
    for one in alike(context.agreements):
        cause = described(one.framework).alike.get((one.what, one.axis))
        if cause is None:
            continue
        places = {rank: context.place(given.where, "called") for rank, given in one.given.items()}
        yield conclude(
            "C.7",
            "given-alike",
            cause=cause,
            ranks=sorted(one.given),
            values={"what": one.what, "axis": one.axis},
            places=dict(sorted(places.items())),
            facts=[],
            confidence="likely",
        )
        return


def _finding(context: Context, one: Broken, cause: str) -> Finding:
    # a tensor's value is a fingerprint, which would say nothing
    numbers = () if one.what.startswith(("parameter ", "tokens")) else tuple(one.values.items())
    facts = [
        Fact(kind="given", ranks=tuple(ranks), values={"what": one.what, "value": value})
        for value, ranks in numbers
    ]
    return conclude(
        (_OF_SETUP if one.axis == "world" else _SYMPTOMS).get(context.snapshot.outcome, "D.2.4"),
        "given-apart",
        cause=cause,
        ranks=sorted(one.given),
        values={
            "what": one.what,
            "axis": one.axis,
            "number": one.number,
            "among": next(iter(one.given.values())).among,
        },
        places={
            rank: context.place(given.where, "called") for rank, given in sorted(one.given.items())
        },
        facts=facts,
    )


RULES = (given_apart, given_alike)
