"""Rules about workers of TensorFlow that train and share nothing, or train with the same data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Place
from ddt_notebook.model.finding import Confidence
from ddt_notebook.model.tensorflow import DistributedData, OptimizerUpdates

#: The name that a session gives each rank, and the variables that tell a process its place.
_PLACES = frozenset({"rank", "local_rank", "RANK", "LOCAL_RANK", "TF_CONFIG"})


def undivided_data(context: Context) -> Iterator[Finding]:
    """Report a pipeline that is equal on all workers and that TensorFlow does not divide.

    If a run also distributes data that is divided, the undivided data may be for an evaluation.
    """
    seen = context.snapshot.tensorflow
    if (
        context.snapshot.outcome != "ok"
        or len(seen) < 2
        or not all(_shares(context, one.updates) for one in seen)
    ):
        return
    if len({len(one.data) for one in seen}) > 1:
        return
    together = list(zip(*(one.data for one in seen), strict=True))
    if not together or not all(map(_is_undivided, together)):
        return
    first = together[0]
    places: dict[int, Place | None] = {
        one.rank: context.place(data.where, "runs") for one, data in zip(seen, first, strict=True)
    }
    drawn = any(data.shuffled for data in first)
    yield conclude(
        "D.2.2",
        "undivided-pipeline",
        cause="tensorflow-data-undivided",
        ranks=[one.rank for one in seen],
        places=places,
        values={"policy": first[0].policy},
        facts=[Fact(kind="pipelines-equal", values={"shuffled": drawn})],
        confidence="possible" if drawn else "likely",
    )


def _is_undivided(data: tuple[DistributedData, ...]) -> bool:
    return bool(data[0].content) and len({one.content for one in data}) == 1


def _shares(context: Context, updates: tuple[OptimizerUpdates, ...]) -> bool:
    """Whether a rank trained, and only in a strategy that keeps the workers equal."""
    size = context.snapshot.world_size
    return bool(updates) and all(one.replicas >= size for one in updates)


def trained_alone(context: Context) -> Iterator[Finding]:
    """Report workers that each train the same model without a strategy that connects them.

    If the program looks at its own place among the workers, each may train something of its own.
    """
    snapshot = context.snapshot
    seen = snapshot.tensorflow
    if snapshot.outcome != "ok" or snapshot.world_size < 2 or len(seen) < snapshot.world_size:
        return
    if not all(one.updates and all(u.replicas == 1 for u in one.updates) for one in seen):
        return
    if len({tuple(update.variables for update in one.updates) for one in seen}) > 1:
        return
    if any(call.kind != "setup" for report in context.reports.values() for call in report.calls):
        return
    confidence: Confidence = "possible" if _knows_its_place(context) else "likely"
    yield conclude(
        "D.2.2",
        "trained-without-strategy",
        cause="tensorflow-ranks-train-alone",
        ranks=[one.rank for one in seen],
        places={one.rank: context.place(one.updates[0].where, "steps") for one in seen},
        values={"size": snapshot.world_size},
        facts=[Fact(kind="updates-of-one-replica")],
        confidence=confidence,
    )


def _knows_its_place(context: Context) -> bool:
    for cell in (context.snapshot.cell, *context.snapshot.earlier_cells):
        try:
            tree = ast.parse(cell.source)
        except SyntaxError:
            return True
        for node in ast.walk(tree):
            name = node.id if isinstance(node, ast.Name) else getattr(node, "value", None)
            if isinstance(name, str) and name in _PLACES:
                return True
    return False


RULES = (undivided_data, trained_alone)
