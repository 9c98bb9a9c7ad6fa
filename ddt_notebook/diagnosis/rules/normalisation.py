"""Rules about batch statistics and DDP's options that often are not intended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Position
from ddt_notebook.model.training import ModelTraining

from .facts import forward_passes

#: After this many searches without a result, DDP's search counts as needless. From 1 to 4 no hint
#: on the recorded runs changes (`benchmarks.thresholds`).
_LOOKED_OFTEN_ENOUGH = 2


def statistics(context: Context) -> Iterator[Finding]:
    """Report batch-norm statistics that differ because a DDP option turned their copying off."""
    if context.snapshot.outcome != "ok":
        return
    for ranks in replicas.models(context.snapshot):
        first = next(iter(ranks.values()))
        if not all(m.batch_norm and m.forwards and not m.broadcast_buffers for m in ranks.values()):
            continue
        found = [
            item.name
            for item in replicas.differing(context.snapshot, first.name, "buffer")
            if item.name.rpartition(".")[2] in ("running_mean", "running_var")
        ] or _observed_apart(ranks)
        if not found:
            continue
        yield conclude(
            "D.2.4",
            "batch-norm-statistics-differ",
            cause="batch-norm-statistics-apart",
            ranks=ranks,
            places=forward_passes(context, ranks),
            values={"model": first.name},
            facts=[
                Fact(
                    kind="statistics-differ",
                    values={"statistics": len(found), "name": found[0]},
                ),
                Fact(kind="broadcast-buffers-off"),
                *([] if first.made is None else [_put_into_ddp(context, first.made)]),
            ],
            confidence="likely",
        )


def _put_into_ddp(context: Context, made: Position) -> Fact:
    return Fact(kind="put-into-ddp", place=context.place(made, "created"))


def _observed_apart(ranks: Mapping[int, ModelTraining]) -> list[str]:
    """Return the statistics that differ at the end, of a model that no variable holds any more."""
    first = next(iter(ranks.values()))
    return [
        f"{first.name}.{name}"
        for name in first.statistics
        if len({model.statistics.get(name) for model in ranks.values()}) > 1
    ]


def needless_search(context: Context) -> Iterator[Finding]:
    """Report, as a hint, that DDP looks for unused parameters in every step and finds none.

    A library that wraps the model, such as Trainer, chooses this option for all users.
    """
    if context.snapshot.outcome != "ok":
        return
    for ranks in replicas.models(context.snapshot):
        first = next(iter(ranks.values()))
        if not all(
            model.find_unused_parameters
            and model.searched >= _LOOKED_OFTEN_ENOUGH
            and not model.unused
            and not model.made_by
            for model in ranks.values()
        ):
            continue
        yield conclude(
            "D.2.3",
            "needless-search-for-unused",
            cause="find-unused-for-nothing",
            ranks=ranks,
            places={
                rank: context.place(model.made or model.where, "called")
                for rank, model in ranks.items()
            },
            values={"model": first.name},
            facts=[Fact(kind="all-parameters-used", values={"steps": first.searched})],
            confidence="possible",
        )


RULES = (statistics,)
HINTS = (needless_search,)
