"""Rules about ranks that take other steps than the rest, or make other passes for a step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.communication import communication
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.replicas import Replicas
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.training import ModelTraining, OptimizerTraining, RankTraining
from ddt_notebook.program.gradients import decides_passes

#: With fewer steps, the first one may differ from all others. From 1 to 8 no verdict
#: on the recorded runs changes (`benchmarks.thresholds`).
_STEPS_TO_JUDGE = 2


def skipped_by_scaler(context: Context) -> Iterator[Finding]:
    """Report steps that gradient scalers left out on some ranks only, which end different."""
    if context.snapshot.outcome != "ok":
        return
    for group in (*_groups(context), *replicas.replicas(context.snapshot)):
        if not _scaler_explains(group):
            continue
        last = [one.states[-1].values if one.states else () for one in group.ranks.values()]
        if not all(last) or len(set(last)) == 1:
            continue
        skipped = {r: one.scaler_skipped for r, one in group.ranks.items()}
        not_finite = {one.rank: one.not_finite for one in context.snapshot.training}
        yield conclude(
            "D.2.4",
            "scaler-skipped",
            cause="scaler-skips-on-some-ranks",
            ranks=[rank for rank, number in skipped.items() if number > min(skipped.values())],
            values={"optimizer": group.first.name},
            places={r: context.place(o.scaler_where, "steps") for r, o in group.ranks.items()},
            facts=[
                *_steps_taken(group),
                *(
                    Fact(kind="left-out-by-scaler", ranks=(rank,), values={"steps": number})
                    for rank, number in skipped.items()
                    if number
                ),
                *(
                    Fact(
                        kind="loss-became",
                        ranks=(rank,),
                        values={"loss": found.value, "backward": found.backward},
                    )
                    for rank, number in skipped.items()
                    if (found := not_finite.get(rank)) and not number
                ),
            ],
        )
        return


def _scaler_explains(group: Replicas) -> bool:
    """Whether ranks tried equally many steps, of which scalers left out unequal numbers."""
    ranks = group.ranks.values()
    return (
        len({one.steps + one.scaler_skipped for one in ranks}) == 1
        and len({one.scaler_skipped for one in ranks}) > 1
    )


def uneven_steps(context: Context) -> Iterator[Finding]:
    """Report DDP replicas with equally many passes but other steps, which end different.

    They may have taken equally many steps, each rank after passes of its own choice.
    """
    snapshot = context.snapshot
    if snapshot.outcome != "ok" or any(one.not_finite for one in snapshot.training):
        return
    for group in _groups(context):
        uneven = len({optimizer.steps for optimizer in group.ranks.values()}) > 1
        if (
            (uneven or group.out_of_line is not None)
            and not _scaler_explains(group)
            and _went_equally(context, group)
            and (_ends_apart(context, group) or _steps_change_nothing(group))
        ):
            averaged = Fact(kind="averaged-in-every-pass", values={"model": group.first.model})
            yield _finding(context, group, averaged)


def skipped_by_hand(context: Context) -> Iterator[Finding]:
    """Report unequal steps of replicas whose gradients the code itself reduced in every pass."""
    snapshot = context.snapshot
    if snapshot.outcome != "ok" or any(
        one.not_finite is not None and one.not_finite.lasting for one in snapshot.training
    ):
        return
    passes = {one.rank: one.backwards for one in snapshot.training}
    for group in replicas.replicas(snapshot):
        if group.first.wrapper or len({one.steps for one in group.ranks.values()}) == 1:
            continue
        if _scaler_explains(group) or len({passes[rank] for rank in group.ranks}) > 1:
            continue
        if not _began_equal(group) or not _ends_apart(context, group):
            continue
        if all(_reduced_each_pass(context, r, one, passes[r]) for r, one in group.ranks.items()):
            kind = "reduced-in-every-pass"
            reduced = Fact(
                kind=kind, ranks=tuple(group.ranks), values={"optimizer": group.first.name}
            )
            yield _finding(context, group, reduced)


def _began_equal(group: Replicas) -> bool:
    """Whether the first sampled step began with equal values and used equal gradients."""
    first = min(group.states, default=None)
    return first in group.stepped and not (group.apart(first) or group.gradients_apart(first))


def _reduced_each_pass(context: Context, rank: int, one: OptimizerTraining, passes: int) -> bool:
    """Whether a rank reduced the gradient of each parameter in every backward pass."""
    reduced = communication(context.reports[rank]).reduced
    return passes > 1 and all(
        reduced[shape] >= passes * times for shape, times in one.shapes.items()
    )


def _finding(context: Context, group: Replicas, exchanged: Fact) -> Finding:
    first = group.first
    return conclude(
        "D.2.4",
        "uneven-steps",
        cause="steps-skipped-on-some-ranks",
        ranks=_culprits(group),
        values={"optimizer": first.name, "apart": not _steps_change_nothing(group)},
        places={rank: context.place(o.where, "steps") for rank, o in group.ranks.items()},
        facts=[*_steps_taken(group), *_steps_apart(group), exchanged],
    )


def _steps_apart(group: Replicas) -> Iterator[Fact]:
    """The passes after which ranks took the same step, if they have taken equally many."""
    if group.out_of_line is not None and len({o.steps for o in group.ranks.values()}) == 1:
        step, passes = group.out_of_line
        for rank, number in passes.items():
            values = {"step": step + 1, "passes": number}
            yield Fact(kind="step-after-passes", ranks=(rank,), values=values)


def _culprits(group: Replicas) -> list[int]:
    """Return the ranks that differ from most; with as many on both sides, those that skipped.

    Ranks that took equally many steps have each left out some.
    """
    if len({optimizer.steps for optimizer in group.ranks.values()}) == 1:
        return list(group.ranks)
    found = group.deviating(lambda rank: group.ranks[rank].steps)
    if len(found) < len(group.ranks):
        return found
    most = max(optimizer.steps for optimizer in group.ranks.values())
    return [rank for rank, optimizer in group.ranks.items() if optimizer.steps < most]


def _groups(context: Context) -> Iterator[Replicas]:
    """Yield the optimizers of DDP models on all ranks of the model; some may never have stepped."""
    together: dict[tuple[Any, ...], dict[int, OptimizerTraining]] = defaultdict(dict)
    for training in context.snapshot.training:
        seen: dict[tuple[Any, ...], int] = defaultdict(int)
        for one in training.optimizers:
            if one.wrapper == "DDP":
                key = (one.members, one.kind, one.watched, tuple(sorted(one.shapes.items())))
                seen[key] += 1
                together[*key, seen[key]][training.rank] = one
    for (members, *_), ranks in together.items():
        idle = {
            training.rank: replace(next(iter(ranks.values())), steps=0, states=(), where=None)
            for training in context.snapshot.training
            if training.rank in members
            and training.rank not in ranks
            and not any(_alike(one, next(iter(ranks.values()))) for one in training.optimizers)
        }
        everyone = dict(sorted((ranks | idle).items()))
        if len(everyone) > 1 and set(everyone) == set(members):
            yield Replicas(everyone)


def _alike(one: OptimizerTraining, other: OptimizerTraining) -> bool:
    return one.kind == other.kind and one.shapes == other.shapes


def _went_equally(context: Context, group: Replicas) -> bool:
    """Whether all ranks made the same passes; inside ``join()`` they do not."""
    models = [_model(context, rank, optimizer) for rank, optimizer in group.ranks.items()]
    passes = {
        (model.forwards, model.unsynchronised) if model is not None else None for model in models
    }
    backwards = {one.backwards for one in context.snapshot.training if one.rank in group.ranks}
    special = any(
        model is None or model.communication_hook or model.ignores_parameters for model in models
    )
    return len(passes) == len(backwards) == 1 and not special


def _model(context: Context, rank: int, optimizer: OptimizerTraining) -> ModelTraining | None:
    """Return the DDP model of an optimizer; a function may have used another name for it."""
    found = replicas.model_of(context.snapshot, rank, optimizer)
    training = next(one for one in context.snapshot.training if one.rank == rank)
    alike = [model for model in training.models if model.members == optimizer.members]
    return alike[0] if found is None and len(alike) == 1 else found


def _ends_apart(context: Context, group: Replicas) -> bool:
    """Whether parameters differ at the end; a broadcast may have made them equal again."""
    if not group.gone and replicas.differing(context.snapshot, group.first.model, "parameter"):
        return True
    models = [_model(context, rank, optimizer) for rank, optimizer in group.ranks.items()]
    values = [model.values for model in models if model is not None]
    if values and all(values):
        return len(set(values)) > 1
    last = [o.states[-1].values if o.states else () for o in group.ranks.values()]
    return all(last) and len(set(last)) > 1


def _steps_change_nothing(group: Replicas) -> bool:
    """Whether ranks cannot end apart, since the values never changed: the gradients are zero."""
    stepped = [one.states for one in group.ranks.values() if one.states]
    values = [{state.values for state in states if state.values} for states in stepped]
    enough = any(len(states) > _STEPS_TO_JUDGE for states in stepped)
    return enough and all(len(one) == 1 for one in values)


def _steps_taken(group: Replicas) -> list[Fact]:
    by_steps: dict[int, list[int]] = defaultdict(list)
    for rank, optimizer in group.ranks.items():
        by_steps[optimizer.steps].append(rank)
    return [
        Fact(kind="took-steps", ranks=tuple(ranks), values={"steps": steps})
        for steps, ranks in sorted(by_steps.items())
    ]


def uneven_passes(context: Context) -> Iterator[Finding]:
    """Report DDP replicas that accumulate gradients over unequal numbers of backward passes."""
    snapshot = context.snapshot
    if snapshot.outcome != "ok":
        return
    for group in replicas.replicas(snapshot):
        passes = {rank: usual_passes(optimizer) for rank, optimizer in group.ranks.items()}
        if None in passes.values() or len(set(passes.values())) < 2:
            continue
        if not (_accumulates_unequally(context, group) or _averages_by_hand(group)):
            continue
        by_passes: dict[int, list[int]] = defaultdict(list)
        for rank, number in passes.items():
            by_passes[number or 0].append(rank)
        lines = {one.rank: one.where for one in snapshot.training}
        yield conclude(
            "D.2.4",
            "uneven-passes",
            cause="uneven-backward-passes",
            ranks=group.deviating(passes.get),
            values={"optimizer": group.first.name, "model": group.first.model},
            places={rank: context.place(lines[rank], "runs") for rank in group.ranks},
            facts=[
                Fact(kind="passes-in-a-step", ranks=tuple(ranks), values={"passes": number})
                for number, ranks in sorted(by_passes.items())
            ]
            + list(_passes_decided(context, group)),
            confidence="likely",
        )


def _passes_decided(context: Context, group: Replicas) -> Iterator[Fact]:
    rank, optimizer = next(iter(group.ranks.items()))
    lines = {one.rank: one.where for one in context.snapshot.training}
    where, step = lines[rank], optimizer.where
    place = decides_passes(context.program, where, step) if where and step else None
    if place is not None:
        yield Fact(kind="passes-decided", place=place)


def usual_passes(optimizer: OptimizerTraining) -> int | None:
    """Return the number of passes before nearly every step; the last batch may be smaller."""
    usual = Counter(optimizer.passes).most_common(1)
    if not usual or usual[0][1] < max(_STEPS_TO_JUDGE, optimizer.steps - 1):
        return None
    return usual[0][0]


def _averages_by_hand(group: Replicas) -> bool:
    """Whether the code itself made the gradients of a model without wrapper equal in each step."""
    return (
        not group.first.wrapper
        and len(group.stepped) >= _STEPS_TO_JUDGE
        and not any(group.gradients_apart(step) for step in group.stepped)
    )


def _accumulates_unequally(context: Context, group: Replicas) -> bool:
    """Whether only the passes inside ``no_sync()`` are unequal, and all are of this model."""
    if group.first.wrapper != "DDP":
        return False
    models = {rank: _model(context, rank, optimizer) for rank, optimizer in group.ranks.items()}
    if any(m is None or m.communication_hook or m.ignores_parameters for m in models.values()):
        return False
    known = [model for model in models.values() if model is not None]
    trainings: dict[int, RankTraining] = {one.rank: one for one in context.snapshot.training}
    return (
        len({model.forwards for model in known}) == 1
        and len({model.unsynchronised for model in known}) > 1
        and all(
            trainings[rank].backwards == model.forwards + model.unsynchronised
            for rank, model in models.items()
            if model is not None
        )
    )


RULES = (skipped_by_scaler, uneven_steps, skipped_by_hand, uneven_passes)
