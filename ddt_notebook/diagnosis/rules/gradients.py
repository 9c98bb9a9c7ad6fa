"""Rules about gradients that are summed, clipped or accumulated differently than intended."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.communication import all_elements, elements
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.gradients import factor, shared_and_own
from ddt_notebook.diagnosis.replicas import Replicas
from ddt_notebook.model import Fact, Finding, Place
from ddt_notebook.model.collective import shape_label
from ddt_notebook.model.training import (
    CountedLoss,
    LossGraph,
    OptimizerTraining,
    RankTraining,
    TrainingState,
)
from ddt_notebook.program.gradients import clips_at_scaled_limit, loss_divided_by_world
from ddt_notebook.program.nodes import argument
from ddt_notebook.program.scaled_batches import loaders_share_a_batch, shrinks_with_ranks

from .steps import usual_passes

#: So many gradients change places, at least.
_SWAPPED = 2
#: Passes of which the ranks' counts are compared, and how far apart they are at least: those of
#: data that cannot be divided evenly are nearer.
_COUNTED, _UNEVEN = 2, 1.25
#: A function of such a name averages: ``average_gradients``, ``reduceMean``.
_MEAN = re.compile(
    r"(^|_)(avg|average|averaged|averaging|mean)(_|$|[A-Z])|(A(vg|verage)|Mean)([A-Z_]|$)"
)
#: Fewer passes before a step accumulate nothing.
_ACCUMULATED = 2


def clipped_first(context: Context) -> Iterator[Finding]:
    """Report gradients that each rank clipped before they were averaged."""
    if context.snapshot.outcome != "ok":
        return
    trainings = _trainings(context)
    for group in replicas.replicas(context.snapshot):
        if group.first.wrapper or factor(group, lambda state: state.clipped) is None:
            continue
        if not _clipping_changed(group):
            continue
        yield _clipped(
            context,
            {rank: context.place(trainings[rank].clips_at, "changes") for rank in group.ranks},
            group.first.name,
            Fact(kind="clipped-then-combined", values={"steps": len(group.stepped)}),
        )
        return
    for models in replicas.models(context.snapshot):
        if not all(_averages_each_step(trainings[rank]) for rank in models):
            continue  # local SGD clips and steps without an average
        if all(m.clipped_alone and m.unsynchronised and m.forwards for m in models.values()):
            first = next(iter(models.values()))
            yield _clipped(
                context,
                {r: context.place(m.clipped_where, "changes") for r, m in models.items()},
                first.name,
                Fact(kind="clipped-in-no-sync", values={"times": first.clipped_alone}),
            )
            return


def _clipped(context: Context, places: dict[int, Place | None], name: str, seen: Fact) -> Finding:
    return conclude(
        "D.2.4",
        "clipped-before-average",
        cause="clipped-before-average",
        ranks=places,
        places=places,
        values={"name": name},
        facts=[seen],
        confidence="likely",
    )


def _averages_each_step(training: RankTraining) -> bool:
    """Whether DDP averaged the gradients of every step."""
    steps = [one for one in training.optimizers if one.wrapper == "DDP"]
    return bool(steps) and all(one.synchronised == one.steps for one in steps)


def _clipping_changed(group: Replicas) -> bool:
    """Whether clipping changed a gradient: below the limit it does nothing."""
    return any(
        not math.isclose(before, after, rel_tol=1e-3)
        for at in group.states.values()
        for state in at.values()
        for before, after in zip(state.local, state.clipped, strict=False)
    )


def clipped_apart(context: Context) -> Iterator[Finding]:
    """Report gradients that were equal after an exchange, and that the ranks clipped differently.

    Some ranks may not have clipped them at all.
    """
    if context.snapshot.outcome != "ok" or any(x.not_finite for x in context.snapshot.training):
        return
    trainings = _trainings(context)
    for group in replicas.replicas(context.snapshot):
        shared, own = shared_and_own(group)
        if group.first.wrapper or not shared or own or group.first_apart is None:
            continue
        for step in group.stepped:
            states = group.states[step]
            used = list(zip(*(state.used for state in states.values()), strict=False))
            if all(len({*used[at]}) == 1 for at in shared if at < len(used)):
                continue
            clipped = [rank for rank, state in states.items() if _was_clipped(state)]
            if not clipped:
                break  # something else changed them first
            places = {rank: context.place(trainings[rank].clips_at, "changes") for rank in clipped}
            yield conclude(
                "D.2.5",
                "clipped-apart",
                cause="gradients-changed-after-averaging",
                ranks=group.ranks,
                places=places,
                values={"model": group.first.model, "step": step + 1},
                facts=[
                    Fact(kind="equal-after-exchange", values={"step": step + 1}),
                    Fact(kind="clipped-them", ranks=tuple(clipped)),
                ],
            )
            return


def _was_clipped(state: TrainingState) -> bool:
    """Whether the step used gradients that clipping had changed."""
    return bool(state.clipped) and state.used == state.clipped != state.unclipped


def swapped(context: Context) -> Iterator[Finding]:
    """Report gradients that a reduction has given to another parameter on some ranks.

    Ranks that reduce gradients of one shape in another order add up those of different parameters.
    The same sums are then on all ranks, at different parameters.
    """
    if context.snapshot.outcome != "ok":
        return
    for group in replicas.replicas(context.snapshot):
        if group.first.wrapper:
            continue
        for step in group.stepped:
            apart = group.gradients_apart(step)
            sums = {r: [s.gradients[at] for at in apart] for r, s in group.states[step].items()}
            if len(apart) < _SWAPPED or len({tuple(sorted(one)) for one in sums.values()}) > 1:
                continue
            mine, *others = sums.values()
            if len(set(mine)) < len(mine):
                continue
            other = next(one for one in others if one != mine)
            at = next(n for n, value in enumerate(mine) if other[n] != value)
            rank = next(rank for rank, one in sums.items() if one is other)
            names = [group.first.watched[apart[n]] for n in (at, other.index(mine[at]))]
            yield conclude(
                "D.2.4",
                "gradients-swapped",
                cause="swapped-collectives",
                ranks=group.ranks,
                values={"optimizer": group.first.name, "step": step + 1},
                places={one: _reduces(context, group, one) for one in group.ranks},
                facts=[
                    Fact(
                        kind="sum-at-another",
                        ranks=(min(group.ranks), rank),
                        values={"here": names[0], "there": names[1]},
                    )
                ],
            )
            return


def clipped_scaled(context: Context) -> Iterator[Finding]:
    """Report gradients that were clipped while they were multiplied by a gradient scaler's factor.

    The limit may be scaled, too; then nothing is wrong.
    """
    found = {
        one.rank: (one, optimizer)
        for one in context.snapshot.training
        for optimizer in one.optimizers
        if optimizer.clipped_scaled
    }
    if context.snapshot.outcome != "ok" or not found or clips_at_scaled_limit(context.program):
        return
    optimizer = found[min(found)][1]
    yield conclude(
        "D.2.4",
        "clipped-while-scaled",
        cause="clipped-while-scaled",
        ranks=found,
        places={r: context.place(one.clips_at, "changes") for r, (one, _) in found.items()},
        values={"optimizer": optimizer.name},
        facts=[Fact(kind="not-unscaled", values={"steps": optimizer.clipped_scaled})],
        confidence="likely",
    )


def summed(context: Context) -> Iterator[Finding]:
    """Report gradients of mean losses that are summed over the ranks, not averaged.

    A sum may be meant, with a rate that fits, so that this is a hint. It is likely a fault if the
    program shows that a mean was meant, and if the size of a step depends on that of the gradients.
    """
    if context.snapshot.outcome != "ok":
        return
    for group in replicas.replicas(context.snapshot):
        if group.first.wrapper or factor(group, lambda state: state.local) != 1.0:
            continue
        losses = _losses(context, group)
        passes = {usual_passes(optimizer) for optimizer in group.ranks.values()}
        if not losses or not all(_is_mean(loss, passes) for loss in losses):
            continue
        places = {rank: _reduces(context, group, rank) for rank in group.ranks}
        meant = _a_mean_was_meant(context, group, places[min(places)])
        follows = group.first.kind == "SGD" and not _is_scaled_elsewhere(context, group)
        yield conclude(
            "D.2.4",
            "gradients-summed",
            cause="gradients-not-divided",
            ranks=group.ranks,
            values={"optimizer": group.first.name, "size": len(group.ranks)},
            places=places,
            facts=[
                Fact(kind="used-the-sum", values={"optimizer": group.first.name}),
                Fact(kind="loss-is-mean"),
                *meant,
            ],
            confidence="likely" if meant and follows else "possible",
        )


def _a_mean_was_meant(context: Context, group: Replicas, reduces: Place | None) -> list[Fact]:
    """Return what shows that steps should be as large as those of one process."""
    facts = []
    around = context.program.functions_around(reduces) if reduces is not None else []
    if name := next((name for name in around if _MEAN.search(name)), ""):
        facts.append(Fact(kind="named-as-mean", values={"function": name}))
    loaders = [
        loader.made_at
        for partition in context.snapshot.partition
        for loader in partition.loaders
        if partition.rank in group.ranks
        and any(epoch.run == partition.run and epoch.trained for epoch in loader.epochs)
    ]
    made = [one for one in loaders if one is not None]
    if len(made) == len(loaders) and loaders_share_a_batch(context.program, made):
        facts.append(Fact(kind="batch-is-shared"))
    return facts


def _is_scaled_elsewhere(context: Context, group: Replicas) -> bool:
    """Whether the rate is divided by the number of ranks, or a hook may divide the gradients."""
    program, made = context.program, group.first.made
    if program.calls("register_step_pre_hook") or made is None:
        return True
    rates = [argument(call, 1, "lr") for call in program.calls_at(made)]
    return any(rate is not None and shrinks_with_ranks(program, rate) for rate in rates)


def _losses(context: Context, group: Replicas) -> list[LossGraph | None]:
    """Return the ranks' first losses; none if these may be those of another optimizer's steps."""
    trainings = _trainings(context)
    first = [trainings[rank].optimizers[:1] == (one,) for rank, one in group.ranks.items()]
    return [trainings[rank].loss for rank in group.ranks] if all(first) else []


def _is_mean(loss: LossGraph | None, passes: set[int | None]) -> bool:
    """Whether a loss is a mean that was not divided, unless by the number of accumulated passes."""
    if loss is None or loss.reduction != "mean" or loss.factor is None:
        return False
    usual = {1.0 / one for one in passes if one}
    return any(math.isclose(abs(loss.factor), one, rel_tol=1e-6) for one in (1.0, *usual))


def _reduces(context: Context, group: Replicas, rank: int) -> Place | None:
    """Return the line that reduces gradients; that of the step if it is not known."""
    shapes = group.first.shapes
    whole = all_elements(shapes)
    for call in context.reports[rank].calls:
        sent = [shape_label(shape) for shape in call.shapes]
        if call.reduce_op == "SUM" and any(s in shapes or elements(s) >= whole for s in sent):
            return context.place(call.where, "called")
    return context.place(group.ranks[rank].where, "steps")


def accumulated_undivided(context: Context) -> Iterator[Finding]:
    """Report, as a hint, mean losses whose gradients are accumulated and divided nowhere."""
    if context.snapshot.outcome != "ok":
        return
    trainings = _trainings(context)
    for group in replicas.replicas(context.snapshot):
        passes = {_accumulated(optimizer) for optimizer in group.ranks.values()}
        number = next(iter(passes))
        if len(passes) != 1 or not number:
            continue
        if not (_uses_no_sync(context, group, number) or _takes_a_batch_each(context, group)):
            continue
        losses = _losses(context, group)
        if not losses or not all(_is_mean(loss, set()) for loss in losses):
            continue
        if factor(group, lambda state: state.local, of_sum=False) is None:
            continue
        yield conclude(
            "D.2.4",
            "accumulated-loss-undivided",
            cause="accumulated-loss-not-divided",
            ranks=group.ranks,
            values={"optimizer": group.first.name, "passes": number},
            places={rank: context.place(trainings[rank].where, "runs") for rank in group.ranks},
            facts=[
                Fact(kind="passes-in-a-step", ranks=tuple(group.ranks), values={"passes": number}),
                Fact(kind="loss-is-mean"),
                Fact(kind="gradients-as-accumulated"),
            ],
            confidence="possible",
        )


def divided_again(context: Context) -> Iterator[Finding]:
    """Report mean losses that are divided by the number of ranks although DDP averages gradients.

    The graph of the loss shows the factor, and the source that the number of ranks is its reason.
    """
    if context.snapshot.outcome != "ok":
        return
    trainings = _trainings(context)
    for group in replicas.replicas(context.snapshot):
        size = len(group.first.members)
        passes = {usual_passes(optimizer) for optimizer in group.ranks.values()}
        number = next(iter(passes)) if len(passes) == 1 else None
        if group.first.wrapper != "DDP" or size < 2 or number is None:
            continue
        models = [replicas.model_of(context.snapshot, r, o) for r, o in group.ranks.items()]
        if any(model is None or model.communication_hook for model in models):
            continue  # the hook may add up
        losses = _losses(context, group)
        if not losses or not all(_is_divided(loss, size, number) for loss in losses):
            continue
        where = trainings[min(group.ranks)].where
        place = loss_divided_by_world(context.program, where) if where is not None else None
        if place is None:
            continue
        yield conclude(
            "D.2.4",
            "loss-divided-by-world",
            cause="averaged-twice",
            ranks=group.ranks,
            values={"line": place.line, "model": group.first.model, "size": size},
            places=dict.fromkeys(group.ranks, place),
            facts=[Fact(kind="loss-averaged-by-ddp")],
            confidence="likely",
            op="backward",
        )


def _is_divided(loss: LossGraph | None, size: int, passes: int) -> bool:
    """Whether a mean loss was divided by the number of ranks, and perhaps of micro-batches."""
    if loss is None or loss.reduction != "mean" or loss.factor is None:
        return False
    factors = (1.0 / size, 1.0 / (size * passes))
    return any(math.isclose(abs(loss.factor), one, rel_tol=1e-6) for one in factors)


def uneven_counts(context: Context) -> Iterator[Finding]:
    """Report, as a hint, means over unequal numbers of elements whose gradients DDP averages."""
    if context.snapshot.outcome != "ok":
        return
    trainings = _trainings(context)
    for models in replicas.models(context.snapshot):
        first = models[min(models)]
        if set(first.members) != set(models) or any(m.communication_hook for m in models.values()):
            continue
        counted = [{one.number: one for one in trainings[rank].counted} for rank in models]
        numbers = sorted(set.intersection(*({*one} for one in counted)))
        passes = [tuple(one[number] for one in counted) for number in numbers]
        if len(passes) < _COUNTED or any(_is_even(at) for at in passes):
            continue
        facts = [
            Fact(kind="mean-over", ranks=(rank,), values={"counted": one.counted})
            for rank, one in zip(models, passes[0], strict=True)
        ]
        yield conclude(
            "D.2.4",
            "loss-over-uneven-counts",
            cause="mean-of-uneven-means",
            ranks=models,
            values={"model": first.name},
            places={
                rank: context.place(one.where, "called")
                for rank, one in zip(models, passes[0], strict=True)
            },
            facts=[*facts, Fact(kind="mean-of-ranks-by-ddp")],
            confidence="possible",
        )
        return


def _is_even(at: tuple[CountedLoss, ...]) -> bool:
    """Whether the ranks' losses of one pass are means over about equally many elements."""
    counts = [one.counted for one in at]
    return len({one.where for one in at}) > 1 or max(counts) < _UNEVEN * min(counts)


def _uses_no_sync(context: Context, group: Replicas, passes: int) -> bool:
    """Whether all passes of a step but the last were inside ``no_sync()``: one batch in parts."""
    for rank, optimizer in group.ranks.items():
        model = replicas.model_of(context.snapshot, rank, optimizer)
        if model is None or not model.forwards or model.unsynchronised < model.forwards:
            return False
        left = model.unsynchronised - model.forwards * (passes - 1)
        if not 0 <= left < passes:  # the last batches may be too few for a step
            return False
    return True


def _accumulated(optimizer: OptimizerTraining) -> int:
    """Return the most usual number of passes before a step; 0 if a step had only one."""
    if not optimizer.passes or min(optimizer.passes) < _ACCUMULATED:
        return 0
    number, times = Counter(optimizer.passes).most_common(1)[0]
    return number if times > 1 else 0


def _takes_a_batch_each(context: Context, group: Replicas) -> bool:
    """Whether one loader brought one batch for each pass: no batch has several losses."""
    for partition in context.snapshot.partition:
        if partition.rank not in group.ranks:
            continue
        batches = [
            sum(epoch.batches for epoch in trained)
            for loader in partition.loaders
            if (trained := [e for e in loader.epochs if e.run == partition.run and e.trained])
        ]
        passes = group.ranks[partition.rank].passes
        made = sum(number * times for number, times in passes.items())
        if len(batches) != 1 or not made <= batches[0] < made + max(passes):
            return False
    return bool(context.snapshot.partition)


def _trainings(context: Context) -> dict[int, RankTraining]:
    return {one.rank: one for one in context.snapshot.training}


RULES = (clipped_first, clipped_scaled, clipped_apart, swapped, divided_again, summed)
HINTS = (accumulated_undivided, uneven_counts)
