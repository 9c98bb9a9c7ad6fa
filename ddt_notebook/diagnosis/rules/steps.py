"""Rules about optimizers that took more steps on some ranks, with the same gradients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.replicas import Replicas
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.training import ModelTraining, OptimizerTraining


def uneven_steps(context: Context) -> Iterator[Finding]:
    """Report DDP replicas with equally many forward passes but unequal steps that end different."""
    snapshot = context.snapshot
    if snapshot.outcome != "ok" or any(one.not_finite for one in snapshot.training):
        return
    for group in _groups(context):
        uneven = len({optimizer.steps for optimizer in group.ranks.values()}) > 1
        if uneven and _went_equally(context, group) and _ends_apart(context, group):
            yield _finding(context, group)


def _finding(context: Context, group: Replicas) -> Finding:
    first = group.first
    return conclude(
        "D.2.4",
        "uneven-steps",
        cause="steps-skipped-on-some-ranks",
        ranks=group.deviating(lambda rank: group.ranks[rank].steps),
        values={"optimizer": first.name},
        places={rank: context.place(o.where, "steps") for rank, o in group.ranks.items()},
        facts=[
            *_steps_taken(group),
            Fact(kind="averaged-in-every-pass", values={"model": first.model}),
        ],
    )


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
            if training.rank in members and training.rank not in ranks and not training.optimizers
        }
        everyone = dict(sorted((ranks | idle).items()))
        if len(everyone) > 1 and set(everyone) == set(members):
            yield Replicas(everyone)


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
    if replicas.differing(context.snapshot, group.first.model, "parameter"):
        return True
    last = [o.states[-1].values if o.states else () for o in group.ranks.values()]
    return all(last) and len(set(last)) > 1


def _steps_taken(group: Replicas) -> list[Fact]:
    by_steps: dict[int, list[int]] = defaultdict(list)
    for rank, optimizer in group.ranks.items():
        by_steps[optimizer.steps].append(rank)
    return [
        Fact(kind="took-steps", ranks=tuple(ranks), values={"steps": steps})
        for steps, ranks in sorted(by_steps.items())
    ]


RULES = (uneven_steps,)
