"""Batch statistics, dropout masks and DDP's options: what may be meant, and often is not."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude_text
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.words import count
from ddt_notebook.model import Finding

_LOOKED_OFTEN_ENOUGH = 2


def statistics(context: Context) -> Iterator[Finding]:
    """Batch-norm statistics that differ, where DDP was told not to copy them."""
    if context.snapshot.outcome != "ok":
        return
    for ranks in replicas.models(context.snapshot):
        first = next(iter(ranks.values()))
        if not all(m.batch_norm and m.forwards and not m.broadcast_buffers for m in ranks.values()):
            continue
        found = [
            item
            for item in replicas.differing(context.snapshot, first.name, "buffer")
            if item.name.rpartition(".")[2] in ("running_mean", "running_var")
        ]
        if not found:
            continue
        yield conclude_text(
            "D.2.4",
            f"batch-norm statistics of {first.name} differ between ranks, and DDP is not to copy "
            "them: each rank evaluates another model",
            cause="batch-norm-statistics-apart",
            ranks=ranks,
            places={rank: context.place(model.where) for rank, model in ranks.items()},
            evidence=[
                f"{count(len(found), 'statistic')} differ, first {found[0].name}",
                "broadcast_buffers=False",
            ],
            confidence="likely",
        )


def same_masks(context: Context) -> Iterator[Finding]:
    """Hint: dropout that starts from one random state on all ranks."""
    for ranks in replicas.models(context.snapshot):
        first = next(iter(ranks.values()))
        dropping = all(model.dropout for model in ranks.values())
        if dropping and len({model.random_state for model in ranks.values()}) == 1:
            yield conclude_text(
                "D.2.4",
                f"dropout in {first.name} draws the same masks on every rank",
                cause="same-dropout-masks",
                ranks=ranks,
                places={rank: context.place(model.where) for rank, model in ranks.items()},
                evidence=["torch's random state was equal on all ranks at the first forward pass"],
                confidence="possible",
            )


def needless_search(context: Context) -> Iterator[Finding]:
    """Hint: DDP looks for unused parameters in every step and finds none."""
    if context.snapshot.outcome != "ok":
        return
    for ranks in replicas.models(context.snapshot):
        first = next(iter(ranks.values()))
        if not all(
            model.find_unused_parameters
            and model.searched >= _LOOKED_OFTEN_ENOUGH
            and not model.unused
            for model in ranks.values()
        ):
            continue
        yield conclude_text(
            "D.2.3",
            f"DDP looks for unused parameters of {first.name} in every step, and there were none",
            cause="find-unused-for-nothing",
            ranks=ranks,
            places={rank: context.place(model.where) for rank, model in ranks.items()},
            evidence=[
                f"all parameters were used at {count(first.searched, 'sampled step')} on every rank"
            ],
            confidence="possible",
        )
