"""Rules about epochs with the same stream, the same order or no data at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.finding import Values
from ddt_notebook.model.partition import Epoch, LoaderPartition

from .loaders import Shared, loops, samples, shared_loaders, used_loaders
from .parallel_groups import take_parts

#: Samples without index are compared by content: this many in a row must be equal. From 2 to 16
#: no verdict on the recorded runs changes (`benchmarks.thresholds`).
_ENOUGH = 4


def undivided_streams(context: Context) -> Iterator[Finding]:
    """Report iterable data sets that give every rank the same samples."""
    for shared in shared_loaders(context):
        loaders = shared.loaders
        if any(loader.indexed or not loader.dataset for loader in loaders.values()):
            continue
        starts = [loader.epochs[-1].content for loader in loaders.values()]
        common = min(map(len, starts))
        alike = len({start[:common] for start in starts}) == 1
        enough = len(set(starts[0][:common])) >= min(_ENOUGH, shared.first().epochs[-1].samples)
        if not (alike and enough and common > 1 and shared.trains) or take_parts(context, loaders):
            continue
        yield conclude(
            "C.6",
            "same-stream",
            cause="iterable-not-sharded",
            ranks=loaders,
            values={"loader": shared.name},
            places=shared.places(),
            facts=[
                Fact(kind="samples-begin-alike", values={"samples": common}),
                samples(shared.loaders),
                shared.team.fact,
            ],
            confidence="likely",
        )


def repeating_workers(context: Context) -> Iterator[Finding]:
    """Report iterable data sets that yield everything in each worker of a loader."""
    for name, loaders in used_loaders(context).items():
        repeated = {rank: loader for rank, loader in loaders.items() if _is_repeated(loader)}
        if not repeated:
            continue
        first = next(iter(repeated.values()))
        yield conclude(
            "C.6",
            "every-worker-reads-all",
            cause="workers-repeat-stream",
            ranks=repeated,
            values={"loader": name, "workers": first.workers},
            places=loops(context, repeated),
            facts=[
                Fact(kind="batches-begin-alike", values={"workers": first.workers}),
                samples(repeated),
            ],
            confidence="likely",
        )


def _is_repeated(loader: LoaderPartition) -> bool:
    """Whether the first batches of all workers are the same, and also the next ones."""
    every, heads = loader.workers, loader.epochs[-1].heads
    groups = [heads[at : at + every] for at in range(0, len(heads) - every + 1, every or 1)]
    if every < 2 or len(groups) < 2 or not loader.epochs[-1].trained:
        return False
    return all(len(set(group)) == 1 for group in groups) and groups[0] != groups[1]


def fixed_orders(context: Context) -> Iterator[Finding]:
    """Report epochs in the same order, because the sampler did not get the number of the epoch."""
    for shared in shared_loaders(context):
        single = shared.team.trainings == 1 or _together(context, shared)
        pairs = {rank: _same_order(x, remade=single) for rank, x in shared.loaders.items()}
        if not all(pairs.values()):
            continue
        first = shared.first()
        start = first.epochs[-1].first[:8]
        alike = [epoch for epoch in first.epochs if epoch.trained and epoch.first[:8] == start]
        given = sorted({epoch.sampler_epoch or 0 for epoch in alike})
        yield conclude(
            "D.2.5",
            "same-order-in-every-epoch",
            cause="set-epoch-forgotten",
            ranks=pairs,
            values={"loader": shared.name},
            places=shared.places(),
            facts=[
                Fact(kind="epochs-begin-alike", values={"indices": start} | _numbers(first, alike)),
                Fact(kind="sampler-epoch", values={"sampler": first.sampler, "epochs": given}),
                *_set_at(context, shared),
            ],
            # there may have been several trainings of one epoch each, and a library that made the
            # sampler and hides it may leave its order as it is, as DeepSpeed does
            confidence="likely" if single and not first.sampled_in else "possible",
        )


def _together(context: Context, shared: Shared) -> bool:
    """Whether all optimizers took part in more than one epoch, as those of a GAN do.

    Several trainings of one epoch each take no more steps than an epoch has batches.
    """
    optimizers = {one.rank: one.optimizers for one in context.snapshot.training}
    for partition in context.snapshot.partition:
        loader = shared.loaders.get(partition.rank)
        trained = [
            one
            for one in partition.loaders
            for e in one.epochs
            if e.run == partition.run and e.trained
        ]
        if loader is None:
            continue
        if any(one is not loader for one in trained):
            return False  # they may have stepped on batches of another loader
        longest = max((epoch.batches for epoch in loader.epochs), default=0)
        if any(one.steps <= longest for one in optimizers.get(partition.rank, ())):
            return False
    return True


def _set_at(context: Context, shared: Shared) -> Iterator[Fact]:
    """Return the line that calls ``set_epoch``, if the sampler was given a number all the same."""
    calls = context.program.calls("set_epoch")
    called = all(x.epochs[-1].epoch_set for x in shared.loaders.values())
    if called and len(calls) == 1:
        yield Fact(kind="set-epoch-called", place=context.program.place(calls[0], "called"))


def epochs_not_resumed(context: Context) -> Iterator[Finding]:
    """Report samplers that begin again at an early epoch after training was resumed."""
    for shared in shared_loaders(context):
        again = {rank: epoch for rank, x in shared.loaders.items() if (epoch := _begins_again(x))}
        if len(again) < len(shared.loaders):
            continue
        first = next(iter(again.values()))
        yield conclude(
            "D.2.5",
            "sampler-begins-again",
            cause="sampler-epoch-not-resumed",
            ranks=again,
            values={"loader": shared.name},
            places={
                rank: place
                for rank, epoch in again.items()
                if (place := context.place(epoch.where, "loops")) is not None
            },
            facts=[
                Fact(
                    kind="epochs-of-sampler-and-file",
                    values={
                        "sampler": shared.first().sampler,
                        "set": first.sampler_epoch,
                        "saved": first.resumed_from,
                    },
                ),
                *_files(context, first.resumed_from),
            ],
            confidence="likely",
        )


def _begins_again(loader: LoaderPartition) -> Epoch | None:
    """Return the first epoch after training was resumed, if the file is of a later one."""
    for epoch in loader.epochs:
        given, saved = epoch.sampler_epoch, epoch.resumed_from
        if given is not None and saved is not None and epoch.run == loader.last_run:
            return epoch if epoch.trained and epoch.epoch_set and given < saved else None
    return None


def _files(context: Context, epoch: int | None) -> Iterator[Fact]:
    """Yield where the first rank loaded the checkpoint of an epoch."""
    for report in context.snapshot.checkpoints:
        for use in report.uses:
            if use.action == "load" and use.epoch == epoch and "optimizer" in use.holds:
                place = context.place(use.where, "loads")
                yield Fact(kind="resumed-at", place=place, values={"file": use.name})
                return


def _numbers(loader: LoaderPartition, epochs: list[Epoch]) -> Values:
    """Return the numbers of epochs: in the cell if it ran all of them, else in the session."""
    run = loader.epochs[-1].run
    if all(epoch.run == run and epoch.in_cell for epoch in epochs):
        return {"epochs": [epoch.in_cell for epoch in epochs], "of_all_cells": False}
    earlier = any(epoch.run != run for epoch in epochs)
    return {"epochs": [epoch.number for epoch in epochs], "of_all_cells": earlier}


def _same_order(loader: LoaderPartition, *, remade: bool) -> bool:
    """Whether a training epoch repeated the order of the one before, although it should change.

    Parameters
    ----------
    remade
        Also compare epochs between which the program made a new loader.
    """
    if not loader.shuffles:
        return False
    trained = [e for e in loader.epochs if e.trained and e.sampler_epoch is not None]
    run = loader.epochs[-1].run
    numbers = {epoch.sampler_epoch for epoch in trained if epoch.run == run}
    for before, after in pairwise(trained):
        if after.epoch_set and len(numbers) > 1:
            continue  # a resumed run repeats the epoch that it had not ended
        common = min(len(before.first), len(after.first))
        again = common > 2 and before.first[:common] == after.first[:common]
        # a cell that runs again may begin at the same epoch
        together = before.run == after.run or (before.made == after.made and not after.epoch_set)
        if before.made != after.made and not remade:
            continue
        if again and after.run == run and together and before.sampler_epoch == after.sampler_epoch:
            return True
    return False


def empty_loaders(context: Context) -> Iterator[Finding]:
    """Report loaders that gave a rank nothing, because its part is smaller than a batch."""
    for name, loaders in used_loaders(context).items():
        empty = {
            rank: loader
            for rank, loader in loaders.items()
            if loader.epochs[-1].complete
            and not any(epoch.batches for epoch in loader.epochs)
            and loader.drop_last
            and (loader.universe or 0) > 0
        }
        if not empty:
            continue
        first = next(iter(empty.values()))
        yield conclude(
            "C.6",
            "no-batch",
            cause="no-batches-on-a-rank",
            ranks=empty,
            values={"loader": name},
            places=loops(context, empty),
            facts=[
                Fact(
                    kind="less-than-a-batch",
                    values={
                        "samples": first.universe or 0,
                        "parts": first.replicas,
                        "batch_size": first.batch_size,
                    },
                )
            ],
            confidence="likely",
        )


RULES = (undivided_streams, repeating_workers, empty_loaders, fixed_orders, epochs_not_resumed)
