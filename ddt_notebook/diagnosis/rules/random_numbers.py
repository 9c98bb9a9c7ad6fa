"""Hints about random numbers that are equal on all ranks, which often is not intended."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.training import Drawn, ModelTraining

#: Steps in which equal numbers were drawn: one may have been the first after equal seeds.
_STEPS = 2


def same_noise(context: Context) -> Iterator[Finding]:
    """Report, as a hint, numbers that all ranks drew alike for different batches of a loader."""
    for ranks in _batches_differ(context):
        drawn = {one.rank: one.drawn for one in context.snapshot.training if one.rank in ranks}
        alike = [at for at in zip(*drawn.values(), strict=False) if _is_one_draw(at)]
        equal = [at for at in alike if len({one.content for one in at}) == 1]
        lines = {at[0].where for at in equal} - {
            at[0].where for at in alike if len({one.content for one in at}) > 1
        }
        known = [at for at in equal if at[0].where in lines]
        if len({at[0].number for at in known}) < _STEPS:
            continue
        first = known[0][0]
        yield conclude(
            "D.2.4",
            "same-noise",
            cause="same-dropout-masks",
            ranks=ranks,
            places=dict.fromkeys(sorted(ranks), context.place(first.where, "called")),
            values={"function": first.function},
            facts=[
                Fact(
                    kind="drawn-alike",
                    values={"function": first.function, "shape": first.shape},
                ),
                Fact(kind="batches-apart"),
            ],
            confidence="possible",
        )
        return


def _batches_differ(context: Context) -> Iterator[dict[int, ModelTraining]]:
    """Yield the models in DDP that all ranks gave other batches, which loaders brought."""
    loaded = any(
        epoch.run == partition.run and epoch.trained
        for partition in context.snapshot.partition
        for loader in partition.loaders
        for epoch in loader.epochs
    )
    if not loaded or context.snapshot.outcome != "ok":
        return
    for ranks in replicas.models(context.snapshot):
        first = next(iter(ranks.values()))
        inputs = {model.first_inputs for model in ranks.values()}
        if set(first.members) == set(ranks) and len(inputs) == len(ranks) and all(inputs):
            yield ranks


def _is_one_draw(at: tuple[Drawn, ...]) -> bool:
    """Whether all ranks drew as many numbers at one line for one step."""
    return len({(one.number, one.where, one.shape, one.use) for one in at}) == 1


def same_masks(context: Context) -> Iterator[Finding]:
    """Report, as a hint, dropout that starts from the same random state on all ranks."""
    if any(True for _ in same_noise(context)):
        return
    for ranks in replicas.models(context.snapshot):
        first = next(iter(ranks.values()))
        dropping = all(model.dropout for model in ranks.values())
        if dropping and len({model.random_state for model in ranks.values()}) == 1:
            yield conclude(
                "D.2.4",
                "same-dropout-masks",
                cause="same-dropout-masks",
                ranks=ranks,
                places={
                    rank: context.place(model.where, "called") for rank, model in ranks.items()
                },
                values={"model": first.name},
                facts=[Fact(kind="same-random-state")],
                confidence="possible",
            )


HINTS = (same_noise, same_masks)
